"""The parts of the live console's screen, one file each. Pure: model in, lines out."""
