"""Charts of metrics for `hw plot`: lines and axes, drawn in a terminal, as SVG, PNG or a page."""
