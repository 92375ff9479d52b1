"""Why a job waits in the queue of this server. Pure. Called by `control.explain`, where no engine
has a queue.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from headway.engines.protocol import Node, Waiting
from headway.model.job import Job, State
from headway.server.control import forecast, queue
from headway.settings.quantity import duration_text, size_text


def explain(
    job: Job, jobs: Iterable[Job], nodes: Sequence[Node], max_running: int, needed: queue.Needed | None = None,
    queues: Collection[str] = (), now_ns: int = 0, lengths: Mapping[int, forecast.Length] | None = None,
    history: forecast.History | None = None,
) -> Waiting:  # fmt: skip
    """`jobs`: all that are open. `needed`: those that some of them wait for. `queues`: places whose
    engine has a queue of its own; what runs there counts nothing here. `lengths`: how long jobs
    take, by pk; `history`: how good forecasts were so far.
    """
    others = [other for other in jobs if other.pk != job.pk]
    running = [other for other in others if queue.holds(other) and other.spec.place not in queues]
    here = [other for other in running if other.spec.place == job.spec.place]
    free = tuple(_left(node, here) for node in nodes)
    back = held_back(job, needed or {}, now_ns)
    if back is not None:
        return Waiting(back, (), free, cause="pause" if job.between_tries else "dependency")
    mine = (-job.spec.priority, job.submitted_ns, job.pk)
    rest_s = {other.attempts[-1].key: _rest_s(other, now_ns) for other in others if other.attempts}
    before = queue.order(others, needed, rest_s)
    ahead = [o for o in before if (-o.spec.priority, o.submitted_ns, o.pk) < mine]
    limit = None if job.spec.place in queues else max_running
    ids = tuple(other.id for other in ahead)
    start, start_ns = "", None
    if lengths is not None and ids + tuple(running):
        seen = forecast.foresee(job, [*ahead, job], running, nodes, limit, lengths, now_ns)
        if seen is None:
            start = "how long the jobs in its way take is not known: they have no progress bar, no time limit, and no past"
        else:
            start, start_ns = forecast.words(seen, history or forecast.History(), now_ns)
    reasons = list(_reasons(job, running, free, ids, limit))
    return Waiting(
        "; ".join(reasons),
        ids,
        free,
        cause=_cause(reasons),
        sooner=tuple(_sooner(job, free, ahead, running, limit)),
        start=start,
        start_ns=start_ns,
        ahead_words=tuple(f"{one.id.rpartition('-')[2]} ({_asked(one)})" for one in ahead),
    )


def _cause(reasons: Sequence[str]) -> str:
    """The one that stands first, as all engines call it."""
    for word, cause in (
        ("(max_running)", "limit"),
        ("it asks for", "resources"),
        ("about to", "starting"),
    ):
        if word in reasons[0]:
            return cause
    return "queue"


def _asked(job: Job) -> str:
    """`2 GPUs, 8 CPUs, 64 GiB, priority 5`."""
    spec = job.spec
    parts = [f"{spec.gpus} GPU{'s' if spec.gpus > 1 else ''}"] if spec.gpus else []
    parts += [f"{spec.cpus} CPU{'s' if spec.cpus > 1 else ''}"] if spec.cpus else []
    parts += [size_text(spec.memory_bytes)] if spec.memory_bytes else []
    return ", ".join([*parts, f"priority {spec.priority}"])


def _sooner(
    job: Job,
    free: Sequence[Node],
    ahead: Sequence[Job],
    running: Sequence[Job],
    max_running: int | None,
) -> Iterable[str]:
    """What a person could change so that it starts now, or goes first."""
    spec = job.spec
    if max_running is not None and len(running) >= max_running:
        yield f"{f'hw config set max_running {len(running) + 1}':<30} would let one more run at a time"
        return
    changes: list[str] = []
    cpus = sum(node.cpus or 0 for node in free)
    memory = sum(node.memory_bytes or 0 for node in free)
    gpus = sum(node.gpus for node in free)
    if spec.cpus and spec.cpus > cpus:
        changes.append(f"--cpus {cpus}" if cpus else "")
    if spec.memory_bytes and spec.memory_bytes > memory:
        changes.append(f"--memory {memory >> 20}MiB" if memory >> 20 else "")
    if spec.gpus > gpus:
        changes.append(f"-n {gpus}" if gpus else "")
    if changes and all(changes):
        yield f"{' '.join(changes):<30} would start now"
    elif ahead and not changes:
        most = max(other.spec.priority for other in ahead)
        yield f"{f'--priority {most + 1}':<30} would go before those ahead"


def held_back(job: Job, needed: queue.Needed, now_ns: int) -> str | None:
    """What it waits for before it is in the queue at all: the time of its next try, or other jobs."""
    rest_s = _rest_s(job, now_ns)
    if job.between_tries and rest_s > 0:
        told = str((job.attempts[-1].retry or {}).get("text") or "")
        return f"attempt {len(job.attempts) + 1} is due in {duration_text(max(1, round(rest_s)))}: {told}"
    left = [needed.get(uuid, (uuid, State.WAITING)) for uuid in job.spec.after]
    names = [f"{name} ({state or 'gone'})" for name, state in left if state is not State.SUCCEEDED]
    return (
        f"it starts when {' and '.join(names)} {'has' if len(names) == 1 else 'have'} succeeded"
        if names
        else None
    )


def _rest_s(job: Job, now_ns: int) -> float:
    """How long it pauses yet before its next try."""
    due_ns = (job.attempts[-1].retry or {}).get("not_before_ns") if job.attempts else None
    return 0.0 if due_ns is None else max(0.0, (due_ns - now_ns) / 1e9)


def _left(node: Node, running: Sequence[Job]) -> Node:
    """What jobs have not asked for; a machine counts CPUs and memory only of those that ask."""
    cpus = (
        None
        if node.cpus is None
        else max(0, node.cpus - sum(one.spec.cpus or 0 for one in running))
    )
    used = sum(one.spec.memory_bytes or 0 for one in running)
    memory = None if node.memory_bytes is None else max(0, node.memory_bytes - used)
    gpus = max(0, node.gpus - sum(one.spec.gpus for one in running))
    return Node(node.name, cpus, memory, gpus, node.gpu_source, node.state_word)


def _reasons(
    job: Job,
    running: Sequence[Job],
    free: Sequence[Node],
    ahead: Sequence[str],
    max_running: int | None,
) -> Iterable[str]:
    spec = job.spec
    full = max_running is not None and len(running) >= max_running
    if full:
        yield f"{_jobs(len(running), 'runs', 'run')}, and at most {max_running} may (max_running)"
    pairs = [
        ("GPUs", spec.gpus, sum(node.gpus for node in free)),
        ("CPUs", spec.cpus or 0, sum(node.cpus or 0 for node in free)),
    ]
    short = [
        f"it asks for {asked} {what}, and {left} are free"
        for what, asked, left in pairs
        if asked > left
    ]
    memory = sum(node.memory_bytes or 0 for node in free)
    if (spec.memory_bytes or 0) > memory:
        short.append(
            f"it asks for {size_text(spec.memory_bytes or 0)} of memory, and {size_text(memory)} are free"
        )
    yield from short
    if ahead and not short:
        yield f"{_jobs(len(ahead), 'is', 'are')} ahead of it in the queue"
    if not short and not ahead and not full:
        yield "it is about to start"


def _jobs(count: int, one: str, several: str) -> str:
    return f"1 job {one}" if count == 1 else f"{count} jobs {several}"
