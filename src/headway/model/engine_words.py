"""Words of engines as lists tell them, and of launchers. Apart from `job`, whose dataclasses a short
command has no time to load.
"""

# who starts the processes of a job: the agent, with RANK and the like; or the real mpirun
LAUNCHERS = ("ranks", "mpirun")


NOT_NOW = "not yet: "  # why, of a job that is tried again by itself
_TOLD_CHARS_MAX = 200


def queue_word(told: str | None) -> str:
    """What an engine with a queue of its own says of a waiting job, for a list: `PENDING
    (Resources)` is `Resources`. Slurm has a whole sentence where nodes are away, which its other
    answers call by that word, too.
    """
    if str(told or "").startswith(NOT_NOW):
        return str(told)[:_TOLD_CHARS_MAX]
    reason = str(told or "").partition("(")[2].rstrip(")").partition(",")[0]
    if reason.startswith("JobHeld") or reason == "JobHoldMaxRequeue":
        return "held"
    return "Resources" if reason.startswith("Nodes required for job") else reason


# what a hang is answered with; its stacks are kept in any case, and only `stacks` sends no notice
ON_HANG = ("notify", "stacks", "restart", "stop")
