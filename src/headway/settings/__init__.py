"""Where Headway lives and how it was told to behave: the home, its settings, and how to reach its
server.

May be in here: what every part needs before it can do its own work: the home and its paths, the
layers of settings, quantities with units, and the start of and connection to the server of a home.
Standard library only; PyYAML is imported lazily, when a settings file exists, and never by client
or agent. May call `model`; knows nothing of jobs.
"""
