"""What the bootstrap puts into a script's libraries: loggers with `--autolog`, and our plug-in for mlflow."""

import textwrap
from pathlib import Path

import pytest

from tests.unit.test_compat_wandb import Script


@pytest.fixture
def script(tmp_path: Path) -> Script:
    found = Script(tmp_path)
    found.env["HEADWAY_COMPAT"] = "mlflow"
    found.env["HEADWAY_AUTOLOG"] = "1"
    return found


def package(script: Script, name: str, **modules: str) -> None:
    """A library of that name beside the script."""
    for module, text in {"__init__": "", **modules}.items():
        path = script.root / name / f"{module}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def test_mlflow_finds_the_store_of_an_environment_without_headway(script: Script) -> None:
    found = script("""
        from importlib.metadata import entry_points
        for one in entry_points(group="mlflow.tracking_store"):
            print(one.name, one.value)
    """)
    assert found.stdout == "headway headway.compat.mlflow_store:HeadwayStore\n"


def test_what_is_logged_to_mlflow_becomes_metrics_config_and_tags(script: Script) -> None:
    """With a store of files that does nothing but have MLflow's own hooks."""
    store = script.root / "mlflow" / "store" / "tracking"
    store.mkdir(parents=True)
    for folder in (store, store.parent, store.parent.parent):
        (folder / "__init__.py").write_text("")
    (store / "file_store.py").write_text(
        textwrap.dedent("""
        from types import SimpleNamespace as N
        class FileStore:
            def __init__(self, root, artifacts): self.infos = {}
            def create_run(self, run_id):
                info = N(run_id=run_id, experiment_id="1", run_name="calm", artifact_uri="file:///nowhere")
                self.infos[run_id] = info
                return N(info=info)
            def get_run(self, run_id): return N(info=self.infos[run_id])
            def get_experiment(self, id): return N(name="digits")
            def _log_run_metric(self, info, metric): pass
            def _log_run_param(self, info, param): pass
            def _set_run_tag(self, info, tag): pass
            def update_run_info(self, run_id, status, end, name): return self.infos[run_id]
        """)
    )
    script("""
        from importlib.metadata import entry_points
        from types import SimpleNamespace as N
        (plugin,) = entry_points(group="mlflow.tracking_store")
        store = plugin.load()("headway:")
        first, second = store.create_run("aaaaaaaaaa").info, store.create_run("bbbbbbbbbb").info
        store._log_run_metric(first, N(key="loss", value=0.5, step=3))
        store._log_run_param(first, N(key="lr", value="0.1"))
        store._set_run_tag(first, N(key="team", value="x"))
        store._set_run_tag(first, N(key="mlflow.user", value="x"))
        store._log_run_metric(second, N(key="loss", value=9.0, step=0))
        store.update_run_info("aaaaaaaaaa", 3, 0, None)
    """)
    assert script.points() == [("loss", 3, 0.5), ("loss{run=bbbbbbbb}", 0, 9.0)]
    assert script.facts("config")[-1]["config"] == {"lr": 0.1}
    assert script.facts("tags")[-1]["tags"] == ["team=x"]
    assert script.facts("describe")[0]["experiment"] == "digits"


def test_every_trainer_of_transformers_gets_the_callback(script: Script) -> None:
    package(
        script, "transformers",
        trainer_callback="class TrainerCallback: pass",
        trainer="""
        from types import SimpleNamespace as N
        class Trainer:
            def __init__(self):
                self.callback_handler = N(callbacks=[])
            def add_callback(self, one):
                self.callback_handler.callbacks.append(one)
            def train(self):
                state = N(is_world_process_zero=True, max_steps=10, global_step=4)
                for one in self.callback_handler.callbacks:
                    one.on_train_begin(N(to_sanitized_dict=lambda: {"lr": 0.1}), state, None)
                    one.on_log(None, state, None, logs={"loss": 0.5, "eval_acc": 1.0, "text": "x"})
                    one.on_train_end(None, state, None)
        """,
    )  # fmt: skip
    found = script("""
        from transformers.trainer import Trainer
        Trainer().train()
    """)
    assert found.stderr == ""
    assert script.points() == [("train/loss", 4, 0.5), ("eval/acc", 4, 1.0)]
    assert script.facts("config")[-1]["config"] == {"args": {"lr": 0.1}}


def test_a_library_that_we_do_not_know_works_as_without_us(script: Script) -> None:
    package(script, "transformers", trainer="ready = True")
    found = script("""
        import transformers.trainer
        assert transformers.trainer.ready
    """)
    assert "--autolog of huggingface does not work here" in found.stderr
