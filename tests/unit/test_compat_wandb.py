"""`import wandb` answered by Headway: what a script logs lies in the spool, and what cannot be answered says so."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from headway.wire import frame
from tests import streams


class Script:
    """Scripts that run in a task's spool, with the bootstrap in front, as under `hw run --as wandb`."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "spool"
        self.folder.mkdir(mode=0o700)
        (self.folder / "task.json").write_text('{"version": 1}')
        package = Path(frame.__file__).parents[1]
        self.env = dict(os.environ) | {
            "HEADWAY_SPOOL": str(self.folder), "PYTHONPATH": str(package / "client" / "bootstrap"),
            "HEADWAY_PACKAGE": str(package), "HEADWAY_COMPAT": "wandb",
        }  # fmt: skip

    def __call__(self, code: str) -> subprocess.CompletedProcess[str]:
        path = self.root / "train.py"
        path.write_text(textwrap.dedent(code))
        found = subprocess.run(
            [sys.executable, str(path)],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.root,
        )
        assert found.returncode == 0, found.stderr
        return found

    def facts(self, kind: str) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self.folder.iterdir()):
            if path.name.startswith(("facts-", "media-")):
                for number, payload in frame.frames(path.read_bytes()):
                    if number == frame.FACT:
                        fact = json.loads(bytes(payload))
                        found += [fact] if fact["type"] == kind else []
        return found

    def points(self) -> list[tuple[str, int, float]]:
        return [(p.name, p.step, p.value) for p in streams.points(self.folder)]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def test_logged_values_have_wandbs_own_steps(script: Script) -> None:
    script("""
        import wandb
        wandb.init(project="p")
        wandb.log({"a": 1})
        wandb.log({"b": 2}, commit=False)
        wandb.log({"a": 3, "deep": {"er": 4}})
        wandb.log({"a": 5}, step=10)
        wandb.log({"b": 6}, step=10)
        wandb.log({"a": 7})
    """)
    assert script.points() == [
        ("a", 0, 1), ("b", 1, 2), ("a", 1, 3), ("deep/er", 1, 4), ("a", 10, 5), ("b", 10, 6), ("a", 10, 7)
    ]  # fmt: skip


def test_config_is_read_and_written_by_attribute_and_by_item(script: Script) -> None:
    script("""
        import argparse, wandb
        wandb.config.early = 1
        run = wandb.init(config=argparse.Namespace(lr=0.1, model={"depth": 3}))
        assert wandb.config.lr == wandb.config["lr"] == run.config.get("lr") == 0.1
        assert "lr" in wandb.config and dict(wandb.config)["early"] == 1
        wandb.config.batch = 32
        wandb.config["seed"] = 7
        wandb.config.update({"lr": 0.2}, allow_val_change=True)
    """)
    config = script.facts("config")[-1]["config"]
    assert config == {"early": 1, "lr": 0.2, "model": {"depth": 3}, "batch": 32, "seed": 7}


def test_an_own_x_axis_and_a_goal_are_kept(script: Script) -> None:
    script("""
        import wandb
        wandb.init()
        wandb.define_metric("epoch")
        wandb.define_metric("val/*", step_metric="epoch", goal="maximize", summary="max")
    """)
    told = [
        (fact["name"], fact["x"], fact["goal"], fact["summary"]) for fact in script.facts("metric")
    ]
    assert told == [("epoch", None, None, []), ("val/*", "epoch", "max", ["max"])]


def test_media_tables_and_plots_are_kept(script: Script) -> None:
    script("""
        import numpy as np, wandb
        wandb.init()
        table = wandb.Table(columns=["a", "img"])
        table.add_data(1, wandb.Image(np.zeros((4, 4, 3), np.uint8)))
        wandb.log({
            "image": [wandb.Image(np.random.rand(8, 8), caption="c"), wandb.Image(np.ones((8, 8)))],
            "table": table, "hist": wandb.Histogram([1, 2, 2]), "html": wandb.Html("<b>x</b>"),
            "audio": wandb.Audio(np.zeros(100), sample_rate=8000), "text": "hello",
            "video": wandb.Video(np.zeros((3, 3, 8, 8), np.uint8)), "array": np.arange(50),
            "cm": wandb.plot.confusion_matrix(y_true=[0, 1, 1], preds=[0, 1, 0], class_names=["x", "y"]),
            "roc": wandb.plot.roc_curve([0, 1], [[0.9, 0.1], [0.2, 0.8]]),
        })
    """)
    found = [(fact["name"], fact["kind"]) for fact in script.facts("media")]
    assert found == [
        ("image", "image"), ("image", "image"), ("table", "table"), ("table/img", "image"), ("hist", "histogram"),
        ("html", "html"), ("audio", "audio"), ("text", "text"), ("video", "video"), ("array", "histogram"),
        ("cm", "table"), ("roc", "table"),
    ]  # fmt: skip


