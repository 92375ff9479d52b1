"""Why a job failed, hangs or waits: evidence in, findings out.

Pure: no clock, no I/O. May import `model`; is called by `server`.
"""
