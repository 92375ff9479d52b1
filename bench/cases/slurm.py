"""A real Slurm: submits beside a bare sbatch loop, an array as one sbatch, 1,000 jobs watched, the
end of a job seen.

Needs the programs of slurm-wlm and munge; without them the case says so and measures nothing.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.context import Context
from bench.home import HW, Home
from bench.measure import cpu_s_of, interleave, wait_until
from bench.measure import run as run_command
from bench.result import HEADWAY, Measure, Result
from headway.model.ids import new_uuid
from tests.rigs.slurm_rig import PROGRAMS, SlurmCluster, missing

JOBS, CONNECTIONS, WATCHED, WATCH_S, ENDS = 500, 4, 1_000, 60.0, 10
BARE = "bare sbatch"
SWEEP, ONE_BY_ONE = "one request", "a request each"
# `--test-only` submits nothing: it is a question, asked once for requests that are alike
_COUNTED = """\
#!/bin/sh
[ "$1" = --test-only ] && word=question || word={name}
echo $word >> {calls}
exec {real} "$@"
"""
_SPEC = {"cluster": "lab", "definition": {"engine": "slurm", "partition": "main"}, "name": "waits"}
_LOOP = """\
i=0
while [ "$i" -lt "$1" ]; do
  sbatch --parsable --no-requeue -o /dev/null "$2" > /dev/null || exit 1
  i=$((i+1))
done
"""


def run(context: Context) -> Iterator[Result]:
    if lacking := missing():
        context.say(f"      no {lacking[0]} here: type sudo apt-get install slurm-wlm munge")
        result = Result(
            f"submit of {JOBS} jobs to Slurm", "s", [Measure(HEADWAY, [], "no Slurm here")]
        )
        yield result
        return
    with _site(context) as site:
        yield from _submits(context, site)
        yield _array(context, site)
        yield from _watched(context, site)
        yield _ends(context, site)


class Site:
    """A cluster, a home that uses it, and a count of every call of Slurm's commands that the server
    makes.
    """

    def __init__(self, cluster: SlurmCluster, home: Home, folder: Path) -> None:
        self.cluster, self.home, self._calls, self.work = (
            cluster,
            home,
            folder / "calls",
            folder / "work",
        )
        self.work.mkdir()
        (self.work / "headway.yaml").write_text(
            "clusters: {lab: {engine: slurm, partition: main}}\n"
        )

    def submit(self, *words: str) -> bytes:
        """From a folder of its own: a snapshot is taken of it."""
        return self.home.hw("-c", "lab", "submit", *words, cwd=self.work, timeout_s=300)

    def calls(self, program: str) -> int:
        return self._calls.read_text().split().count(program) if self._calls.exists() else 0

    def hold(self, on: bool) -> None:
        """No job starts as long as the nodes are drained."""
        state = ["state=drain", "reason=bench"] if on else ["state=resume"]
        self.cluster.command("scontrol", "update", "nodename=node[1-4]", *state)

    def known(self) -> int:
        """Attempts that the server knows Slurm's id of."""
        return int(
            self.home.query("SELECT count(*) FROM attempts WHERE engine_id IS NOT NULL")[0][0]
        )

    def clear(self) -> None:
        self.home.hw("abort", "--state", "waiting,running", "--yes", timeout_s=300, ok=(0, 1))
        self.cluster.command("scancel", "--me")
        wait_until(self._is_empty, 300, "jobs do not end", pause_s=0.2)

    def _is_empty(self) -> bool:
        """No job is open, and none is left to be tidied up, which would count for what is measured
        next.
        """
        jobs = "SELECT 1 FROM jobs WHERE ended_ns IS NULL AND deleted_ns IS NULL"
        tokens = "SELECT 1 FROM tokens WHERE ended_ns IS NULL AND task IS NOT NULL"
        return not self.home.query(f"{jobs} UNION {tokens} LIMIT 1")


@contextmanager
def _site(context: Context) -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="hwb-slurm-"))
    calls, programs = folder / "calls", folder / "bin"
    try:
        programs.mkdir()
        for name in [name for name in PROGRAMS if name not in ("munged", "slurmctld", "slurmd")]:
            (programs / name).write_text(
                _COUNTED.format(name=name, calls=calls, real=shutil.which(name))
            )
            (programs / name).chmod(0o755)
        with SlurmCluster(folder) as cluster, context.home(server=False) as home:
            home.env |= {**cluster.env, "PATH": f"{programs}:{home.env['PATH']}"}
            home.start()
            try:
                yield Site(cluster, home, folder)
            finally:
                cluster.command("scancel", "--me")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _submits(context: Context, site: Site) -> Iterator[Result]:
    """Until Slurm has all of them, and the server knows each one's number."""
    count = context.size(JOBS, 40)
    site.hold(True)
    script = site.home.folder / "bare.sh"
    script.write_text("#!/bin/sh\n#SBATCH --partition=main\n#SBATCH --time=10\nsleep 1\n")
    cpu: dict[str, list[float]] = {SWEEP: [], ONE_BY_ONE: []}

    def bare(_: int) -> float:
        words = ["sh", "-c", _LOOP, "sh", str(count), str(script)]
        took = run_command(words, site.home.env, site.home.folder, timeout_s=600)
        site.cluster.command("scancel", "--me")
        return took.wall_s

    def ours(post: Callable[[Home, int], None], who: str, _: int) -> float:
        assert site.home.server is not None
        before, begun_s, cpu_s = site.known(), time.perf_counter(), cpu_s_of(site.home.server.pid)
        post(site.home, count)
        wait_until(lambda: site.known() >= before + count, 600, "not every job is with Slurm")
        took_s = time.perf_counter() - begun_s
        cpu[who].append(1000 * (cpu_s_of(site.home.server.pid) - cpu_s) / count)
        site.clear()
        return took_s

    ways = {SWEEP: partial(ours, _sweep, SWEEP), ONE_BY_ONE: partial(ours, _post, ONE_BY_ONE)}
    took = interleave(context.size(5, 1), {**ways, BARE: bare})
    for how in ways:
        measures = [Measure(HEADWAY, took[how]), Measure(BARE, took[BARE])]
        result = Result(f"submit of {count} jobs to Slurm, {how}", "s", measures)
        result.ratio_at_most(BARE, 1.2, "at most 1.2 × a bare sbatch loop")
        result.notes.append(
            "Each job is an sbatch; until Slurm has the last one. No job starts meanwhile."
        )
        yield result
        yield Result(
            f"CPU of the server for a job submitted to Slurm, {how}",
            "ms",
            [Measure(HEADWAY, cpu[how])],
        )


