"""Jobs that are shown on another machine's server, and jobs of other machines that are shown here."""
