"""The nouns of Headway: ids, jobs and their states, records, findings, limits, errors.

Standard library only: the client and the agent import this inside a user's environment.
May import nothing else of Headway.
"""
