"""Tasks as spool folders, for engines whose tasks' folders can be seen from here."""
