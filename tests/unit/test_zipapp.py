"""The agent as one file: it runs where there is no Headway, and the same sources give the same
bytes.
"""

import json
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headway.engines.spool.task_folder import has_end
from headway.home import zipapp
from headway.model.ids import new_uuid
from tests import processes
from tests.waiting import wait_until


def test_the_same_sources_give_the_same_file(tmp_path: Path) -> None:
    assert zipapp.build() == zipapp.build()
    first = zipapp.cached(tmp_path / "agent")
    assert zipapp.cached(tmp_path / "agent") == first and first.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in first.parent.iterdir()] == [first.name]


def test_it_holds_only_what_needs_a_standard_library() -> None:
    import io

    names = zipfile.ZipFile(io.BytesIO(zipapp.build())).namelist()
    parts = {name.split("/")[1] for name in names if name.count("/") > 1}
    assert parts == {*zipapp.PARTS, "engines"} and set(zipapp.FILES) <= {
        name.removeprefix("headway/") for name in names
    }
    assert sum(name.startswith("headway/engines/") for name in names) == len(zipapp.FILES)
    assert "headway/client/bootstrap/sitecustomize.py" in names


def test_a_task_runs_from_it_in_a_folder_without_headway(tmp_path: Path) -> None:
    """The program runs, its exit is written down, and `import headway` works in it."""
    app = zipapp.cached(tmp_path / "agent")
    folder = tmp_path / "spool"
    folder.mkdir()
    code = "import headway, sys; print(headway.__file__); headway.log({'loss': 1.0}, step=1); sys.exit(7)"
    task = {
        "version": 1, "uuid": new_uuid(), "id": "job-1", "attempt": 1, "task": "worker-0", "home": str(tmp_path),
        "socket": str(tmp_path / "none.sock"), "token": "a.b", "argv": [sys.executable, "-c", code],
        "cwd": str(tmp_path), "inherit_env": True,
    }  # fmt: skip
    (folder / "task.json").write_text(json.dumps(task))
    (folder / "env.json").write_text(json.dumps({"WORD": "x"}))
    plain = {"PATH": os.environ["PATH"], "HEADWAY_HOME": str(tmp_path)}
    words = [os.path.realpath(sys.executable), "-I", "-S", str(app), "shim", str(folder)]
    child = subprocess.Popen(words, cwd=tmp_path, env=plain, start_new_session=True)
    try:
        wait_until(lambda: has_end(folder), what="the end of the task")
    finally:
        child.kill()
        child.wait(30)
        # its shipper would look for a server a while yet
        processes.end(list(processes.of_home(tmp_path)))
    assert (folder / "stdout-0").read_text().startswith(str(app))
    assert (
        b'"exit_code": 7' in (folder / "shim").read_bytes()
        or b'"exit_code":7' in (folder / "shim").read_bytes()
    )


def test_a_python_that_is_too_old_says_so(tmp_path: Path) -> None:
    """Its first lines must be understood by any Python 3, so they are run with another version
    number.
    """
    main = zipfile.ZipFile(zipapp.cached(tmp_path)).read("__main__.py").decode()
    code = f"import sys; sys.version_info = (3, 8, 1); exec({main!r})"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "needs Python 3.9 or newer, this is 3.8" in done.stderr


def test_many_threads_may_make_the_file_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(lambda _: zipapp.cached(tmp_path / "agent"), range(8)))
    assert [path.name for path in (tmp_path / "agent").iterdir()] == [path.name for path in paths]
