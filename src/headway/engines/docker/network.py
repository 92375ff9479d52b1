"""How containers of one attempt reach each other. Called by `engines/docker/engine.py`.

An attempt with several tasks gets a network of its own, made before its first container and removed
with its last; one that the settings name is used as it is. There every container tells its own
number (`by_number` in `task.json`), since not every engine has names for containers; where it has,
the name of a task is one. Where all share the network of the machine, or of another container, the
address is that of this machine.
"""

from collections.abc import Callable
from typing import Final

from headway.engines.docker.program import Failed, Program
from headway.engines.protocol import Plan, PlannedTask
from headway.model.errors import RefusedError, UnreachableError

HOME_LABEL: Final = "headway.home"
SAME: Final = "127.0.0.1"
_PREFIX: Final = "headway-"
_SHARED: Final = ("host", "container", "ns")
# none of them joins containers
_OWN: Final = ("", "bridge", "none", "default", "private", "slirp4netns", "pasta")


class Networks:
    """`configured`: the cluster's option `network`, if it has one."""

    def __init__(self, program: Program, home: str, configured: str | None) -> None:
        self._program, self._home, self._configured = program, home, configured
        kind = (configured or "").partition(":")[0]
        self.is_shared = kind in _SHARED
        self._is_own = kind in _OWN
        self._is_known = False  # that the network which the settings name is there

    def check(self) -> None:
        """RefusedError where the settings name a network that is not there."""
        if self._is_known or not self._configured or self._is_own or self.is_shared:
            return
        name = self._configured.partition(":")[0]
        try:
            self._program.run("network", "inspect", "--format", "{{.Name}}", name)
        except Failed as error:
            hint = "correct `network` of the cluster, or make it: network create"
            raise RefusedError(f"the network {name[:80]} cannot be used: {error}", hint) from None
        self._is_known = True

    def words(self, plan: Plan, task: PlannedTask) -> list[str]:
        """For `create`."""
        if len(plan.tasks) == 1 or self.is_shared:
            return ["--network", self._configured] if self._configured else []
        name = self.name_of(plan, task)
        network = _name(f"{plan.uuid}-{plan.attempt}") if self._is_own else str(self._configured)
        return ["--network", network, "--hostname", name, "--network-alias", name]

    def address(self, plan: Plan) -> str:
        """Of every task; empty: each its own."""
        return SAME if len(plan.tasks) == 1 or self.is_shared else ""

    def name_of(self, plan: Plan, task: PlannedTask) -> str:
        """What others may call it: on a network that jobs share, a name that no other job has."""
        return task.name if self._is_own else f"{task.name}-{plan.uuid[:8]}-{plan.attempt}"

    def make(self, plan: Plan) -> None:
        """Before the first container. May be repeated."""
        if len(plan.tasks) == 1 or not self._is_own:
            return
        inward = ["--internal"] if self._configured == "none" else []
        name = _name(f"{plan.uuid}-{plan.attempt}")
        try:
            self._program.run(
                "network", "create", "--label", f"{HOME_LABEL}={self._home}", *inward, name
            )
        except Failed as error:
            if "already" in str(error):
                return
            if "address pool" in str(error) or "subnet" in str(error):
                raise UnreachableError(
                    f"no further network can be made now: {error}",
                    "it is tried again when others have ended",
                ) from None
            raise

    def remove(self, key: str) -> None:
        """After the last container; one that is still in use stays for `sweep`."""
        if not self._is_own:
            return
        try:
            self._program.run("network", "rm", _name(key))
        except (Failed, UnreachableError):
            return

    def sweep(self, is_over: Callable[[str], bool]) -> bool:
        """Remove those of attempts of this home that nobody has removed. Whether there was any."""
        told = self._program.run(
            "network", "ls", "--filter", f"label={HOME_LABEL}={self._home}", "--format", "{{.Name}}"
        )
        names = told.split()
        for name in names:
            if name.startswith(_PREFIX) and is_over(name.removeprefix(_PREFIX)):
                self.remove(name.removeprefix(_PREFIX))
        return bool(names)


def _name(key: str) -> str:
    return f"{_PREFIX}{key}"
