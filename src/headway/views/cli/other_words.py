"""Verbs of other tools: what each is called here. Those that only look are run at once, and said;
those that would change or run something are only told. Called when a verb is not known.
"""

from typing import Final

# word → the words of hw that mean it
LOOKING: Final[dict[str, tuple[str, ...]]] = {
    "ps": ("ls",), "squeue": ("ls",), "status": ("ls",), "queue": ("ls",), "list": ("ls",), "jobs": ("ls",),
    "sacct": ("ls",), "runs": ("ls",), "top": ("watch",), "htop": ("watch",), "attach": ("watch",), "tail": ("logs", "-f"),
    "log": ("logs",), "cat": ("logs",), "output": ("logs",), "show": ("query",), "info": ("query",),
    "get": ("query",), "inspect": ("query",), "scontrol": ("query",), "failed": ("ls", "--state", "failed"),
    "running": ("ls", "--state", "running"), "summary": ("clusters",), "sinfo": ("clusters",), "nodes": ("clusters",),
    "workers": ("query",), "explain": ("why",), "diagnose": ("why",), "stack": ("stacks",), "ui": ("page",),
    "open": ("page",),
    "dashboard": ("page",), "web": ("page",), "settings": ("config",),
}  # fmt: skip
# word → what to type instead
CHANGING: Final[dict[str, str]] = {
    "kill": "hw abort {ID}", "stop": "hw abort {ID}", "cancel": "hw abort {ID}", "scancel": "hw abort {ID}",
    "terminate": "hw abort {ID}", "rm": "hw delete {ID}", "remove": "hw delete {ID}", "forget": "hw delete {ID}",
    "rerun": "hw resubmit {ID}", "restart": "hw resubmit {ID}", "retry": "hw resubmit {ID}", "requeue": "hw resubmit {ID}",
    "sbatch": "hw submit {ID}", "qsub": "hw submit {ID}", "bsub": "hw submit {ID}", "launch": "hw submit {ID}",
    "start": "hw submit {ID}", "srun": "hw run {ID}", "exec": "hw run {ID}", "local": "hw run {ID}",
    "download": "hw q {ID} --assets for the logs of a job; hw storage download PLACE for other files",
    "upload": "hw storage upload FILE… PLACE", "exec-shell": "hw shell {ID}", "login": "hw monitor join HOST:PORT",
}  # fmt: skip


def instead(word: str, rest: list[str]) -> str | None:
    """What to type for a verb that changes something; None: it is not known."""
    if word not in CHANGING:
        return None
    from headway.views.text.format import shell_words

    given = shell_words(rest)[:200] if rest else "ID"
    return CHANGING[word].replace("{ID}", given)