def test_artifacts_and_saved_files_come_into_the_spool(script: Script) -> None:
    (script.root / "model.pt").write_bytes(b"weights" * 1000)
    script("""
        import wandb
        run = wandb.init()
        artifact = wandb.Artifact("model", type="model", metadata={"acc": 0.9})
        artifact.add_file("model.pt")
        with artifact.new_file("notes.txt") as file:
            file.write("good")
        run.log_artifact(artifact, aliases=["best"]).wait()
        wandb.save("model.pt")
    """)
    first, second = script.facts("artifact")
    assert (
        first["name"] == "model" and first["aliases"] == ["best"] and first["meta"] == {"acc": 0.9}
    )
    paths = {
        entry["path"]: (script.folder / entry["stream"]).read_bytes() for entry in first["files"]
    }
    assert paths == {"model.pt": b"weights" * 1000, "notes.txt": b"good"}
    assert (
        second["files"][0]["stream"] == first["files"][0]["stream"]
    )  # the same file is not brought twice


def test_what_reads_raises_and_what_is_unknown_warns_once(script: Script) -> None:
    found = script("""
        import wandb
        from wandb.integration.nobody_knows import Thing
        run = wandb.init()
        for call in (wandb.Api, lambda: wandb.use_artifact("x:latest"), lambda: run.restore("m")):
            try:
                call()
            except wandb.errors.CommError as error:
                print("refused:", error)
        for _ in range(3):
            wandb.sklearn.plot_classifier(1, 2, 3)
        class Mine(Thing):
            pass
        Mine().anything(3)
    """)
    assert found.stdout.count("refused:") == 3 and "hw ls" in found.stdout
    assert found.stderr.count("wandb.sklearn") == 1 and found.stderr.count("nobody_knows") == 1


def test_a_call_before_init_fails_as_wandb_does(script: Script) -> None:
    found = script("""
        import wandb
        try:
            wandb.log({"a": 1})
        except wandb.Error as error:
            print(error)
        assert wandb.run is None
    """)
    assert "wandb.init()" in found.stdout


def test_libraries_find_the_package_and_its_version(script: Script) -> None:
    found = script("""
        import importlib.metadata, importlib.util
        assert importlib.util.find_spec("wandb") is not None
        print(importlib.metadata.version("wandb"))
    """)
    assert found.stdout.startswith("0.")


def test_a_sweep_runs_its_function_for_each_choice(script: Script) -> None:
    found = script("""
        import wandb
        def train():
            with wandb.init() as run:
                run.log({"score": run.config.lr * 10})
        id = wandb.sweep({"method": "grid", "parameters": {"lr": {"values": [1, 2]}, "seed": {"value": 3}}})
        wandb.agent(id, train)
        assert wandb.run is None
    """)
    assert found.stderr == ""
    names = [name for name, _, _ in script.points()]
    assert names[0] == "score" and names[1].startswith("score{run=")
    assert script.facts("config")[0]["config"] == {"lr": 1, "seed": 3}


def test_a_call_without_values_ends_the_step_and_what_does_nothing_is_no_value(
    script: Script,
) -> None:
    found = script("""
        import wandb
        wandb.init()
        wandb.log({"a": 1}, commit=False)
        wandb.log()
        wandb.log({"a": 2, "roc": wandb.plots.ROC([1], [2]), "none": None})
    """)
    assert script.points() == [("a", 0, 1), ("a", 1, 2)] and "refused" not in found.stderr


def test_a_disabled_run_keeps_nothing(script: Script) -> None:
    script("""
        import wandb
        run = wandb.init(mode="disabled")
        wandb.log({"a": 1, "i": wandb.Html("x")})
        run.summary["x"] = 1
        wandb.config.lr = 3
        wandb.finish()
    """)
    assert script.points() == [] and script.facts("summary") == [] and script.facts("config") == []


def test_an_alert_becomes_a_fact_and_is_not_repeated_at_once(script: Script) -> None:
    script("""
        import wandb
        wandb.init()
        for _ in range(5):
            wandb.alert(title="low", text="accuracy", level=wandb.AlertLevel.WARN)
    """)
    assert [(fact["title"], fact["level"]) for fact in script.facts("alert")] == [("low", "warn")]


def test_without_the_switch_the_real_package_is_not_replaced(script: Script) -> None:
    del script.env["HEADWAY_COMPAT"]
    script("""
        import sys
        try:
            import wandb
        except ImportError:
            wandb = None
        assert wandb is None or "headway" not in repr(wandb)
        import headway.compat.wandb as ours
        ours.init(project="p")
        ours.log({"a": 1})
    """)
    assert script.points() == [("a", 0, 1)]
