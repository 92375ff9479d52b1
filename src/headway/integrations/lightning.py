"""Lightning: `Trainer(logger=HeadwayLogger())`."""

import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headway.model.json_types import JsonObject


def _base() -> "Any":
    names = ("lightning.pytorch.loggers.logger", "pytorch_lightning.loggers.logger")
    loaded = [name for name in names if name.partition(".")[0] in sys.modules] or [names[0]]
    return import_module(loaded[0]).Logger


_Base: "Any" = _base()


class HeadwayLogger(_Base):  # type: ignore[misc]
    """Metrics at Lightning's own steps, hyperparameters as the config, checkpoints as artifacts where asked for."""

    def __init__(
        self, name: "str | None" = None, log_model: bool = False, prefix: str = ""
    ) -> None:
        super().__init__()
        self._run_name, self._log_model, self._prefix = name, log_model, prefix

    @property
    def name(self) -> str:
        return self._run_name or "headway"

    @property
    def version(self) -> str:
        import os

        return os.environ.get("HEADWAY_JOB") or "0"

    @property
    def experiment(self) -> "Any":
        import headway

        return headway

    def log_metrics(self, metrics: "JsonObject", step: "int | None" = None) -> None:
        if not _is_first():
            return
        from headway.client import api

        api.log({f"{self._prefix}{name}": value for name, value in metrics.items()}, step=step)

    def log_hyperparams(self, params: object = None, *_: object, **more: object) -> None:
        if not _is_first():
            return
        from headway.client import api

        api.init(config=params if params is not None else more)

    def log_image(
        self, key: str, images: "list[Any]", step: "int | None" = None, **_: object
    ) -> None:
        from headway.client import api
        from headway.client.media import Image

        for image in images:
            api.log({key: Image(image)}, step=step)

    def after_save_checkpoint(self, checkpoint_callback: object) -> None:
        path = getattr(checkpoint_callback, "best_model_path", "")
        if self._log_model and path and _is_first():
            from headway.client.artifact import artifact

            artifact(path, name="model", type="model", aliases=["best"])

    def save(self) -> None:
        """Everything is in the spool when a call returns."""

    def finalize(self, status: str) -> None:
        from headway.client import api

        api.flush()


def _is_first() -> bool:
    names = ("lightning_utilities.core.rank_zero", "lightning.fabric.utilities.rank_zero")
    utilities = next((sys.modules[name] for name in names if name in sys.modules), None)
    only = getattr(utilities, "rank_zero_only", None)
    return getattr(only, "rank", 0) in (0, None)


def autolog(module: "Any") -> None:
    """Every Trainer that is not told otherwise (`logger=False`) gets the logger beside its own."""
    before = module.Trainer.__init__

    def __init__(self: "Any", *args: "Any", **options: "Any") -> None:
        before(self, *args, **options)
        if options.get("logger") is not False and not any(
            isinstance(one, HeadwayLogger) for one in self.loggers
        ):
            self.loggers = [*self.loggers, HeadwayLogger()]

    module.Trainer.__init__ = __init__
