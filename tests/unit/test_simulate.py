"""`hw simulate` where there are no containers: it says so, and gives the job a clean environment
(capability 45).
"""

import shutil
from pathlib import Path

import pytest

from tests.driver import Hw


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    (tmp_path / "headway.yaml").write_text(
        "clusters: {docker: {engine: docker, command: [no-docker]}, podman: {engine: podman, command: [no-podman]}}\n"
    )
    return Hw(home, tmp_path)


def test_without_a_container_engine_it_says_so_and_runs_in_a_clean_environment(hw: Hw) -> None:
    (hw.cwd / "job.yaml").write_text(
        "command: [sh, -c, 'echo $MINE-$LEFT_OUT-$TYPED']\nenv: {MINE: a}\nimage: x\n"
    )
    done = hw("simulate", "--env", "TYPED=c", "job.yaml", env={"LEFT_OUT": "b"})
    assert (done.returncode, done.stdout) == (0, b"a--c\n"), done.stderr.decode()
    assert (
        b"there is no program no-docker here" in done.stderr and b"clean environment" in done.stderr
    )


def test_a_cluster_without_containers_is_no_simulation(hw: Hw) -> None:
    done = hw("-c", "here", "simulate", "true")
    assert done.returncode == 2 and b"a cluster with containers" in done.stderr


@pytest.mark.cap(45, 48)
def test_what_a_job_would_send_stays_here(hw: Hw, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    folders = "folders: {data: {from: there, mode: ro}, out: {to: kept}}\n"
    (hw.cwd / "job.yaml").write_text(f"command: [sh, -c, 'ls -d data; echo x > out/y']\n{folders}")
    done = hw("simulate", "job.yaml")
    assert (done.returncode, done.stdout) == (0, b"data\n"), done.stderr.decode()
    kept = Path(done.stderr.decode().split("./out goes to ")[1].split()[0])
    assert (kept / "out" / "y").read_text() == "x\n" and not (tmp_path / "kept").exists()
    shutil.rmtree(kept)


def test_roles_run_together_also_without_containers(hw: Hw) -> None:
    one = "while [ ! -e there ]; do sleep 0.05; done; echo met $WORLD_SIZE"
    roles = f"roles:\n  ps: {{command: [sh, -c, '{one}']}}\n  worker: {{command: touch there, gpus: 8}}\n"
    (hw.cwd / "job.yaml").write_text(roles)
    done = hw("simulate", "job.yaml")
    assert done.returncode == 0 and b"met 2" in done.stdout, done.stderr.decode()
    assert b"left out here, of worker: gpus 8" in done.stderr
