"""The rules, one file per family of causes; `rulebook.py` lists them. A new rule is a row and a golden log."""
