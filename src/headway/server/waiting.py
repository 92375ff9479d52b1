"""Why a job waits in the queue of this server. Pure. Called by `control.explain`, where no engine has a queue."""

from collections.abc import Iterable, Sequence

from headway.engines.protocol import Node, Waiting
from headway.model.job import Job
from headway.settings.quantity import size_text


def explain(job: Job, jobs: Iterable[Job], nodes: Sequence[Node], max_running: int) -> Waiting:
    """`jobs`: all that are open."""
    others = [other for other in jobs if other.pk != job.pk and other.ended_ns is None and not other.spec.attached]
    running = [other for other in others if other.attempts]
    here = [other for other in running if other.spec.place == job.spec.place]
    ahead = tuple(other.id for other in _before(job, others))
    free = tuple(_left(node, here) for node in nodes)
    return Waiting("; ".join(_reasons(job, running, free, ahead, max_running)), ahead, free)


def _before(job: Job, others: Iterable[Job]) -> list[Job]:
    """Those of the queue that go first: a higher priority, or older."""
    mine = (-job.spec.priority, job.submitted_ns, job.pk)
    waiting = [other for other in others if not other.attempts and other.stop_requested_ns is None]
    place = [(-other.spec.priority, other.submitted_ns, other.pk, other) for other in waiting]
    return [other for *key, other in sorted(place, key=lambda one: one[:3]) if tuple(key) < mine]


def _left(node: Node, running: Sequence[Job]) -> Node:
    """What jobs have not asked for; a machine counts CPUs and memory only of those that ask."""
    cpus = None if node.cpus is None else max(0, node.cpus - sum(one.spec.cpus or 0 for one in running))
    used = sum(one.spec.memory_bytes or 0 for one in running)
    memory = None if node.memory_bytes is None else max(0, node.memory_bytes - used)
    gpus = max(0, node.gpus - sum(one.spec.gpus for one in running))
    return Node(node.name, cpus, memory, gpus, node.gpu_source, node.state_word)


def _reasons(
    job: Job, running: Sequence[Job], free: Sequence[Node], ahead: Sequence[str], max_running: int
) -> Iterable[str]:
    spec = job.spec
    if len(running) >= max_running:
        yield f"{_jobs(len(running), 'runs', 'run')}, and at most {max_running} may (max_running)"
    pairs = [
        ("GPUs", spec.gpus, sum(node.gpus for node in free)),
        ("CPUs", spec.cpus or 0, sum(node.cpus or 0 for node in free)),
    ]
    short = [f"it asks for {asked} {what}, and {left} are free" for what, asked, left in pairs if asked > left]
    memory = sum(node.memory_bytes or 0 for node in free)
    if (spec.memory_bytes or 0) > memory:
        short.append(f"it asks for {size_text(spec.memory_bytes or 0)} of memory, and {size_text(memory)} are free")
    yield from short
    if ahead and not short:
        yield f"{_jobs(len(ahead), 'is', 'are')} ahead of it in the queue"
    if not short and not ahead and len(running) < max_running:
        yield "it is about to start"


def _jobs(count: int, one: str, several: str) -> str:
    return f"1 job {one}" if count == 1 else f"{count} jobs {several}"
