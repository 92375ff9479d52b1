"""`wandb.integration.sb3`: the callback of Stable-Baselines3."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _base() -> "Any":
    try:
        from stable_baselines3.common.callbacks import BaseCallback  # type: ignore[import-not-found,unused-ignore]

        return BaseCallback
    except ImportError:
        return object


_Base: "Any" = _base()


class WandbCallback(_Base):  # type: ignore[misc]
    """What Stable-Baselines3 has noted by the end of each rollout; with `model_save_path` the model, at the end."""

    def __init__(self, verbose: int = 0, model_save_path: "str | None" = None, **_: object) -> None:
        super().__init__(verbose) if _Base is not object else None
        self.model_save_path = model_save_path

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        from headway.compat import wandb

        values = dict(getattr(self.logger, "name_to_value", {}))
        if values and wandb.run is not None:
            wandb.run.log(values, step=int(self.num_timesteps))

    def _on_training_end(self) -> None:
        from headway.compat import wandb

        self._on_rollout_end()
        if self.model_save_path is not None and wandb.run is not None:
            import os

            path = os.path.join(self.model_save_path, "model.zip")
            self.model.save(path)
            wandb.run.log_artifact(path, "model", "model")
