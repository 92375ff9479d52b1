"""`wandb.xgboost`, `wandb.lightgbm`, `wandb.catboost`: callbacks of boosted trees."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _base() -> "Any":
    try:
        from xgboost.callback import TrainingCallback  # type: ignore[import-not-found,unused-ignore]

        return TrainingCallback
    except ImportError:
        return object


_Base: "Any" = _base() if "xgboost" in sys.modules else object


def _run() -> "Any":
    from headway.compat import wandb

    return wandb._need("a callback of wandb is used")


class WandbCallback(_Base):  # type: ignore[misc]
    """For xgboost (`callbacks=[WandbCallback()]`) and catboost."""

    def __init__(self, *_: object, **options: object) -> None:
        super().__init__()
        self.options = options

    def after_iteration(self, *args: "Any") -> bool:
        if len(args) == 3:  # xgboost: model, epoch, evals_log
            _, epoch, found = args
            values = {
                f"{data}-{name}": _last(rows)
                for data, metrics in found.items()
                for name, rows in metrics.items()
            }
            _run().log({**values, "epoch": epoch})
            return False
        info = args[0]  # catboost
        values = {
            f"iteration@metric-{data}-{name}": _last(rows)
            for data, metrics in (info.metrics or {}).items()
            for name, rows in metrics.items()
        }
        _run().log(values, step=int(info.iteration))
        return True

    def after_training(self, model: object) -> "Any":
        for name in ("best_score", "best_iteration"):
            value = getattr(model, name, None)
            if value is not None:
                _run().summary.update({name: value})
        return model


wandb_callback_class = WandbCallback


def wandb_callback(*_: "Any", **__: "Any") -> "Any":
    """For lightgbm (`callbacks=[wandb_callback()]`); of xgboost's older interface, the same values."""

    def callback(env: "Any") -> None:
        values = {}
        for row in env.evaluation_result_list or ():
            name, value = (f"{row[0]}_{row[1]}", row[2]) if len(row) >= 4 else (row[0], row[1])
            values[str(name)] = value
        if values:
            _run().log({**values, "iteration": env.iteration})

    return callback


def log_summary(model: object, *_: object, **__: object) -> None:
    for name in ("best_iteration", "best_score"):
        value = getattr(model, name, None)
        if value is not None:
            _run().summary.update({name: value})


def _last(rows: "Any") -> "Any":
    last = rows[-1]
    return last[0] if isinstance(last, tuple) else last
