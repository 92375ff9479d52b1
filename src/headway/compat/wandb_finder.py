"""`import wandb` without an edit: a finder that answers it, and its submodules, with `headway.compat.wandb`.

Put in by the bootstrap where HEADWAY_COMPAT asks for it. Stands in front of the path, so it also answers where wandb is
installed, and tells libraries that look for the package's version that it is there.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_HERE = "headway.compat.wandb"
# Modules that people import by name, and what stands for them.
PARTS = {
    "wandb": _HERE,
    "wandb.errors": "headway.compat.wandb_errors",
    "wandb.errors.errors": "headway.compat.wandb_errors",
    "wandb.plot": "headway.compat.wandb_plot",
    "wandb.data_types": "headway.compat.wandb_types",
    "wandb.sdk.data_types": "headway.compat.wandb_types",
    "wandb.sdk.wandb_run": "headway.compat.wandb_run",
    "wandb.wandb_run": "headway.compat.wandb_run",
    "wandb.sdk.lib": "headway.compat.wandb_run",  # RunDisabled
    "wandb.sdk.lib.disabled": "headway.compat.wandb_run",
    "wandb.sdk.lib.runid": "headway.compat.wandb_run",  # generate_id
    "wandb.util": "headway.compat.wandb_run",  # generate_id
    "wandb.sdk.artifacts.artifact": "headway.compat.wandb_artifact",
    "wandb.keras": "headway.compat.wandb_callbacks",
    "wandb.integration.keras": "headway.compat.wandb_callbacks",
    "wandb.xgboost": "headway.compat.wandb_boosting",
    "wandb.integration.xgboost": "headway.compat.wandb_boosting",
    "wandb.lightgbm": "headway.compat.wandb_boosting",
    "wandb.integration.lightgbm": "headway.compat.wandb_boosting",
    "wandb.catboost": "headway.compat.wandb_boosting",
    "wandb.integration.catboost": "headway.compat.wandb_boosting",
    "wandb.sb3": "headway.compat.wandb_sb3",
    "wandb.integration.sb3": "headway.compat.wandb_sb3",
}


def find_part(name: str) -> "ModuleType | None":
    """The module that stands for `wandb.…`; None where Headway has none."""
    target = PARTS.get(name)
    return import_module(target) if target is not None else None


class Loader:
    """Hands out a module that is there already, or a stand-in whose names do nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create_module(self, spec: ModuleSpec) -> "ModuleType":
        target = find_part(self.name)
        if target is not None:
            return _View(self.name, target)
        return _Unknown(self.name)

    def exec_module(self, module: "ModuleType") -> None:
        return None


class _View(type(sys)):  # type: ignore[misc]
    """A module under another name: it reads and writes the names of the one that it stands for."""

    def __init__(self, name: str, target: "ModuleType") -> None:
        super().__init__(name, target.__doc__)
        self.__dict__["_target"] = target
        self.__dict__["__path__"] = []  # submodules may be asked for

    def __getattribute__(self, name: str) -> "Any":
        if name.startswith("__") and name not in ("__version__", "__all__"):
            return super().__getattribute__(name)
        kept = super().__getattribute__("__dict__")
        if name in kept and not name.startswith("__"):
            inner = kept[name]
            if isinstance(inner, type(sys)):
                return inner  # a submodule that was imported
        return getattr(kept["_target"], name)

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("__") or isinstance(value, type(sys)):
            super().__setattr__(name, value)
        else:
            setattr(self.__dict__["_target"], name, value)

    def __dir__(self) -> "list[str]":
        return dir(self.__dict__["_target"])


class _Unknown(type(sys)):  # type: ignore[misc]
    """A part of wandb that Headway does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "not known to Headway: its names do nothing")
        self.__dict__["__path__"] = []

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("__"):
            raise AttributeError(name)
        from headway.compat.wandb_anything import anything

        return anything(f"{self.__name__.removeprefix('wandb.')}.{name}")


class Finder:
    """For sys.meta_path."""

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> "ModuleSpec | None":
        if name != "wandb" and not name.startswith("wandb."):
            return None
        return ModuleSpec(name, Loader(name), origin="headway.compat.wandb", is_package=True)  # type: ignore[arg-type]

    def find_distributions(self, context: object = None) -> "Any":
        """For `importlib.metadata`: libraries look for the package before they import it."""
        if getattr(context, "name", None) != "wandb":
            return ()
        from headway.compat.distribution import Stand

        return (
            Stand("wandb", sys.modules[_HERE].__version__ if _HERE in sys.modules else "0.22.2"),
        )

    def invalidate_caches(self) -> None:
        return None


def install() -> None:
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
