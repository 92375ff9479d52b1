"""Why a job waits, from Slurm's own word, in words and with what to do. Pure. Called by the
engine's `explain`.

The words are those of Slurm's "job reason codes". Limits of associations and QoS are a small
language of their own (`QOSMaxGRESPerUser`, `AssocGrpCPUMinutesLimit`): they are taken apart. A word
that is not known is shown as it is.
"""

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Reason:
    word: str
    text: str
    hint: str = ""
    never: bool = False  # it will not start by itself


_ASK_LESS: Final = "ask for less, or wait until jobs of yours have ended"
_BY_ITSELF: Final = "it starts by itself when one that has it has ended"
_SOON: Final = "nothing to do: this passes by itself"
AWAY_HINT: Final = "hw clusters -v shows which nodes are away, and why"
_ASK_ADMIN: Final = "ask the cluster's administrators"

# word -> (text, hint, whether it will never start by itself)
_WORDS: Final[dict[str, tuple[str, str, bool]]] = {
    "None": ("Slurm has not looked at it yet", _SOON, False),
    "Resources": ("it is at the head of its queue, and what it needs is not free", "", False),
    "Priority": ("jobs with a higher priority go first", "", False),
    "Dependency": ("it waits for another job", "it starts by itself once that one has ended", False),
    "DependencyNeverSatisfied": ("the job that it waits for did not end as it should", "abort it, submit again", True),
    "JobHeldUser": ("it is held by its owner", "scontrol release ID lets it go", True),
    "JobHeldAdmin": ("it is held by an administrator", _ASK_ADMIN, True),
    "JobHoldMaxRequeue": ("it was requeued too often and is held", "find out why it fails, then resubmit", True),
    "BeginTime": (
        "it may not start before a time: it was asked for, or it was just requeued",
        "scontrol update jobid=ID starttime=now starts it at once", False,
    ),
    "PartitionDown": ("its partition is down", "submit to another partition", False),
    "PartitionInactive": ("its partition takes no jobs now", "submit to another partition", False),
    "PartitionNodeLimit": ("it asks for more nodes than its partition allows", "ask for fewer nodes", True),
    "PartitionTimeLimit": ("it asks for more time than its partition allows", "ask for less time", True),
    "PartitionConfig": ("its partition does not allow what it asks for", "submit to another partition", True),
    "AccountNotAllowed": ("its account may not use this partition", "use another account or partition", True),
    "QOSNotAllowed": ("its QoS may not be used in this partition or account", "use another QoS or partition", True),
    "InvalidAccount": ("its account is not valid", "use another account", True),
    "InvalidQOS": ("its QoS is not valid", "use another QoS", True),
    "BadConstraints": ("no node has what its constraints ask for", "ask for less, or for other features", True),
    "ReqNodeNotAvail": ("a node that it needs is not available", "take the node out of the request, or wait", False),
    "NodeDown": ("a node that it needs is down", AWAY_HINT, False),
    "FrontEndDown": ("no front end node is available", _ASK_ADMIN, False),
    "Reservation": ("its reservation has not begun, or has no room", "wait, or submit without the reservation", False),
    "ReservationDeleted": ("its reservation was deleted", "submit it without the reservation", True),
    "Licenses": ("a licence that it needs is not free", _BY_ITSELF, False),
    "JobArrayTaskLimit": ("its array runs as many tasks at once as it may", _BY_ITSELF, False),
    "Cleaning": ("it was requeued, and its last run is still being cleaned up", _SOON, False),
    "Prolog": ("its prolog still runs", _SOON, False),
    "JobLaunchFailure": ("it could not be launched: a bad program, file system or node", "see the agent's log", True),
    "SystemFailure": ("a failure of Slurm, a file system or the network", _ASK_ADMIN, False),
    "NonZeroExitCode": ("its command ended with an exit code other than 0", "its log says why", True),
    "OutOfMemory": ("it used more memory than it had", "ask for more memory", True),
    "TimeLimit": ("it used all its time", "ask for more time", True),
    "InactiveLimit": ("it was inactive for too long", "ask the cluster's administrators for a longer one", True),
    "DeadLine": ("it cannot end before its deadline", "ask for less time, or for a later deadline", True),
    "FedJobLock": ("the clusters of the federation agree on who starts it", _SOON, False),
    "SchedDefer": ("it asked to start at once, and Slurm puts starts off", "submit it without --immediate", False),
    "Constraints": ("no node has what its constraints ask for now", AWAY_HINT, False),
    "NodeNotAvail": ("no node is available", AWAY_HINT, False),
    "PowerNotAvail": ("there is not enough power now", _BY_ITSELF, False),
    "PowerReserved": ("the power that it needs is reserved", _BY_ITSELF, False),
    "BurstBufferOperation": ("an operation on its burst buffer failed", _ASK_ADMIN, True),
    "BurstBufferResources": ("its burst buffer has no room", _BY_ITSELF, False),
    "BurstBufferStageIn": ("its burst buffer is being filled", _SOON, False),
    "AccountingPolicy": ("a limit of its account, QoS or partition is reached", _ASK_LESS, False),
    "AssociationJobLimit": ("your account has as many jobs as it may", _ASK_LESS, False),
    "AssociationResourceLimit": ("your account uses as much as it may", _ASK_LESS, False),
    "AssociationTimeLimit": ("your account has used all its time", _ASK_ADMIN, False),
    "QOSJobLimit": ("its QoS has as many jobs as it may", _ASK_LESS, False),
    "QOSResourceLimit": ("its QoS uses as much as it may", _ASK_LESS, False),
    "QOSTimeLimit": ("its QoS has used all its time", _ASK_ADMIN, False),
    "QOSUsageThreshold": ("your usage is above what its QoS allows", "wait, or use another QoS", False),
    "MaxMemPerLimit": ("it asks for more memory than is allowed for each node or CPU", "ask for less memory", True),
    "JobNotReady": ("Slurm prepares it", _SOON, False),
    "WaitingForScheduling": ("Slurm has not looked at it yet", _SOON, False),
    "NvidiaImexChannels": ("no channel between GPUs of several nodes (IMEX) is free", _BY_ITSELF, False),
    "MaxPoweredUpNodes": ("as many nodes are powered up as may be", "wait until others have ended", False),
    "MpiPortsBusy": ("the ports for MPI on its nodes are in use", _BY_ITSELF, False),
    "ReservationInvalid": ("its reservation is not valid", "submit it with another reservation, or none", True),
    "RaisedSignal": ("it was ended by a signal", "its log says what it did last", True),
    "BlockMaxError": ("its nodes of a Blue Gene have failed too often", _ASK_ADMIN, False),
    "BlockFreeAction": ("nodes of a Blue Gene are being freed", _SOON, False),
    "InvalidReason": ("Slurm itself does not know why", _ASK_ADMIN, False),
    # its own spelling, up to 23.02
    "InvaildReason": ("Slurm itself does not know why", _ASK_ADMIN, False),
    "MaxRequeue": ("it was requeued too often", "find out why it fails, then resubmit", True),
    "Requeued": ("it was requeued", _SOON, False),
}  # fmt: skip

