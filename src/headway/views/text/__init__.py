"""How things look as text: numbers, tables, the terminal, the lines about a job."""
