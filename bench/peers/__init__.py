"""One driver per peer, run by `driver.py` inside that peer's own environment.

Each file has `start(folder)`, which imports and opens the peer and returns its log function,
`stop()`, and `reader(folder)`, which returns a function that reads all values of one metric. They
import the standard library and their peer, the latter by `import_module`: it is not installed where
these files are checked.
"""
