"""Control: from stored state and observations to writes and engine calls, and the verbs that the
API calls.
"""