def _sweep(home: Home, count: int) -> None:
    """As one sweep whose jobs ask for different times, so each is an sbatch of its own."""
    spec = {**_SPEC, "command": ["sleep", "1"], "cwd": str(home.folder)}
    jobs = [{"index": k, "spec": {"max_duration_s": 300.0 + k}, "env": {}} for k in range(count)]
    with home.client() as client:
        body = {"uuid": new_uuid(), "spec": spec, "env": {"PATH": home.env["PATH"]}, "jobs": jobs}
        answer = client.request("POST", "/api/arrays", json=body)
    if answer.status >= 300:
        raise RuntimeError(f"submit answered {answer.status}: {answer.body[:300]!r}")


def _post(home: Home, count: int) -> None:
    """From several connections at once, as several shells of a person would."""
    shares = [count // CONNECTIONS + (k < count % CONNECTIONS) for k in range(CONNECTIONS)]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for done in [pool.submit(_post_some, home, share) for share in shares]:
            done.result()


def _post_some(home: Home, count: int) -> None:
    spec = {**_SPEC, "command": ["sleep", "1"], "cwd": str(home.folder), "max_duration_s": 300.0}
    with home.client() as client:
        home.post_jobs(client, spec, count)


def _array(context: Context, site: Site) -> Result:
    count = context.size(JOBS, 40)
    before, calls, asked = site.known(), site.calls("sbatch"), site.calls("question")
    begun_s = time.perf_counter()
    _submit_array(site, count)
    wait_until(lambda: site.known() >= before + count, 600, "not every job is with Slurm")
    took_s = time.perf_counter() - begun_s
    result = Result(
        f"submit of {count} jobs to Slurm in one array", "s", [Measure(HEADWAY, [took_s])]
    )
    result.at_most("one sbatch", site.calls("sbatch") - calls, 1, "sbatch")
    result.notes.append(f"{site.calls('question') - asked} sbatch --test-only before it.")
    site.clear()
    return result


def _submit_array(site: Site, count: int) -> None:
    site.submit("--array", str(count), "--max-duration", "10m", "sleep", "600")


def _watched(context: Context, site: Site) -> Iterator[Result]:
    """Waiting jobs cost the least that they can; then some of them run, with their agents."""
    count, watch_s = context.size(WATCHED, 60), context.size(int(WATCH_S), 20)
    before = site.known()
    _submit_array(site, count)
    wait_until(lambda: site.known() >= before + count, 600, "not every job is with Slurm")
    assert site.home.server is not None
    time.sleep(10)  # the interval grows while nothing changes
    squeues, asked, cpu_s = (
        site.calls("squeue"),
        site.calls("scontrol"),
        cpu_s_of(site.home.server.pid),
    )
    time.sleep(watch_s)
    used = 100 * (cpu_s_of(site.home.server.pid) - cpu_s) / watch_s
    calls = site.calls("squeue") - squeues
    result = Result(
        f"CPU of the server while {count:,} jobs wait on Slurm", "%", [Measure(HEADWAY, [used])]
    )
    result.at_most("under 5 % of a core", used, 5.0, "%")
    result.notes.append(
        f"{calls} squeue and {site.calls('scontrol') - asked} scontrol (nodes) in {watch_s:g} s."
    )
    yield result
    asked_for = Result(
        f"squeue in {watch_s:g} s for {count:,} jobs", "calls", [Measure(HEADWAY, [calls])]
    )
    asked_for.at_most("one each interval: at most one a second", calls, watch_s, "calls")
    yield asked_for
    site.clear()


def _ends(context: Context, site: Site) -> Result:
    """From the moment at which the command ends, by its own clock, until `hw q` says that it has
    succeeded.
    """
    site.hold(False)
    took = []
    for _ in range(context.size(ENDS, 3)):
        body = f"sleep 1; date +%s.%N > {site.home.folder}/ended"
        job = site.submit("sh", "-c", body).decode().split()[0]
        wait_until(partial(_has_succeeded, site.home, job), 60, "it does not end", pause_s=0.01)
        took.append(time.time() - float((site.home.folder / "ended").read_text()))
    result = Result(
        "from the end of a command on Slurm to succeeded in hw q", "s", [Measure(HEADWAY, took)]
    )
    result.at_most("under 2 s", max(took), 2.0, "s")
    return result


def _has_succeeded(home: Home, job: str) -> bool:
    said = run_command([HW, "--json", "q", job], home.env, home.folder).output
    return bool(json.loads(said)["state"] == "succeeded")
