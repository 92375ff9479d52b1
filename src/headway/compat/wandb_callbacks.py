"""`wandb.keras` and `wandb.integration.keras`: callbacks for Keras, made of the Keras that the script has loaded."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headway.model.json_types import JsonObject


def _base() -> "Any":
    for name in ("tensorflow.keras.callbacks", "keras.callbacks", "tf_keras.callbacks"):
        top = sys.modules.get(name.partition(".")[0])
        if top is None:
            continue
        try:
            return __import__(name, fromlist=["Callback"]).Callback
        except ImportError:
            continue
    try:
        from keras.callbacks import Callback  # type: ignore[import-not-found,unused-ignore]

        return Callback
    except ImportError:
        return object


_Base: "Any" = _base()


def _run() -> "Any":
    from headway.compat import wandb

    return wandb._need("a callback of wandb is used")


class WandbMetricsLogger(_Base):  # type: ignore[misc]
    """Loss and metrics of each epoch, and of each `log_freq` batches, over `epoch/epoch` and `batch/batch_step`."""

    def __init__(
        self, log_freq: object = "epoch", initial_global_step: int = 0, *_: object, **__: object
    ) -> None:
        super().__init__()
        self.log_freq = 1 if log_freq == "batch" else log_freq
        self.global_step = self.global_batch = initial_global_step
        run = _run()
        run.define_metric("epoch/epoch")
        run.define_metric("epoch/*", step_metric="epoch/epoch")
        if isinstance(self.log_freq, int):
            run.define_metric("batch/batch_step")
            run.define_metric("batch/*", step_metric="batch/batch_step")

    def on_epoch_end(self, epoch: int, logs: "JsonObject | None" = None) -> None:
        values = {f"epoch/{name}": value for name, value in (logs or {}).items()}
        rate = _rate(self)
        if rate is not None:
            values["epoch/learning_rate"] = rate
        _run().log({**values, "epoch/epoch": epoch})

    def on_train_batch_end(self, batch: int, logs: "JsonObject | None" = None) -> None:
        self.global_step += 1
        if isinstance(self.log_freq, int) and batch % self.log_freq == 0:
            values = {f"batch/{name}": value for name, value in (logs or {}).items()}
            _run().log({**values, "batch/batch_step": self.global_batch})
            self.global_batch += self.log_freq


class WandbCallback(_Base):  # type: ignore[misc]
    """The older one: all values of an epoch under their own names, and the best one in the summary."""

    def __init__(
        self, monitor: str = "val_loss", save_model: bool = False, **options: object
    ) -> None:
        super().__init__()
        self.monitor, self.save_model, self.options = monitor, save_model, options
        self.best: float | None = None

    def on_epoch_end(self, epoch: int, logs: "JsonObject | None" = None) -> None:
        run, values = _run(), dict(logs or {})
        run.log({"epoch": epoch, **values})
        value = values.get(self.monitor)
        if value is None:
            return
        less = "acc" not in self.monitor and self.options.get("mode") != "max"
        if self.best is None or (value < self.best if less else value > self.best):
            self.best = float(value)
            run.summary.update({f"best_{self.monitor}": self.best, "best_epoch": epoch})


class WandbModelCheckpoint(_Base):  # type: ignore[misc]
    """Saves the model after each epoch, or each better one, and keeps the file as an artifact."""

    def __init__(
        self, filepath: "Any", monitor: str = "val_loss", verbose: int = 0, save_best_only: bool = False,
        save_weights_only: bool = False, mode: str = "auto", save_freq: "Any" = "epoch", **_: "Any",
    ) -> None:  # fmt: skip
        super().__init__()
        self.filepath, self.monitor, self.save_best_only = (
            os.fspath(filepath),
            monitor,
            save_best_only,
        )
        self.save_weights_only, self.mode = save_weights_only, mode
        self.best: float | None = None

    def on_epoch_end(self, epoch: int, logs: "JsonObject | None" = None) -> None:
        values = dict(logs or {})
        value = values.get(self.monitor)
        if self.save_best_only and value is not None:
            less = self.mode == "min" or (self.mode == "auto" and "acc" not in self.monitor)
            if self.best is not None and (value >= self.best if less else value <= self.best):
                return
            self.best = float(value)
        path = self.filepath.format(epoch=epoch + 1, **values)
        if self.save_weights_only:
            self.model.save_weights(path)
        else:
            self.model.save(path)
        run = _run()
        run.log_artifact(
            path, name=f"run_{run.id}_model", type="model", aliases=["latest", f"epoch_{epoch}"]
        )


class WandbEvalCallback(_Base):  # type: ignore[misc]
    """Predictions as a table; a script inherits from it and adds the rows."""

    def __init__(
        self, data_table_columns: "Any" = (), pred_table_columns: "Any" = (), *_: "Any", **__: "Any"
    ) -> None:
        super().__init__()
        self.data_table_columns, self.pred_table_columns = (
            list(data_table_columns),
            list(pred_table_columns),
        )

    def on_train_begin(self, logs: object = None) -> None:
        self.init_data_table(self.data_table_columns)
        self.add_ground_truth(logs)
        _run().log({"val_data": self.data_table})
        self.data_table_ref = self.data_table

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self.init_pred_table(self.pred_table_columns)
        self.add_model_predictions(epoch, logs)
        self.log_pred_table()

    def init_data_table(self, column_names: object) -> None:
        from headway.compat.wandb_types import Table

        self.data_table = Table(columns=column_names, allow_mixed_types=True)

    def init_pred_table(self, column_names: object) -> None:
        from headway.compat.wandb_types import Table

        self.pred_table = Table(columns=column_names)

    def log_data_table(self, *_: object, **__: object) -> None:
        return None

    def log_pred_table(self, *_: object, **__: object) -> None:
        _run().log({"predictions": self.pred_table})

    def add_ground_truth(self, logs: object = None) -> None:
        return None

    def add_model_predictions(self, epoch: int, logs: object = None) -> None:
        return None


def _rate(callback: object) -> "float | None":
    optimizer = getattr(getattr(callback, "model", None), "optimizer", None)
    rate = getattr(optimizer, "learning_rate", None)
    try:
        return float(rate) if rate is not None else None
    except (TypeError, ValueError):
        return None  # a schedule; Keras does not say where it is
