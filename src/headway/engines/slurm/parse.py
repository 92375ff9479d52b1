"""What Slurm prints, read into values. Pure. Called by the engine; tested with recorded answers of
several versions.

Only text forms are read: `--json` changes from version to version and lacks facts in some (an exit
code, a filter). Words that are not known are kept as they are and mean `unknown`: nothing is
guessed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from headway.engines.protocol import ObservedState
from headway.model.limits import HOSTS_MAX

# Comment and reason may hold anything but a newline, so they come last, and the comment is ours.
SQUEUE_FORMAT: Final = "%A|%T|%B|%N|%S|%K|%F|%k|%r"
_SQUEUE_FIELDS: Final = 9

WAITING: Final = frozenset(
    {
        "PENDING", "CONFIGURING", "REQUEUED", "REQUEUED_CRON", "REQUEUE_HOLD", "REQUEUE_FED",
        "SPECIAL_EXIT", "RESV_DEL_HOLD", "POWER_UP_NODE", "EXPEDITING",
    }
)  # fmt: skip
ALIVE: Final = frozenset(
    {"RUNNING", "COMPLETING", "SUSPENDED", "SIGNALING", "STAGE_OUT", "STOPPED", "RESIZING"}
)
OVER: Final = frozenset(
    {
        "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "BOOT_FAIL",
        "DEADLINE", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL",
    }
)  # fmt: skip
_FIELD: Final = re.compile(r"(?:^|\s)([A-Z][A-Za-z_/:]*)=")
# A number of a scheduler has an end: what is longer is damage, and nothing is computed with it.
_COUNT: Final = re.compile(r"(.*)[:=]([0-9]{1,9})\Z")
_DURATION: Final = re.compile(
    r"(?:(?P<days>[0-9]{1,6})-)?(?P<rest>[0-9]{1,9}(?::[0-9]{1,9}){0,2})\Z"
)
_HOSTS: Final = re.compile(r"([^\[,]+)(?:\[([^\]]+)\])?([^,\[]*)")


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job, as squeue, scontrol or sacct tells it. None: not told."""

    id: str
    word: str  # Slurm's own state, without "+" or "by 1000"
    reason: str = ""
    nodes: str = ""  # compact: node[1-2]
    start: str | None = None  # since when it runs, or the forecast
    comment: str = ""
    exit_code: int | None = None
    signal: int | None = None
    by_uid: int | None = None  # who cancelled it
    fields: dict[str, str] = field(default_factory=dict)
    number: str = ""  # the batch job's own; of an element of an array it is not the id
    name: str = ""  # as the accounting tells it

    @property
    def state(self) -> ObservedState:
        if self.word in WAITING:
            return "starting"
        if self.word in ALIVE:
            return "running"
        return "ended" if self.word in OVER else "unknown"

    @property
    def was_preempted(self) -> bool:
        """Also one that ended by itself when it was told to make room: Slurm's word is COMPLETED
        then.
        """
        return self.word == "PREEMPTED" or _time(self.fields.get("PreemptTime", "")) is not None


@dataclass(frozen=True, slots=True)
class NodeLine:
    name: str
    state: str  # IDLE+DRAIN, as Slurm has it
    cpus: int
    cpus_used: int
    memory_mib: int
    memory_used_mib: int
    gpus: int
    gpus_used: int
    reason: str = ""
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    # kind of GPU -> how many, and in use
    kinds: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def is_usable(self) -> bool:
        words = set(re.split(r"[+*]", self.state.upper()))
        return not words & {
            "DOWN",
            "DRAIN",
            "DRAINED",
            "DRAINING",
            "FAIL",
            "FAILING",
            "MAINT",
            "NOT_RESPONDING",
        }

    @property
    def responds(self) -> bool:
        """Slurm hears its daemon; a star behind the state says that it does not."""
        words = set(re.split(r"[+*]", self.state.upper()))
        return "*" not in self.state and not words & {
            "DOWN",
            "NOT_RESPONDING",
            "UNKNOWN",
            "POWERED_DOWN",
        }


@dataclass(frozen=True, slots=True)
class Holder:
    """A running job: what it has on each of its nodes, and when its time is over."""

    id: str
    name: str
    end: str
    nodes: tuple[str, ...]
    gpus: int
    cpus: int
    memory_bytes: int


def lines_of(text: str) -> list[str]:
    """Lines end with a newline and with nothing else: `str.splitlines` would cut a job's name at
    characters that only look like one, and its rest would pass for a line of Slurm's.
    """
    return [line.rstrip("\r") for line in text.split("\n")]


def is_number(text: str) -> bool:
    """Of a job, a node, an exit: plain digits, and not more than any of these has."""
    return text.isascii() and text.isdigit() and len(text) <= 18


