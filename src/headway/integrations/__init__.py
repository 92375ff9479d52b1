"""Loggers of Headway for training libraries, one file each; `hw run --autolog` puts them in without an edit.

Each imports its library, so it is imported only by those who use it. Nothing here raises into training.
"""
