"""Job files as a person uses them: a real command, a real server."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.driver import Hw

ROOT = Path(__file__).resolve().parents[2]
TRAIN = "import os, sys; print(sys.argv[1:], os.environ['RANK'], os.environ.get('MODE'), os.environ.get('MY_KEY'))\n"
JOB = """\
name: small
command: python3 train.py --lr {{ lr }}
parameters: {lr: 0.1}
processes: 2
env: {MODE: fast}
tags: [a]
smoke: {arguments: [--tiny], processes: 1}
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    found = Hw(home, tmp_path)
    found.script(TRAIN)
    (tmp_path / "job.yaml").write_text(JOB)
    return found


def test_a_job_file_runs_and_options_stand_above_it(hw: Hw) -> None:
    done = hw("run", "--set", "lr=0.5", "--tag", "b", "--env", "MODE=slow", "-n", "1", "job.yaml")
    assert (done.returncode, done.stdout) == (0, b"['--lr', '0.5'] 0 slow None\n")
    (job,) = hw.json("ls")
    assert (job["name"], job["tags"], job["processes"]) == ("small", ["a", "b"], 1)
    done = hw("run", "--smoke", "job.yaml")
    assert done.stdout == b"['--lr', '0.1', '--tiny'] 0 fast None\n"


def test_a_job_file_gives_the_number_of_processes(hw: Hw) -> None:
    done = hw("run", "job.yaml")
    assert done.returncode == 0
    assert sorted(line.split(b" \xe2\x94\x82 ")[1] for line in done.stdout.splitlines()) == [
        b"['--lr', '0.1'] 0 fast None", b"['--lr', '0.1'] 1 fast None",
    ]  # fmt: skip


def test_the_project_may_hold_a_job(hw: Hw, tmp_path: Path) -> None:
    text = "experiment: e1\njob:\n" + "".join(f"  {line}\n" for line in JOB.splitlines())
    (tmp_path / "headway.yaml").write_text(text)
    below = tmp_path / "deep"
    below.mkdir()
    hw.cwd = below
    done = hw("run", "-n", "1")
    assert (done.returncode, done.stdout) == (0, b"['--lr', '0.1'] 0 fast None\n")
    (job,) = hw.json("ls")
    assert (job["experiment"], job["cwd"]) == ("e1", str(tmp_path))


def test_a_dry_run_prints_what_the_engine_would_get_and_does_nothing(
    hw: Hw, tmp_path: Path
) -> None:
    env = {"MY_KEY": "a-secret-value"}
    (tmp_path / "job.yaml").write_text(JOB + "secrets: [MY_KEY]\n")
    done = hw("submit", "--dry-run", "job.yaml", env=env)
    text = done.stdout.decode()
    assert done.returncode == 0
    assert f"  cd {tmp_path}\n  python3 train.py --lr 0.1\n" in text
    assert (
        "ranks 0-1 of 2" in text and "env MODE=fast\n" in text and "env MY_KEY=********\n" in text
    )
    assert b"a-secret-value" not in done.stdout
    answer = json.loads(hw("submit", "--dry-run", "--json", "job.yaml", env=env).stdout)
    assert answer["plan"]["tasks"][0]["argv"] == ["python3", "train.py", "--lr", "0.1"]
    assert hw("run", "--dry-run", "true").returncode == 0
    assert hw.json("ls") == []


@pytest.mark.cap(52)
def test_a_named_secret_reaches_the_job_and_is_masked(hw: Hw, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB + "secrets: [MY_KEY]\n")
    done = hw("submit", "job.yaml")
    assert (done.returncode, b"the secret MY_KEY was found nowhere" in done.stderr) == (2, True)
    done = hw("run", "-n", "1", "job.yaml", env={"MY_KEY": "a-secret-value"})
    assert done.stdout == b"['--lr', '0.1'] 0 fast **************\n"
    assert "a-secret-value" not in json.dumps(hw.json("q", hw.json("ls")[0]["id"]))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bad.yaml"], 'bad.yaml, line 2: unknown key "gpu_pernode"; did you mean "gpu_per_node"?'),
        (["python3", "trian.py"], "did you mean train.py?"),
        (["no-such-program"], "was not found in PATH"),
        (["-c", "heer", "true"], "there is no cluster 'heer'"),
        (["uneven.yaml"], "6 GPUs do not divide into nodes of 4 (cluster here)"),
        (["--memory", "900TiB", "true"], "of memory"),
        (["--set", "a=1", "true"], "--set is for a job file"),
        (["options.yaml"], "the cluster here (local) takes no `options`"),
        (["folder.yaml"], "comes from /no/such/data, which does not exist"),
    ],
)
def test_what_can_be_known_at_submit_fails_there_and_leaves_no_job(
    hw: Hw, tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "bad.yaml").write_text("command: x\ngpu_pernode: 4\n")
    (tmp_path / "uneven.yaml").write_text("command: 'true'\ngpus: 6\ngpu_per_node: 4\n")
    (tmp_path / "options.yaml").write_text("command: 'true'\noptions: {partition: gpu}\n")
    (tmp_path / "folder.yaml").write_text(
        "command: 'true'\nfolders: {data: {from: /no/such/data}}\n"
    )
    done = hw("submit", *words)
    assert done.returncode in (1, 2)
    assert said in done.stderr.decode()
    assert hw.json("ls") == []


def test_a_followed_command_that_is_missing_still_exits_as_a_shell_does(hw: Hw) -> None:
    assert hw("run", "no-such-program").returncode == 127


def test_the_schema_can_be_printed(hw: Hw) -> None:
    assert json.loads(hw("config", "--job-schema").stdout)["title"] == "Headway job file"


@pytest.mark.parametrize(
    "name", sorted(path.name for path in (ROOT / "examples" / "jobs").glob("*.yaml"))
)
def test_every_example_runs_as_it_stands(hw: Hw, name: str) -> None:
    hw.env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{hw.env['PATH']}"
    path = str(ROOT / "examples" / "jobs" / name)
    smoke = ["--smoke"] if "smoke:" in Path(path).read_text() else []
    done = hw("run", *smoke, path, timeout_s=120)
    assert done.returncode == 0, done.stderr.decode()


def test_an_image_where_nothing_runs_containers_is_told_and_refused_where_it_was_typed(
    hw: Hw, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(JOB + "image: pytorch:2.13\n")
    done = hw("run", "-n", "1", "job.yaml")
    assert done.returncode == 0
    assert (
        b"hw: the image pytorch:2.13 is not used: the cluster here (local) runs no containers"
        in done.stderr
    )
    done = hw("submit", "--image", "other:1", "job.yaml")
    assert (
        done.returncode == 2
        and b"--image other:1: the cluster here (local) runs no containers" in done.stderr
    )
