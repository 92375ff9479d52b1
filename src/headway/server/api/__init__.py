"""The routes, one file per noun. Each file has a list `ROUTES`; a route says which role it needs.

May be in here: checking a request, asking the store or `control`, shaping the answer. May call what
`server` may; a file here does not call another one.
"""
