"""A home is its owner's, and so is what steers jobs: settings and project files (A-2, A-6, B33)."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.home import ownership
from headway.home.launch import carrier_argv, server_argv
from headway.home.ownership import check_home, home_problem, make_private
from headway.model.errors import RefusedError
from headway.server.control import env_file
from headway.settings import layers, trust
from headway.settings.project import project_file
from tests.desk import HW

SOMEBODY = 54321


@pytest.fixture
def private(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A settings folder of the test's own, and a project beside it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("HEADWAY_CONFIG", raising=False)
    project = tmp_path / "project"
    project.mkdir(mode=0o755)
    yield project


def hw(*words: str, cwd: Path | None = None, umask: int = 0o022, **env: str) -> tuple[int, str]:
    done = subprocess.run(
        [*HW, *words],
        env={**os.environ, **env},
        cwd=cwd,
        umask=umask,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def as_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership.os, "getuid", lambda: SOMEBODY)


# -- the home


def test_a_home_that_others_can_write_is_refused_with_what_to_type(
    private: Path,
) -> None:
    for mode in (0o702, 0o1777, 0o777):
        private.chmod(mode)
        assert home_problem(private) is not None
    for words in (["ls"], ["run", "true"], ["server", "status"], ["watch"]):
        code, text = hw(*words, HEADWAY_HOME=str(private))
        assert code in (1, 125), (words, text)
        assert "can be written by others" in text and f"chmod 700 {private}" in text
    assert not (private / "headway.db").exists(), "no server was started in it"
    done = subprocess.run(
        server_argv(), env={**os.environ, "HEADWAY_HOME": str(private)}, timeout=60
    )
    assert done.returncode != 0 and not (private / "headway.db").exists()


def test_a_home_of_somebody_else_is_refused(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_somebody_else(monkeypatch)
    with pytest.raises(RefusedError, match="belongs to") as refused:
        check_home(private)
    assert "HEADWAY_HOME" in refused.value.hint and "chown" in refused.value.hint


@pytest.mark.parametrize("name", ["headway.db", "env", "spool", "database.json", "msgspec.py"])
def test_one_entry_that_others_can_write_is_refused(private: Path, name: str) -> None:
    (private / name).write_text('{"folder": "/nowhere"}')
    (private / name).chmod(0o666)
    with pytest.raises(RefusedError, match=name):
        check_home(private)
    (private / name).chmod(0o600)
    check_home(private)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a file away")
@pytest.mark.parametrize("name", ["headway.db", "headway.db-wal", "env", "anything"])
def test_one_entry_of_somebody_else_is_refused(private: Path, name: str) -> None:
    (private / name).write_text("")
    os.chown(private / name, SOMEBODY, SOMEBODY)
    with pytest.raises(RefusedError, match=f"{name} belongs to uid {SOMEBODY}"):
        check_home(private)


def test_an_output_folder_may_be_shared(private: Path) -> None:
    (private / "output").mkdir()
    (private / "output").chmod(0o777)
    assert home_problem(private) is None


def test_a_folder_above_that_anybody_can_write_is_refused_and_a_sticky_one_is_not(
    tmp_path: Path,
) -> None:
    above = tmp_path / "above"
    home = above / "home"
    make_private(home)
    above.chmod(0o777)
    with pytest.raises(RefusedError, match=f"chmod o-w {above}|anybody can write"):
        check_home(home)
    above.chmod(0o1777)
    check_home(home)


def test_the_owners_private_group_is_not_others(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private.chmod(0o770)
    monkeypatch.setattr(ownership, "_is_private_group", lambda gid: True)
    check_home(private)
    monkeypatch.setattr(ownership, "_is_private_group", lambda gid: False)
    with pytest.raises(RefusedError):
        check_home(private)


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_folders_are_made_for_their_owner_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    code, text = hw(
        "config", "set", "color", "never", umask=umask, HOME=str(tmp_path), HEADWAY_HOME="",
        XDG_DATA_HOME="", XDG_CONFIG_HOME="",
    )  # fmt: skip
    assert code == 0, text
    code, text = hw("ls", umask=umask, HOME=str(tmp_path), HEADWAY_HOME="", XDG_DATA_HOME="")
    assert code == 0, text
    hw("server", "stop", HOME=str(tmp_path), HEADWAY_HOME="", XDG_DATA_HOME="")
    for path in tmp_path.rglob("*"):
        found = path.lstat()
        if not stat.S_ISSOCK(found.st_mode):
            assert not found.st_mode & 0o077, (path, oct(found.st_mode))


def test_a_module_in_the_home_or_the_working_folder_is_not_imported(
    private: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "imported"
    work = tmp_path / "work"
    work.mkdir()
    for folder in (private, work):
        for name in ("msgspec", "uvicorn", "json", "logging", "headway"):
            (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w')\n")
    hw_command = Path(sys.executable).parent / "hw"
    assert hw_command.exists()
    for words in (["ls"], ["run", "true"], ["server", "stop"]):
        done = subprocess.run(
            [hw_command, *words],
            env={**os.environ, "HEADWAY_HOME": str(private)},
            cwd=work,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
    assert not mark.exists()
    assert "-P" in server_argv() and "-P" in carrier_argv("x")


def test_an_environment_file_of_others_is_not_used(private: Path) -> None:
    env_file.save(private / "env", "u1", env_file.Private({"A": "1"}, ["true"]))
    assert env_file.load(private / "env", "u1") is not None
    (private / "env" / "u1.json").chmod(0o666)
    assert env_file.load(private / "env", "u1") is None
    (private / "env" / "u1.json").rename(private / "env" / "real")
    (private / "env" / "real").chmod(0o600)
    (private / "env" / "u1.json").symlink_to("real")
    assert env_file.load(private / "env", "u1") is None


# -- files that steer jobs


def test_a_project_file_of_somebody_else_is_not_obeyed_until_it_is_trusted(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = elsewhere / "headway.yaml"
    path.write_text("color: never\n")
    inside = elsewhere / "below"
    inside.mkdir()
    assert project_file(inside) == path
    found = os.stat(path)
    monkeypatch.setattr(
        ownership, "file_problem", lambda p: f"{p} belongs to eve" if p == path else ""
    )
    monkeypatch.setattr(trust, "file_problem", ownership.file_problem)
    for folder in (elsewhere, inside):
        with pytest.raises(RefusedError, match="belongs to eve") as refused:
            layers.load(folder)
        assert f"hw trust {path}" in refused.value.hint
    trust.add(path)
    assert project_file(inside) == path
    assert stat.S_IMODE(trust.trusted_file().stat().st_mode) == 0o600
    assert trust.remove(path)
    with pytest.raises(RefusedError):
        project_file(inside)
    assert os.stat(path) == found


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a file away")
def test_a_foreign_folder_cannot_steer_jobs_of_who_stands_in_it(elsewhere: Path) -> None:
    path = elsewhere / "headway.yaml"
    path.write_text(
        "default_cluster: evil\nclusters: {evil: {engine: slurm, host: evil.example}}\n"
    )
    os.chown(elsewhere, SOMEBODY, SOMEBODY)
    os.chown(path, SOMEBODY, SOMEBODY)
    code, text = hw("run", "true", cwd=elsewhere)
    assert code == 125 and "belongs to" in text and "hw trust" in text
    code, text = hw("trust", str(path), "--json")
    assert code == 0 and json.loads(text)["trusted"] is True
    code, text = hw("config", "default_cluster", cwd=elsewhere)
    assert code == 0 and "evil" in text
    code, text = hw("trust", "remove", str(elsewhere))
    assert code == 0
    assert hw("config", "default_cluster", cwd=elsewhere)[0] != 0


def test_settings_that_others_can_write_are_not_obeyed(elsewhere: Path, tmp_path: Path) -> None:
    mine = tmp_path / "config" / "headway" / "config.yaml"
    make_private(mine.parent)
    mine.write_text("notify.command: touch /tmp/x\n")
    mine.chmod(0o666)
    with pytest.raises(RefusedError, match="can be written by others") as refused:
        layers.load(None)
    assert f"chmod go-w {mine}" in refused.value.hint
    mine.chmod(0o644)
    layers.load(None)
    project = elsewhere / "headway.yaml"
    project.write_text("color: never\n")
    project.chmod(0o666)
    with pytest.raises(RefusedError, match="can be written by others") as refused:
        layers.load(elsewhere)
    assert "hw trust" in refused.value.hint and "chmod go-w" in refused.value.hint
