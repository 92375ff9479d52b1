"""The live console of `hw run` and `hw watch`: one screen that is redrawn while a job goes on.

May be in here: what is known of a job (`model`, `log`, `curve`), one small widget per file that
turns a part of it into styled lines, `frame` that puts them together, and what touches the terminal
and the server (`stage`, `painter`, `keys`, `feed`, `loop`). Models and widgets are pure: a frame
depends on the model, the size and the theme alone. May call `views`, `settings`, `wire` and
`model`; never `views.cli`.
"""