# The one reason that is a sentence in Slurm itself.
_SENTENCE: Final = "Nodes required for job are DOWN"
_AWAY: Final = "the nodes that it could have are down, drained, or kept for jobs of a partition with a higher priority"

LIMIT: Final = re.compile(
    r"(?P<whose>Assoc|QOS|)(?P<kind>Grp|Max|Min)(?P<what>BB|Billing|Cpu|CPU|Energy|GRES|Jobs?|License|Memory|Mem|Node|"
    r"SubmitJobs?|Submit|Unknown|Wall|WallDuration)(?P<rest>[A-Za-z]*)\Z"
)
_WHAT: Final = {
    "bb": "burst buffer", "billing": "billing units", "cpu": "CPUs", "energy": "energy", "gres": "GPUs or other GRES",
    "job": "running jobs", "jobs": "running jobs", "license": "licences", "memory": "memory", "mem": "memory",
    "node": "nodes", "submitjobs": "submitted jobs", "submitjob": "submitted jobs", "submit": "submitted jobs",
    "unknown": "a resource", "wall": "wall time", "wallduration": "wall time",
}  # fmt: skip
_FOR: Final = {
    "PerJob": "for one job", "PerNode": "for each node", "PerUser": "for each user", "PerAccount": "for each account",
}  # fmt: skip


def explain(told: str) -> Reason:
    """`told` as squeue gives it: a word, and for some words more behind a comma. scontrol writes
    `_` for a blank.
    """
    if told.startswith(_SENTENCE) or told.replace("_", " ").startswith(_SENTENCE):
        return Reason("Resources", _AWAY, AWAY_HINT)
    word, _, more = told.strip().partition(",")
    word, more = word.strip("() ") or "None", more.lstrip("_ ")
    if word in _WORDS:
        text, hint, never = _WORDS[word]
        more = more.replace("_", " ").strip()
        if "maintenance" in more:  # it is not about one node
            hint = ""
        return Reason(word, f"{text} ({more})" if more else text, hint, never)
    limit = LIMIT.match(word)
    if limit is not None:
        return _explain_limit(word, limit)
    return Reason(word, f"Slurm says: {told.strip()}")


def _explain_limit(word: str, limit: re.Match[str]) -> Reason:
    """A limit on what one job may ask for never goes away; a limit on what all use together does."""
    whose = {"Assoc": "your account", "QOS": "its QoS", "": "a limit of the cluster"}[
        limit["whose"]
    ]
    what, rest = _WHAT[limit["what"].lower()], limit["rest"]
    scope = next((text for suffix, text in _FOR.items() if suffix in rest), "")
    minutes = "minutes of " if "Minutes" in rest else ""
    if limit["kind"] == "Min":
        return Reason(
            word,
            f"it asks for less than {whose} wants: {what}",
            "ask for more, or use another QoS",
            True,
        )
    one_job = "PerJob" in rest or "PerNode" in rest or limit["what"] == "WallDuration"
    together = (
        "all jobs together have reached"
        if limit["kind"] == "Grp"
        else "the most that is allowed is reached in"
    )
    if one_job:
        text = f"it asks for more than {whose} allows {scope or 'for one job'}: {minutes}{what}"
        return Reason(word, text, "ask for less", True)
    ending = f" {scope}" if scope else ""
    return Reason(word, f"{together} {whose}: {minutes}{what}{ending}", _ASK_LESS, False)