def read_squeue(text: str) -> dict[str, JobLine]:
    """`squeue -h -r -t all -o SQUEUE_FORMAT`, by job id, which is `ARRAY_INDEX` for an element of
    an array. Lines that are not what was asked for are left out.
    """
    found = {}
    for line in lines_of(text):
        parts = line.split("|", _SQUEUE_FIELDS - 1)
        if len(parts) != _SQUEUE_FIELDS or not is_number(parts[0]):
            continue
        own, word, _, nodes, start, index, array, rest_comment, reason = parts
        if "|" in reason:  # a comment of somebody else's; the reason itself never has one
            reason = reason.rpartition("|")[2]
        job_id = f"{array}_{index}" if is_number(index) and is_number(array) else own
        found[job_id] = JobLine(
            job_id, word, _plain(reason), nodes, _time(start), _plain(rest_comment), number=own
        )
    return found


def read_fields(line: str) -> dict[str, str]:
    """One line of `scontrol show … -o`: values may hold spaces, names begin with a capital."""
    found: dict[str, str] = {}
    places = list(_FIELD.finditer(line))
    ends = [place.start() for place in places[1:]] + [len(line)]
    for place, end in zip(places, ends, strict=False):
        found.setdefault(place[1], line[place.end() : end].strip())
    return found


def read_job(text: str) -> JobLine | None:
    """`scontrol show job -o ID`."""
    return next(iter(read_jobs(text).values()), None)


def read_jobs(text: str) -> dict[str, JobLine]:
    """`scontrol show job -o`, by job id; an element of an array is `ARRAY_INDEX`."""
    found = {}
    for line in lines_of(text):
        fields = read_fields(line)
        number = fields.get("JobId", "").split(" ")[0]
        if not is_number(number):
            continue
        index = fields.get("ArrayTaskId", "")
        job_id = (
            f"{fields['ArrayJobId']}_{index}"
            if is_number(index) and is_number(fields.get("ArrayJobId", ""))
            else number
        )
        code, signal = read_exit(fields.get("ExitCode", ""))
        found[job_id] = JobLine(
            job_id, fields.get("JobState", ""), _plain(fields.get("Reason", "")), fields.get("NodeList", ""),
            _time(fields.get("StartTime", "")), _plain(fields.get("Comment", "")), code, signal,
            None, fields, number,
        )  # fmt: skip
    return found


def read_sacct(text: str) -> dict[str, JobLine]:
    """`sacct -n -P -X -o JobID,State,ExitCode,NodeList,Start,Reason,JobName,Comment`, by job id."""
    found = {}
    for line in lines_of(text):
        parts = line.split("|", 7)
        if len(parts) != 8 or not re.match(r"[0-9]{1,18}(?:_[0-9]{1,9})?\Z", parts[0]):
            continue
        word, _, rest = parts[1].partition(" ")
        by = rest.removeprefix("by ") if rest.startswith("by ") else ""
        code, signal = read_exit(parts[2])
        found[parts[0]] = JobLine(
            parts[0], word.rstrip("+"), _plain(parts[5]), parts[3], _time(parts[4]), _plain(parts[7]), code, signal,
            by_uid=int(by) if is_number(by) else None, name=parts[6],
        )  # fmt: skip
    return found


def read_exit(text: str) -> tuple[int | None, int | None]:
    """`7:0` is exit code 7, `0:15` is signal 15. Unreadable: neither is known."""
    code, colon, signal = text.partition(":")
    if not colon or not is_number(code) or not is_number(signal):
        return None, None
    return (None, int(signal)) if int(signal) else (int(code), None)


def read_nodes(text: str) -> list[NodeLine]:
    """`scontrol show node -d -o`."""
    found = []
    for line in lines_of(text):
        fields = read_fields(line)
        names = fields.get("NodeName", "").split()
        if not names:
            continue
        found.append(
            NodeLine(
                names[0], (fields.get("State", "").split() or ["UNKNOWN"])[0],
                number_of(fields.get("CPUTot", "")), number_of(fields.get("CPUAlloc", "")),
                number_of(fields.get("RealMemory", "")), number_of(fields.get("AllocMem", "")),
                count_gpus(fields.get("Gres", "")), count_gpus(fields.get("GresUsed", "")),
                _plain(fields.get("Reason", "")), tuple(filter(None, fields.get("Partitions", "").split(","))),
                tuple(filter(None, _plain(fields.get("AvailableFeatures", "")).split(","))), _kinds(fields),
            )
        )  # fmt: skip
    return found


def read_min_age_s(text: str) -> float:
    """`MinJobAge = 300 sec` of `scontrol show config`: how long an ended job is known. 0: not told."""
    match = re.search(r"^MinJobAge\s*=\s*([0-9]{1,9})\b", text, re.MULTILINE)
    return float(match[1]) if match else 0.0


