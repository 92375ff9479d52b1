"""MLflow's tracking store `headway:`, for the unchanged mlflow client: `hw run --as mlflow python train.py`.

A plug-in of the group `mlflow.tracking_store`, in this process and without a port. It is MLflow's own store of files, in
a folder of the job, so everything that the client may read back is there; and what is logged to it (metrics, params,
tags, artifacts at the end of a run) becomes records of the job. Imported by mlflow, so mlflow is there.
"""

import os
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer releases ask before they use files
_FileStore: "Any" = import_module("mlflow.store.tracking.file_store").FileStore
_OWN_TAGS = ("mlflow.",)


def folder() -> str:
    """Where the store lies: with the job's outputs, else in the working folder."""
    top = os.environ.get("HEADWAY_OUTPUT_DIR") or os.getcwd()
    return os.path.join(top, "mlruns")


class HeadwayStore(_FileStore):  # type: ignore[misc]
    """Nothing of ours raises into training: what cannot be mirrored is noted once."""

    def __init__(
        self,
        store_uri: "str | None" = None,
        artifact_uri: "str | None" = None,
        *_: object,
        **__: object,
    ) -> None:
        place = folder()
        os.makedirs(
            os.path.dirname(place), exist_ok=True
        )  # the store itself makes the rest, with experiment 0
        super().__init__(place, f"file://{os.path.abspath(place)}")
        self._runs: list[str] = []  # in the order in which this process met them

    def create_run(self, *args: object, **options: object) -> "Any":
        run = super().create_run(*args, **options)
        _safely(self._meet, run.info)
        return run

    def _meet(self, info: "Any") -> None:
        if info.run_id in self._runs:
            return
        from headway.client import api

        is_first = not self._runs
        self._runs.append(info.run_id)
        if is_first:
            experiment = self.get_experiment(info.experiment_id).name
            name = getattr(info, "run_name", None)
            is_attached = api.current_run().place is None and not os.environ.get("HEADWAY_SPOOL")
            wanted = experiment if experiment != "Default" else None
            api.init(name=name if is_attached else None, experiment=wanted if is_attached else None)
            api.current_run().fact("describe", source="mlflow", experiment=wanted, name=name)

    def _tags_of(self, run_id: str) -> "dict[str, str] | None":
        """The first run of a process is the job itself; further ones are series with the tag `run`."""
        if run_id not in self._runs:
            self._runs.append(run_id)  # one that was begun elsewhere and is gone on with here
        return None if self._runs[0] == run_id else {"run": run_id[:8]}

    def _log_run_metric(self, run_info: "Any", metric: "Any") -> "Any":
        found = super()._log_run_metric(run_info, metric)
        _safely(self._mirror_metric, run_info.run_id, metric)
        return found

    def _mirror_metric(self, run_id: str, metric: "Any") -> None:
        from headway.client import api

        api.log({metric.key: metric.value}, step=metric.step, tags=self._tags_of(run_id))

    def _log_run_param(self, run_info: "Any", param: "Any") -> "Any":
        found = super()._log_run_param(run_info, param)
        _safely(self._mirror_config, run_info.run_id, param.key, param.value)
        return found

    def _mirror_config(self, run_id: str, key: str, text: str) -> None:
        from headway.client import api

        value = _number(text)
        if self._tags_of(run_id) is None:
            api.config[key] = value
            return
        runs = dict(api.config.get("runs") or {})
        runs[run_id[:8]] = {**runs.get(run_id[:8], {}), key: value}
        api.config["runs"] = runs

    def _set_run_tag(self, run_info: "Any", tag: "Any") -> "Any":
        found = super()._set_run_tag(run_info, tag)
        if not str(tag.key).startswith(_OWN_TAGS):
            _safely(self._mirror_tag, tag)
        return found

    def _mirror_tag(self, tag: "Any") -> None:
        from headway.client import api

        api.init(tags=[f"{tag.key}={tag.value}"])

    def update_run_info(
        self, run_id: str, run_status: object, *args: object, **options: object
    ) -> "Any":
        found = super().update_run_info(run_id, run_status, *args, **options)
        _safely(self._keep_artifacts, run_id)
        return found

    def _keep_artifacts(self, run_id: str) -> None:
        from headway.client.artifact import artifact

        info = self.get_run(run_id).info
        place = str(info.artifact_uri).removeprefix("file://")
        if os.path.isdir(place) and any(os.scandir(place)):
            artifact(place, name=f"{info.run_name or run_id}-files", type="mlflow")


def _number(text: str) -> "Any":
    if text in ("True", "False"):
        return text == "True"
    for read in (int, float):
        try:
            return read(text)
        except (TypeError, ValueError):
            continue
    return text


def _safely(call: "Any", *args: "Any") -> None:
    try:
        call(*args)
    except Exception as error:  # P1: mlflow's own record is made; ours must not end a training
        from headway.client.api import current_run

        current_run().note(
            "mlflow", f"something logged to mlflow is not kept: {type(error).__name__}: {error}"
        )
