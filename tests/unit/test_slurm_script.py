"""The batch script (engines/slurm/script.py)."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from headway.engines.protocol import Plan, PlannedTask
from headway.engines.slurm import script
from headway.model.errors import UsageError

KEY = "01234567-89ab-cdef-0123-456789abcdef-1"


def plan(nodes: int = 2, **changes: Any) -> Plan:
    tasks = tuple(
        PlannedTask(f"worker-{k}", ("python", "t.py"), "/w", 4, 4 * k, 4, node_rank=k)
        for k in range(nodes)
    )
    values: dict[str, Any] = {"max_duration_s": 3600.0, "memory_bytes": 64 << 30, **changes}
    return Plan("slurm", "lab", "digits-7f3c2", KEY[:-2], 1, tasks, 4 * nodes, **values)


def render(asked: Plan | None = None, **options: Any) -> str:
    return script.render(
        asked or plan(),
        KEY,
        options,
        Path("/shared/spool"),
        ["/usr/bin/python3", "-I", "-c", "it's"],
    )


def directives(text: str) -> dict[str, str]:
    lines = [
        line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")
    ]
    return {line.partition("=")[0]: line.partition("=")[2] for line in lines}


def test_one_task_per_node_with_its_gpus_memory_and_time() -> None:
    found = directives(render(partition="gpu", account="lab1", qos="high", constraint="a100&ib"))
    assert (found["--nodes"], found["--ntasks-per-node"], found["--gres"]) == ("2", "1", "gpu:4")
    assert found["--mem"] == f"{32 << 10}M"  # of each node
    # ours, the grace time and a margin: the shim ends it first
    assert found["--time"] == "0-01:02:15"
    assert (found["--partition"], found["--account"], found["--qos"]) == ("gpu", "lab1", "high")
    assert found["--constraint"] == "a100&ib" and found["--comment"] == f"headway:{KEY}"


def test_the_script_is_one_that_a_shell_reads() -> None:
    text = render()
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0
    assert "worker-0 worker-1" in text


@pytest.mark.parametrize(
    "value", ["a\n#SBATCH --uid=0", "a b", "$(id)", "`id`", "a;b", "a'b", 'a"b']
)
def test_no_value_can_become_a_directive_or_a_command(value: str) -> None:
    with pytest.raises(UsageError, match="partition"):
        render(partition=value)


def test_a_name_is_made_safe() -> None:
    text = render(plan())
    assert "--job-name=digits-7f3c2" in text
    assert script.safe_name("a b\n#SBATCH --uid=0") == "a_b__SBATCH_--uid_0"


@pytest.mark.parametrize("line", ["--exclusive", "--nice=100", "--switches=1@10:00"])
def test_further_options_are_passed_on(line: str) -> None:
    assert f"#SBATCH {line}\n" in render(extra=[line])


@pytest.mark.parametrize("line", ["exclusive", "--wrap=rm -rf /", "--x\n#SBATCH --y", 7, "-N4"])
def test_what_is_not_an_option_is_refused(line: object) -> None:
    with pytest.raises(UsageError):
        render(extra=[line])


@pytest.mark.parametrize("folder", ["/a b", "/a%j", "/a\nb", "/a'b"])
def test_a_folder_that_a_directive_cannot_hold_is_refused(folder: str) -> None:
    with pytest.raises(UsageError):
        script.render(plan(), KEY, {}, Path(folder), ["python3"])


@pytest.mark.parametrize(
    ("seconds", "text"), [(1, "0-00:00:01"), (90061.2, "1-01:01:02"), (59.5, "0-00:01:00")]
)
def test_times_are_in_slurms_own_form(seconds: float, text: str) -> None:
    assert script.duration(seconds) == text


@pytest.mark.parametrize(
    "line", ["--comment=x", "--array=0-3", "--arr=0-3", "--output=/tmp/x", "--requeue", "--wait"]
)
def test_what_headway_sets_itself_is_not_taken_from_further_options(line: str) -> None:
    with pytest.raises(UsageError, match="is set by Headway itself"):
        render(extra=[line])
