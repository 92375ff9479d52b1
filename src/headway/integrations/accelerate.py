"""Hugging Face accelerate: `Accelerator(log_with="headway")`, once this is imported, or with `--autolog`."""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headway.model.json_types import JsonObject

_tracking: "Any" = import_module("accelerate.tracking")
_Base: "Any" = _tracking.GeneralTracker


class HeadwayTracker(_Base):  # type: ignore[misc]
    name = "headway"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, run_name: str = "", **_: object) -> None:
        super().__init__()
        self.run_name = run_name

    @property
    def tracker(self) -> "Any":
        import headway

        return headway

    def start(self) -> None:
        """Newer releases begin the run here."""

    def store_init_configuration(self, values: "JsonObject") -> None:
        from headway.client import api

        api.init(config=values)

    def log(self, values: "JsonObject", step: "int | None" = None, **_: object) -> None:
        from headway.client import api

        api.log(values, step=step)

    def log_images(self, values: "JsonObject", step: "int | None" = None, **_: object) -> None:
        from headway.client import api
        from headway.client.media import Image

        for name, images in values.items():
            for image in images:
                api.log({name: Image(image)}, step=step)

    def finish(self) -> None:
        from headway.client import api

        api.flush()


def register(module: "Any" = _tracking) -> None:
    """Make `log_with="headway"` known, once."""
    if getattr(module, "_headway", False):
        return
    module._headway = True
    if hasattr(module, "register_tracker_class"):
        try:
            module.register_tracker_class(HeadwayTracker)
        except ValueError:
            return  # it is known already
        return
    known = getattr(module, "LOGGER_TYPE_TO_CLASS", None)
    if isinstance(known, dict):
        known["headway"] = HeadwayTracker


register()
