"""The server: one process per home that owns the store, runs jobs through engines, and answers over
HTTP.

May be in here: the door (`serve`, `transport`, `guard`, `auth`, `app`, `call`), the routes (`api/`,
one file per noun), news for those who wait (`live`), and the loop that decides and acts
(`reconcile`, `control`). May call `store`, `engines`, `diagnose`, `settings`, `wire` and `model`.
Nobody imports it: views and agents speak to it over HTTP.
"""
