"""What stays behind: sockets and folders of servers that are gone, and words of jobs that wait (A-15)."""

import os
import shutil
import socket
from pathlib import Path

from headway.home.paths import AGENT_SOCKET, socket_path
from headway.model.engine_words import NOT_NOW, queue_word
from headway.server.serve import sweep_runtime
from tests.driver import Hw
from tests.waiting import wait_until

OLD = (1_600_000_000, 1_600_000_000)


def test_a_server_leaves_no_socket_and_no_folder(home: Path, tmp_path: Path) -> None:
    hw = Hw(home, tmp_path)
    assert hw("run", "true").returncode == 0
    path = socket_path(home)
    assert path.exists() and path.with_suffix("").is_dir()
    assert hw("server", "stop").returncode == 0
    wait_until(lambda: not path.exists() and not path.with_suffix("").exists(), what="nothing left")


def test_what_killed_servers_left_goes_after_a_while_and_what_is_in_use_stays(
    tmp_path: Path,
) -> None:
    own = tmp_path / f"{'0' * 16}.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / f"{'a' * 16}.sock"))
        listening.listen(1)
        (tmp_path / ("a" * 16)).mkdir()
        for name in ("b" * 16, "c" * 16, "0" * 16, "d" * 16):
            (tmp_path / name).mkdir()
        (tmp_path / ("b" * 16) / AGENT_SOCKET).touch()
        (tmp_path / ("d" * 16) / "something of a person").touch()
        (tmp_path / f"{'b' * 16}.sock").touch()
        (tmp_path / "other").touch()
        young = {"c" * 16}
        for path in tmp_path.iterdir():
            if path.name not in young:
                os.utime(path, OLD)
        sweep_runtime(own)
        sweep_runtime(own)  # a folder goes once its socket is gone
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"a" * 16, f"{'a' * 16}.sock", "c" * 16, "0" * 16, "d" * 16, "other"}


def test_a_job_that_cannot_be_started_now_says_why_where_one_looks(
    home: Path, tmp_path: Path
) -> None:
    """No inodes, no room, a folder that is none: it waits, is tried again, and is not `in the queue`."""
    hw = Hw(home, tmp_path)
    assert hw("ls").returncode == 0
    shutil.rmtree(home / "spool", ignore_errors=True)
    (home / "spool").touch()
    job = hw.submit("true")
    wait_until(lambda: b"Not a directory" in hw("q", job).stdout, what="why it waits")
    assert b"Not a directory" in hw("ls", "--csv").stdout or b"not yet" in hw("ls").stdout
    (home / "spool").unlink()
    hw.wait_state(job, "succeeded")


def test_the_words_of_schedulers_stay_as_they_were() -> None:
    assert queue_word("PENDING (Resources)") == "Resources"
    assert queue_word(f"{NOT_NOW}no room for more files (inodes): 3 free") == (
        f"{NOT_NOW}no room for more files (inodes): 3 free"
    )
