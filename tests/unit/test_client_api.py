"""The public names: light to import, quick to find, and none of them raises into training (P1)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import headway
from tests import streams

HEAVY = "asyncio dataclasses inspect logging pathlib socket subprocess tempfile threading traceback typing uuid".split()


def run(code: str, tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    folder = tmp_path / "spool"
    folder.mkdir(exist_ok=True)
    (folder / "task.json").write_text('{"version":1,"secret_names":[]}')
    variables = dict(os.environ) | {"HEADWAY_SPOOL": str(folder)} | env
    return subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=60
    )


def modules(code: str, tmp_path: Path) -> set[str]:
    before = "import sys; before = set(sys.modules)\n"
    after = "\nloaded = set(sys.modules) - before; import json; print(json.dumps(sorted(loaded)))"
    done = run(before + code + after, tmp_path)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_importing_headway_loads_headway_alone(tmp_path: Path) -> None:
    assert modules("import headway", tmp_path) == {"headway"}


def test_the_first_log_loads_nothing_slow(tmp_path: Path) -> None:
    loaded = modules("import headway as hw; hw.log({'x': 1.0})", tmp_path)
    assert not {*HEAVY, "json", "re", "enum", "contextlib", "functools"} & loaded
    assert {name for name in loaded if name.startswith("headway.")} <= {
        "headway.client", "headway.client.api", "headway.client.backoff", "headway.client.bootstrap",
        "headway.client.bootstrap.headway_bootstrap", "headway.client.config",
        "headway.client.hooks", "headway.client.interrupt", "headway.client.metric", "headway.client.spool_path",
        "headway.client.own_rank", "headway.client.run", "headway.client.metric_values", "headway.model",
        "headway.model.limits",
        "headway.model.record", "headway.model.value", "headway.spool", "headway.spool.files", "headway.wire.identity",
        "headway.spool.stream_names", "headway.spool.writer", "headway.wire", "headway.wire.frame",
        "headway.wire.plain_json",
        "headway.wire.redact",
    }  # fmt: skip


def test_the_public_names_are_those_and_no_others(tmp_path: Path) -> None:
    assert sorted(headway.__all__) == list(headway.__all__)
    assert set(headway.__all__) <= set(dir(headway))
    for name in headway.__all__:
        assert getattr(headway, name) is not None, name
    with pytest.raises(AttributeError, match="no attribute 'lgo'"):
        headway.lgo  # noqa: B018
    done = run(
        "from headway import log, config, init, flush, finish\n"
        "log({'x': 1}); config['a'] = 1; init(); flush(); flush(durable=True); finish()",
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [p.name for p in streams.points(tmp_path / "spool")] == ["x"]


def test_a_name_is_an_ordinary_attribute_after_its_first_use(tmp_path: Path) -> None:
    """The hot path must not go through a look-up function."""
    done = run(
        "import headway as hw; hw.log; print(sorted(n for n in hw.__all__ if n in vars(hw)))",
        tmp_path,
    )
    assert done.stdout == "['config', 'finish', 'flush', 'init', 'log']\n"


HOSTILE = """
import headway as hw
class Evil:
    def __getattribute__(self, name): raise ZeroDivisionError(name)
evil = Evil()
hw.init(evil); hw.init(config={"a": evil}, tags=evil)
hw.init(tags=[evil, None, 3]); hw.init(name=evil, experiment=evil)
hw.log(evil); hw.log({"x": evil}); hw.log({evil: 1}); hw.log({"x": 1}, evil); hw.log(None, None)
hw.config["x"] = evil; hw.config.update(evil); hw.config.update([evil]); hw.flush(evil)
hw.Progress.new(evil, evil).advance(evil, evil, True); hw.Progress.new("x", (evil, 1)).update(evil)
hw.Progress.new(-1, None).advance(float("nan")); hw.Usage.checkpoint(evil, 1); hw.correlation(3)
with hw.timed(evil), hw.timed([]): pass
hw.finish("no code"); hw.finish(10**30); hw.finish(evil)
print("trained")
"""


def test_no_public_call_raises_whatever_it_is_given(tmp_path: Path) -> None:
    """P1."""
    done = run(HOSTILE, tmp_path)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("how", ["closed", "read-only home", "no stderr"])
def test_training_ends_well_where_nothing_can_be_written(tmp_path: Path, how: str) -> None:
    """P1, F7."""
    code = "import headway as hw\nhw.init({'a': 1})\nfor i in range(100): hw.log({'x': i, 'y': 'text'})\nprint('trained')"
    (tmp_path / "file").touch()
    env = (
        {"HEADWAY_SPOOL": "", "HEADWAY_HOME": str(tmp_path / "file")}
        if how == "read-only home"
        else {}
    )
    if how == "no stderr":
        code = "import sys; sys.stderr = None\n" + code
    if how == "closed":
        code = "import os; os.close(2)\n" + code
    done = run(code, tmp_path, **env)
    assert (done.returncode, done.stdout) == (0, "trained\n")


def test_disabled_is_disabled_for_every_name(tmp_path: Path) -> None:
    done = run(HOSTILE, tmp_path, HEADWAY_DISABLED="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")
    assert [path.name for path in (tmp_path / "spool").iterdir()] == ["task.json"]
