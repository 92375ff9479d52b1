"""Hugging Face transformers: `Trainer(..., callbacks=[HeadwayCallback()])`."""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_Base: "Any" = import_module("transformers.trainer_callback").TrainerCallback


class HeadwayCallback(_Base):  # type: ignore[misc]
    """Config at the beginning, every log at its step, the position of the training; of the first process alone."""

    def __init__(self) -> None:
        self._progress: Any = None

    def on_train_begin(self, args: "Any", state: "Any", control: "Any", **options: "Any") -> None:
        if not state.is_world_process_zero:
            return
        from headway.client import api
        from headway.client.progress import Progress

        told = args.to_sanitized_dict() if hasattr(args, "to_sanitized_dict") else vars(args)
        model: Any = getattr(options.get("model"), "config", None)
        config = {"args": dict(told)}
        if hasattr(model, "to_dict"):
            config["model"] = model.to_dict()
        api.init(config=config)
        if state.max_steps and state.max_steps > 0:
            self._progress = Progress.new(state.max_steps, "train")

    def on_step_end(self, args: "Any", state: "Any", control: "Any", **_: "Any") -> None:
        if self._progress is not None:
            self._progress.update(state.global_step)

    def on_log(
        self, args: "Any", state: "Any", control: "Any", logs: "Any" = None, **_: "Any"
    ) -> None:
        if not state.is_world_process_zero or not logs:
            return
        from headway.client import api

        numbers = {
            _name(key): value for key, value in logs.items() if isinstance(value, (int, float))
        }
        if numbers:
            api.log(numbers, step=state.global_step)

    def on_train_end(self, args: object, state: object, control: object, **_: object) -> None:
        if self._progress is not None:
            self._progress.complete()
            self._progress = None


def _name(key: str) -> str:
    """`eval_loss` is `eval/loss`, `loss` is `train/loss`: as the other trackers of the library name them."""
    for front in ("eval", "test"):
        if key.startswith(f"{front}_"):
            return f"{front}/{key.removeprefix(f'{front}_')}"
    return f"train/{key}"


def autolog(module: "Any") -> None:
    """Every Trainer gets the callback, unless it has one."""
    before = module.Trainer.__init__

    def __init__(self: "Any", *args: "Any", **options: "Any") -> None:
        before(self, *args, **options)
        handler = getattr(self, "callback_handler", None)
        known = getattr(handler, "callbacks", [])
        if handler is not None and not any(isinstance(one, HeadwayCallback) for one in known):
            self.add_callback(HeadwayCallback())

    module.Trainer.__init__ = __init__
