"""Defaults of a project for every job, `code: pin`, and secrets as lines NAME=VALUE."""

from pathlib import Path

import pytest

from headway.model.errors import UsageError
from headway.model.job import JobSpec
from headway.settings import job_defaults, job_fields, jobschema
from headway.settings.layers import load


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("HEADWAY_CONFIG", raising=False)
    (tmp_path / "config" / "headway").mkdir(parents=True, mode=0o700)
    folder = tmp_path / "code"
    folder.mkdir()
    return folder


def test_defaults_of_a_project_are_fields_of_every_job(project: Path) -> None:
    (project / "headway.yaml").write_text(
        "defaults:\n  env: {SEED: 1}\n  retry: {max: 3}\n  hold: 1h\n  image: torch:2\n"
        "  multi_process: false\n  gpu_per_node: 4\n  monitoring_interval: 5s\n  memory: 2GiB\n"
    )
    found = load(project).get("defaults")
    assert found["env"] == {"SEED": "1"}
    assert job_defaults.job_spec(found) == {
        "retry": {"max": 3}, "hold_s": 3600.0, "image": "torch:2", "multi_process": False, "gpu_per_node": 4,
        "monitoring_interval_s": 5.0, "memory_bytes": 2 << 30, "env_set": ["SEED"],
    }  # fmt: skip


def test_a_wrong_default_is_told_with_its_line(project: Path) -> None:
    (project / "headway.yaml").write_text("defaults:\n  hold: 1h\n  immage: x\n")
    with pytest.raises(UsageError, match=r'line 3: unknown key "immage"; did you mean "image"'):
        load(project)


def test_a_later_file_adds_to_the_defaults(project: Path, tmp_path: Path) -> None:
    mine = tmp_path / "config" / "headway" / "config.yaml"
    mine.write_text("defaults: {env: {A: 1, B: 1}, hold: 5m}\n")
    mine.chmod(0o600)
    (project / "headway.yaml").write_text("defaults: {env: {B: 2}, time: 1h}\n")
    found = load(project).get("defaults")
    assert found == {"env": {"A": "1", "B": "2"}, "hold": 300.0, "time": 3600.0}


def test_code_pin_in_one_word(project: Path) -> None:
    assert load(project).get("code.pin") is False
    (project / "headway.yaml").write_text("code: pin\n")
    assert load(project).get("code.pin") is True
    (project / "headway.yaml").write_text("code: {pin: true, exclude: [big/]}\n")
    assert load(project).get("code.pin") is True


def test_secrets_may_be_lines_of_name_and_value(project: Path, tmp_path: Path) -> None:
    file = tmp_path / "config" / "headway" / "private.env"
    file.write_text("# mine\nexport A_KEY='one=1'\nB_KEY = two\n\n")
    file.chmod(0o600)
    assert load(project).secrets() == {"A_KEY": "one=1", "B_KEY": "two"}
    other = tmp_path / "other.txt"
    other.write_text("C_KEY=three\nnot a line\n")
    other.chmod(0o600)
    (project / "headway.yaml").write_text(f"secrets_file: {other}\n")
    with pytest.raises(UsageError, match="line 2: this is not NAME=VALUE"):
        load(project)
    other.write_text("C_KEY=three\n")
    assert load(project).secrets()["C_KEY"] == "three"
    other.chmod(0o644)
    with pytest.raises(UsageError, match="open to others"):
        load(project)


def test_every_field_of_the_table_is_one_of_a_job() -> None:
    fields = set(JobSpec.__dataclass_fields__)
    assert {field.name for field in job_fields.JOB} <= fields
    keys = {key.name for key in jobschema.JOB.keys}
    assert {field.key for field in job_fields.JOB if field.key} <= keys


@pytest.mark.parametrize("field", [*job_fields.JOB, *job_fields.RETRY], ids=lambda f: f.name)
def test_what_the_server_refuses_the_command_line_refuses(field: job_fields.Field) -> None:
    """One table, so the same limits."""
    if field.rule.what not in ("count", "seconds", "choice") or not field.value:
        pytest.skip("has no limits in numbers")
    for text, value in (("-99999999", -99999999), ("nonsense", "nonsense")):
        with pytest.raises(UsageError):
            job_fields.read(field.rule, text, field.option[0])
        with pytest.raises(UsageError):
            job_fields.check(field, value)
