"""Programs that the cases run as jobs. Standard library and Headway's public names only."""
