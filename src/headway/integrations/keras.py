"""Keras: `model.fit(..., callbacks=[HeadwayCallback()])`."""

import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _base() -> "Any":
    if "keras" in sys.modules or "tensorflow" not in sys.modules:
        return import_module("keras.callbacks").Callback
    return import_module("tensorflow.keras.callbacks").Callback


_Base: "Any" = _base()


class HeadwayCallback(_Base):  # type: ignore[misc]
    """Values of each epoch at its number; with `log_freq=N` also of every N-th batch, as `batch/…`."""

    def __init__(self, log_freq: "int | None" = None) -> None:
        super().__init__()
        self.log_freq, self._batch = log_freq, 0

    def on_train_begin(self, logs: object = None) -> None:
        from headway.client import api

        params = dict(getattr(self, "params", None) or {})
        optimizer: Any = getattr(getattr(self, "model", None), "optimizer", None)
        if hasattr(optimizer, "get_config"):
            params["optimizer"] = optimizer.get_config()
        api.init(config=params)

    def on_epoch_end(self, epoch: int, logs: "Any" = None) -> None:
        from headway.client import api

        api.log(dict(logs or {}), step=epoch)

    def on_train_batch_end(self, batch: int, logs: "Any" = None) -> None:
        self._batch += 1
        if self.log_freq and self._batch % self.log_freq == 0:
            from headway.client import api

            api.log(
                {f"batch/{name}": value for name, value in (logs or {}).items()}, step=self._batch
            )


def autolog(module: "Any") -> None:
    """Every list of callbacks that trains gets ours."""
    before = module.CallbackList.__init__

    def __init__(self: "Any", callbacks: "Any" = None, *args: "Any", **options: "Any") -> None:
        before(self, callbacks, *args, **options)
        if options.get("add_history") and not any(
            isinstance(one, HeadwayCallback) for one in self.callbacks
        ):
            added = HeadwayCallback()
            if options.get("model") is not None:
                added.set_model(options["model"])
            self.callbacks.append(added)

    module.CallbackList.__init__ = __init__
