"""Settings come in layers, and each value knows where it came from (capability 50, 52; B25, B33)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.model.errors import RefusedError, UsageError
from headway.settings.layers import MASK, load
from headway.settings.project import project_file
from headway.settings.schema import SCOPES, SETTINGS, cores


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty settings folder of its own, and no variable of ours in the environment."""
    for name in list(os.environ):
        if name.startswith("HEADWAY_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "config" / "headway"
    folder.mkdir(parents=True)
    return folder


def write_private(config: Path, text: str, mode: int = 0o600) -> None:
    (config / "private.yaml").write_text(text)
    (config / "private.yaml").chmod(mode)


def test_without_files_every_setting_is_built_in(config: Path, tmp_path: Path) -> None:
    settings = load(tmp_path, {})
    assert {settings.origin(name) for name in SETTINGS} == {"built-in"}
    assert settings.get("max_running") == cores()
    assert settings.get("default_cluster") == "here"
    assert settings.get("gpus") is None


def test_each_layer_wins_over_the_one_below(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    inner = project / "a" / "b"
    inner.mkdir(parents=True)
    seen = [load(inner, {})]
    (config / "config.yaml").write_text("grace_s: 1s\n")
    seen.append(load(inner, {}))
    (project / "headway.yaml").write_text("# ours\ngrace_s: 2s\n")
    seen.append(load(inner, {}))
    write_private(config, "grace_s: 3s\n")
    seen.append(load(inner, {}))
    monkeypatch.setenv("HEADWAY_GRACE_S", "4s")
    seen.append(load(inner, {}))
    seen.append(load(inner, {"grace_s": "5s"}))
    assert [settings.get("grace_s") for settings in seen] == [15, 1, 2, 3, 4, 5]
    assert [settings.origin("grace_s") for settings in seen] == [
        "built-in",
        f"{config}/config.yaml, line 1",
        f"{project}/headway.yaml, line 2",
        f"{config}/private.yaml, line 1",
        "HEADWAY_GRACE_S",
        "command line",
    ]


def test_every_setting_takes_its_default_from_each_kind_of_layer(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `hw config` prints can be written into a file or a variable as it stands."""
    lines = []
    for name, setting in SETTINGS.items():
        value = setting.default_value()
        text = value if isinstance(value, str) else json.dumps(value)
        lines.append(f"{name}: {text}")
        monkeypatch.setenv(setting.variable, ", ".join(value) if isinstance(value, list) else text)
    (config / "config.yaml").write_text("\n".join(lines))
    settings = load(tmp_path, {})
    for name, setting in SETTINGS.items():
        assert settings.get(name) == setting.default_value(), name
        assert settings.origin(name) == setting.variable


def test_headway_config_replaces_the_project_file(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "headway.yaml").write_text("color: never\n")
    other = tmp_path / "other.yaml"
    other.write_text("experiment: voc20\n")
    monkeypatch.setenv("HEADWAY_CONFIG", str(other))
    settings = load(tmp_path, {})
    assert (settings.get("color"), settings.get("experiment")) == ("auto", "voc20")
    assert load(None, {}).get("experiment") == "voc20"
    monkeypatch.setenv("HEADWAY_CONFIG", "/dev/null")
    assert load(tmp_path, {}).get("experiment") is None
    monkeypatch.setenv("HEADWAY_CONFIG", str(tmp_path / "absent.yaml"))
    with pytest.raises(UsageError, match=r"absent\.yaml, which does not exist"):
        load(tmp_path, {})


def test_an_unknown_key_names_file_line_and_the_nearest_valid_one(
    config: Path, tmp_path: Path
) -> None:
    (tmp_path / "headway.yaml").write_text("color: never\nmax_runing: 3\n")
    with pytest.raises(UsageError) as error:
        load(tmp_path, {})
    assert (
        error.value.message
        == f'{tmp_path}/headway.yaml, line 2: unknown key "max_runing"; did you mean "max_running"?'
    )
    assert error.value.exit_code == 2


def test_an_unknown_override_names_the_nearest_valid_one(config: Path) -> None:
    with pytest.raises(UsageError, match='unknown setting "colour"; did you mean "color"'):
        load(None, {"colour": "never"})


def test_a_misspelt_variable_is_told_and_a_foreign_one_is_not_ours(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_SOMETHING_ELSE", "1")
    monkeypatch.setenv("HEADWAY_HOME", "/nowhere")
    load(None, {})
    monkeypatch.setenv("HEADWAY_MAX_RUNING", "1")
    with pytest.raises(
        UsageError, match='unknown variable HEADWAY_MAX_RUNING; did you mean "HEADWAY_MAX_RUNNING"'
    ):
        load(None, {})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("grace_s: 3 parsecs", "grace_s: \"3 parsecs\" has an unknown unit"),
        ("grace_s: -1", "grace_s: -1 must not be negative"),
        ("max_running: 0", "max_running: 0 is too small"),
        ("max_running: no", 'max_running: "no" is not a whole number'),
        ("gpus: 1.5", "gpus: 1.5 is not a whole number"),
        ("port: 70000", "port: 70000 is too large"),
        ("log_bytes_max: 10G", "log_bytes_max: \"10G\" is ambiguous"),
        ("spool_bytes_max: 1", "spool_bytes_max: 1 is only 1 bytes"),
        ("color: neverr", "color: 'neverr' is not one of auto, always, never; did you mean \"never\"?"),
        ("color: null", "color: has no value"),
        ("experiment: ../x", "experiment: the name '../x' is not allowed"),
        ("experiment: 7", "experiment: 7 is not a name"),
        ("secret_names: 7", "secret_names: 7 is not a list of names"),
        ("secret_names: [A=B]", "secret_names: 'A=B' is not the name"),
        ("port: [1]", "port: a list stands where one value should"),
        ("grace_s: {a: 1}", "grace_s: a mapping stands where one value should"),
    ],
)  # fmt: skip
def test_a_wrong_value_names_file_line_and_field(
    config: Path, tmp_path: Path, line: str, problem: str
) -> None:
    (tmp_path / "headway.yaml").write_text(f"\n{line}\n")
    with pytest.raises(UsageError) as error:
        load(tmp_path, {})
    assert error.value.message.startswith(f"{tmp_path}/headway.yaml, line 2: {problem}")


def test_a_file_that_is_a_list_is_refused(config: Path, tmp_path: Path) -> None:
    (tmp_path / "headway.yaml").write_text("- a\n")
    with pytest.raises(UsageError, match="a settings file is a mapping"):
        load(tmp_path, {})


def test_names_may_be_a_list_or_one_line(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_SECRET_NAMES", "A_KEY, B_KEY,")
    assert load(None, {}).get("secret_names") == ["A_KEY", "B_KEY"]
    assert load(None, {"secret_names": ["C"]}).get("secret_names") == ["C"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_private_file_open_to_others_is_not_read(config: Path, mode: int) -> None:
    write_private(config, "grace_s: 3\n", mode)
    with pytest.raises(UsageError) as error:
        load(None, {})
    assert "was not read" in error.value.message
    assert error.value.hint == f"chmod 600 {config}/private.yaml"


def test_secrets_come_from_the_private_file_and_are_shown_masked(config: Path) -> None:
    write_private(config, "secrets:\n  WANDB_API_KEY: canary-7c1f\n")
    settings = load(None, {})
    assert settings.secrets() == {"WANDB_API_KEY": "canary-7c1f"}
    assert ("secrets.WANDB_API_KEY", MASK, "private.yaml") in list(settings.rows())
    assert "canary" not in str(list(settings.rows()))


def test_secrets_are_refused_in_any_other_file(config: Path, tmp_path: Path) -> None:
    (tmp_path / "headway.yaml").write_text("secrets: {A: canary-7c1f}\n")
    with pytest.raises(UsageError) as error:
        load(tmp_path, {})
    assert "line 1: secrets may stand only in" in error.value.message
    assert "canary" not in error.value.message


def test_the_file_of_another_user_above_us_is_not_read(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "headway.yaml").write_text("color: never\n")
    mine = tmp_path / "mine"
    mine.mkdir()
    real_stat = os.stat

    def stat(path: Path, **kwargs: bool) -> os.stat_result:
        found = real_stat(path, **kwargs)
        if Path(path).name != "headway.yaml":
            return found
        return os.stat_result((*found[:4], found.st_uid + 4242, *found[5:]))

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(RefusedError, match="belongs to uid"):
        project_file(mine)


def test_rows_hold_every_setting_once(config: Path) -> None:
    assert [name for name, _, _ in load(None, {}).rows()] == list(SETTINGS)


def test_every_setting_has_a_known_scope_and_a_meaning() -> None:
    for setting in SETTINGS.values():
        assert setting.scope in SCOPES
        assert setting.doc.endswith(".")


def test_loading_without_files_imports_no_yaml(config: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from headway.settings.layers import load; "
        f"load(Path({str(tmp_path)!r}), {{}}); print('yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_it_works_without_home(config: Path, tmp_path: Path) -> None:
    """B33: no HOME and an unknown uid."""
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    code = (
        "import pwd\n"
        "def unknown(uid): raise KeyError(uid)\n"
        "pwd.getpwuid = unknown\n"
        "from headway.settings.layers import load; print(load(None, {}).get('port'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr
