"""Limits of accounts and QoS, holds and preemption on a real Slurm with accounting: what `hw why`
says of each.

Its name keeps it out of `make test`: a database takes its time to start. `make test-cluster` runs
it.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.engines.slurm import parse
from headway.engines.slurm.commands import Commands
from headway.engines.slurm.why import explain
from tests import needs
from tests.driver import Hw
from tests.rigs.slurm_rig import SlurmCluster, missing
from tests.waiting import wait_until

TRAIN = """
import os, time
while not os.path.exists(os.environ["UNTIL"]):
    time.sleep(0.1)
"""
QOS = ("small", "big", "ofpart")


@pytest.fixture(scope="module")
def site() -> Iterator[SlurmCluster]:
    if lacking := missing(accounting=True):
        needs.missing(
            f"no {lacking[0]} here; type: sudo apt-get install slurm-wlm munge slurmdbd mariadb-server"
        )
    folder = Path(tempfile.mkdtemp(prefix="hw-slurm-", dir="/tmp"))
    lines = ["PreemptType=preempt/qos", "PreemptMode=CANCEL", "Licenses=matlab:2"]
    try:
        with SlurmCluster(folder, accounting=True, lines=lines) as cluster:
            for name in QOS:
                cluster.account("add", "qos", name)
            user = cluster.command("id", "-un").stdout.strip()
            cluster.account("modify", "user", user, "set", f"qos=normal,{','.join(QOS)}")
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def clean(site: SlurmCluster) -> Iterator[None]:
    yield
    site.command("scancel", "--user", site.command("id", "-un").stdout.strip())
    site.command("scontrol", "update", "partitionname=short", "qos=")
    limits = [
        "GrpTRES=gres/gpu=-1,cpu=-1",
        "MaxTRESPerJob=gres/gpu=-1",
        "MaxJobs=-1",
        "MaxSubmitJobs=-1",
        "MaxWall=-1",
    ]
    site.account("modify", "user", "where", "account=ml", "set", *limits)
    for name in QOS:
        site.account(
            "modify", "qos", name, "set", "MaxTRESPerUser=gres/gpu=-1", "MaxWall=-1", "flags=-1"
        )
    site.wait_idle()


def batch(site: SlurmCluster, *options: str) -> str:
    done = site.command(
        "sbatch", "--parsable", "--chdir=/", "--output=/dev/null", *options, "--wrap", "sleep 600"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def why(site: SlurmCluster, number: str, word: str) -> str:
    """What is said of it once Slurm gives this word for it: the reason and the limits."""
    commands = Commands(site.env)

    def line() -> parse.JobLine | None:
        return parse.read_job(site.command("scontrol", "show", "job", "-o", number).stdout)

    wait_until(
        lambda: (found := line()) is not None and found.reason == word,
        60,
        f"{word} of job {number}",
    )
    found = line()
    assert found is not None
    nodes = parse.read_nodes(site.command("scontrol", "show", "node", "-d", "-o").stdout)
    told = explain.explain(found, nodes, commands)
    return "; ".join([told.reason, *told.limits])


@pytest.mark.parametrize(
    ("limit", "options", "word", "said"),
    [
        (
            "GrpTRES=gres/gpu=3",
            ["--gres=gpu:4"],
            "AssocGrpGRES",
            "allows 3 GPUs together (GrpTRES gres/gpu)",
        ),
        (
            "MaxTRESPerJob=gres/gpu=1",
            ["--gres=gpu:2"],
            "AssocMaxGRESPerJob",
            "allows 1 GPU for one job (MaxTRESPJ",
        ),
        (
            "MaxWall=2",
            ["-t", "30"],
            "AssocMaxWallDurationPerJobLimit",
            "allows 2 min for one job (MaxWallPJ), and it asks",
        ),
    ],
)
def test_a_limit_of_the_account_is_told(
    site: SlurmCluster, limit: str, options: list[str], word: str, said: str
) -> None:
    site.account("modify", "user", "where", "account=ml", "set", limit)
    assert said in why(site, batch(site, *options), word)


def test_a_limit_on_running_jobs_is_told_with_how_many_run(site: SlurmCluster) -> None:
    site.account("modify", "user", "where", "account=ml", "set", "MaxJobs=1")
    batch(site)
    assert "allows 1 job (MaxJobs); 1 job in use" in why(site, batch(site), "AssocMaxJobsLimit")


def test_of_two_qos_the_partitions_own_counts_unless_the_jobs_is_over_it(
    site: SlurmCluster,
) -> None:
    site.account("modify", "qos", "small", "set", "MaxWall=2")
    site.account("modify", "qos", "ofpart", "set", "MaxWall=1")
    site.command("scontrol", "update", "partitionname=short", "qos=ofpart")
    asked = ["-p", "short", "--qos=small", "-t", "4"]
    word = "QOSMaxWallDurationPerJobLimit"
    assert "QoS ofpart allows 1 min" in why(site, batch(site, *asked), word)
    site.account("modify", "qos", "small", "set", "flags=OverPartQOS")
    assert "QoS small allows 2 min" in why(site, batch(site, *asked), word)


def test_who_holds_a_job_is_told(site: SlurmCluster) -> None:
    own, other = batch(site, "--hold"), batch(site, "--begin=now+1hour")
    if os.getuid() == 0:
        site.command("scontrol", "hold", other)
        assert "held by an administrator" in why(site, other, "JobHeldAdmin")
    assert f"held by its owner; scontrol release {own}" in why(site, own, "JobHeldUser")


# -- through hw


@pytest.fixture
def hw(home: Path, tmp_path: Path, site: SlurmCluster) -> Iterator[Hw]:
    clusters = (
        "lab: {engine: slurm, partition: main}, low: {engine: slurm, partition: main, qos: small}"
    )
    (tmp_path / "headway.yaml").write_text(
        f"clusters: {{{clusters}, bad: {{engine: slurm, account: nobodys}}}}\n"
    )
    (tmp_path / "train.py").write_text(TRAIN)
    driver = Hw(home, tmp_path)
    driver.env |= {**site.env, "UNTIL": str(tmp_path / "until")}
    yield driver
    (tmp_path / "until").touch()
    driver("abort", "--state", "waiting,running", "--yes")
    wait_until(
        lambda: not driver.json("ls", "--state", "waiting,running,stopping"),
        60,
        "the end of all jobs",
    )
    driver("server", "stop")


def test_jobs_beyond_a_limit_on_queued_ones_wait_here_and_start_when_there_is_room(
    hw: Hw, site: SlurmCluster, tmp_path: Path
) -> None:
    site.account("modify", "user", "where", "account=ml", "set", "MaxSubmitJobs=1")
    first = hw.submit("-c", "lab", "python", "train.py")
    hw.wait_state(first, "running")
    second = hw.submit("-c", "lab", "python", "train.py")
    wait_until(
        lambda: "allows 1 queued job (MaxSubmitJobs)" in hw("why", second).stdout.decode(),
        60,
        "the limit",
    )
    assert hw.json("q", second)["state"] == "waiting"
    (tmp_path / "until").touch()
    assert hw.wait_ended(first)["state"] == "succeeded"
    assert (
        hw.wait_ended(second, 120)["state"] == "succeeded"
        and len(hw.json("q", second)["attempts"]) == 1
    )


def test_an_account_that_is_not_ones_own_is_refused_at_submit(hw: Hw) -> None:
    done = hw("-c", "bad", "submit", "python", "train.py")
    assert (
        done.returncode == 1
        and b"account 'nobodys' is not one of yours" in done.stderr
        and b"ml" in done.stderr
    )


def test_a_job_that_a_better_qos_puts_out_is_tried_again_with_its_cause(
    hw: Hw, site: SlurmCluster
) -> None:
    site.account("modify", "qos", "big", "set", "preempt=small")
    job = hw.submit("-c", "low", "-n", "4", "python", "train.py")
    hw.wait_state(job, "running")
    better = batch(site, "--qos=big", "-N4", "--gres=gpu:4")
    wait_until(lambda: len(hw.json("q", job)["attempts"]) > 1, 120, "a second attempt")
    assert hw.json("q", job)["attempts"][0]["cause"]["cause"] == "preempted"
    site.command("scancel", better)
    hw.wait_state(job, "running", timeout_s=120)
