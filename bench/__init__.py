"""Headway beside its peers, measured in one run: `python -m bench` writes a table and a plot into
`bench/results/`.

`cases/` holds one file per figure, `peers/` one driver per peer; `peer.py` makes the peers'
environments. Nothing of Headway imports this folder.
"""