def _kinds(fields: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    used = read_gpus(fields.get("GresUsed", ""))
    return {
        kind: (count, used.get(kind, 0))
        for kind, count in read_gpus(fields.get("Gres", "")).items()
        if kind
    }


def count_gpus(gres: str) -> int:
    """`gpu:a100:4(S:0-1),gpu:2` is 6; `gpu:tesla:2(IDX:0-1)` is 2."""
    return sum(read_gpus(gres).values())


def read_gpus(gres: str) -> dict[str, int]:
    """How many of each kind; one without a kind is `""`. Kinds may begin with a number:
    `gpu:3090:4`, `gpu:1g.10gb:2`. As Slurm itself has it, a last part that is a number is a count,
    and without one it is 1.
    """
    found: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", gres).split(","):
        # 20.11: gpu:4 NtasksPerTRES:0
        name = (part.split() or [""])[0].removeprefix("gres:").removeprefix("gres/")
        told = _COUNT.match(name)
        name, count = (told[1], int(told[2])) if told else (name, 1)
        what, _, kind = name.partition(":")
        if what == "gpu":
            found[kind] = found.get(kind, 0) + count
    return found


def expand_hosts(compact: str) -> list[str]:
    """`node[1-2,09-10],login` is node1, node2, node09, node10, login. A list of more nodes than any
    cluster has is kept whole, as is a form that is not known: nothing is made of it.
    """
    found: list[str] = []
    for prefix, inside, suffix in _HOSTS.findall(compact):
        name = prefix.lstrip(",").strip()
        if not inside:
            found += [name] if name else []
            continue
        for part in inside.split(","):
            low, dash, high = part.partition("-")
            if not is_number(low) or (dash and not is_number(high)):
                return [compact]
            last = int(high) if dash else int(low)
            if len(found) + last - int(low) >= HOSTS_MAX:
                return [compact]
            found += [
                f"{name}{number:0{len(low)}d}{suffix}" for number in range(int(low), last + 1)
            ]
    return found


def _plain(text: str) -> str:
    text = text.strip()
    return "" if text in ("(null)", "None", "N/A", "none") else text


def _time(text: str) -> str | None:
    """A time of Slurm's, in the cluster's own zone; None for `N/A` and `Unknown`."""
    try:
        datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return text.strip()


def is_word(text: str) -> bool:
    """Whether Slurm tells a value there."""
    return bool(_plain(text)) and text not in ("Unknown", "ALL")


def seconds(text: str) -> float | None:
    """A duration of Slurm's: `30` (minutes), `30:00`, `01:00:00`, `1-02:00:00`; None for
    `UNLIMITED` and the like.
    """
    match = _DURATION.match(text.strip())
    if match is None:
        return None
    days, parts = int(match["days"] or 0), [int(part) for part in match["rest"].split(":")]
    if match["days"]:  # days-hours[:minutes[:seconds]]
        parts = [*parts, 0, 0][:3]
    elif len(parts) == 1:
        parts = [0, *parts, 0]
    hours, minutes, rest = [0, *parts][-3:]
    return float(days * 86_400 + hours * 3600 + minutes * 60 + rest)


def mebibytes(text: str) -> int:
    """`100M`, `4G`, `1.50T`, `200` (MiB)."""
    match = re.match(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([KMGTP]?)", text)
    if match is None:
        return 0
    return int(
        float(match[1])
        * {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}[match[2]]
    )


def read_tres(text: str) -> dict[str, float]:
    """`cpu=2,mem=200M,node=2,gres/gpu=4`; memory in MiB."""
    found = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals and re.match(r"[0-9]", value):
            found[name] = float(mebibytes(value))
    return found


def gpus_of(tres: Mapping[str, float]) -> int:
    return int(
        tres.get("gres/gpu")
        or sum(count for name, count in tres.items() if name.startswith("gres/gpu:"))
    )


HOLDER_WIDTHS: Final = (20, 24, 8, 160, 80, 80, 400)


def read_holders(text: str, kind: str = "") -> list[Holder]:
    """`squeue -O` with these widths: id, end, nodes, allocation, what each node gives, name, names
    of nodes. `kind`: of GPUs that matter; a job that named none may have any.
    """
    found = []
    for line in lines_of(text):
        parts, place = [], 0
        for width in HOLDER_WIDTHS:
            parts.append(line[place : place + width].strip())
            place += width
        job_id, end, _, whole, each, name, hosts = parts
        nodes = tuple(expand_hosts(hosts))
        if not nodes or _time(end) is None or any("[" in node for node in nodes):
            continue
        tres, count = read_tres(whole), len(nodes)
        named = read_gpus(each)
        mine = [number for name, number in named.items() if not kind or name in ("", kind)]
        gpus = sum(mine) if named else gpus_of(tres) // count
        memory = int(tres.get("mem", 0)) // count * 1024 * 1024
        found.append(
            Holder(job_id, name, end, nodes, gpus, int(tres.get("cpu", 0)) // count, memory)
        )
    return found


def number_of(text: str) -> int:
    """The number that a text begins with; 0: none."""
    match = re.match(r"[0-9]{1,18}(?![0-9])", text)
    return int(match[0]) if match else 0
