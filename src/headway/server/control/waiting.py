"""Why a job waits in the queue of this server. Pure. Called by `control.explain`, where no engine
has a queue.
"""

from collections.abc import Collection, Iterable, Sequence

from headway.engines.protocol import Node, Waiting
from headway.model.job import Job, State
from headway.server.control import queue
from headway.settings.quantity import duration_text, size_text


def explain(
    job: Job, jobs: Iterable[Job], nodes: Sequence[Node], max_running: int, needed: queue.Needed | None = None,
    queues: Collection[str] = (), now_ns: int = 0,
) -> Waiting:  # fmt: skip
    """`jobs`: all that are open. `needed`: those that some of them wait for. `queues`: places whose
    engine has a queue of its own; what runs there counts nothing here.
    """
    others = [other for other in jobs if other.pk != job.pk]
    running = [other for other in others if queue.holds(other) and other.spec.place not in queues]
    here = [other for other in running if other.spec.place == job.spec.place]
    free = tuple(_left(node, here) for node in nodes)
    back = held_back(job, needed or {}, now_ns)
    if back is not None:
        return Waiting(back, (), free)
    mine = (-job.spec.priority, job.submitted_ns, job.pk)
    before = queue.order(others, needed, {other.attempts[-1].key: _rest_s(other, now_ns) for other in others
                                          if other.attempts})  # fmt: skip
    ahead = tuple(o.id for o in before if (-o.spec.priority, o.submitted_ns, o.pk) < mine)
    limit = None if job.spec.place in queues else max_running
    return Waiting("; ".join(_reasons(job, running, free, ahead, limit)), ahead, free)


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
