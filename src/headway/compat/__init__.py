"""Other trackers' interfaces, answered by Headway: scripts that were written for them run as they are.

`headway.compat.wandb` is `import wandb`; `hw run --as wandb` puts it there without an edit. Like the client, everything
here lives in the user's environment and imports the standard library alone.
"""
