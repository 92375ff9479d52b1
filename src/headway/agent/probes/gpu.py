"""GPUs, seen from the agent: a child asks the driver, so that a driver which hangs or crashes costs
a sample (F44).

Called by `sampler`: `ask` a moment before a sample is due, `take` when it is. Nothing here waits.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from headway.model.limits import (
    GPU_ANSWER_BYTES_MAX,
    GPU_PAUSE_FIRST_S,
    GPU_PAUSE_MAX_S,
    GPU_TIMEOUT_FIRST_S,
    GPU_TIMEOUT_S,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from headway.model.json_types import JsonObject

    Card = JsonObject

LIBRARY = "libnvidia-ml.so.1"
LIBRARY_VARIABLE = "HEADWAY_NVML"  # another library than the system's, for tests and odd places
_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/proc/driver/nvidia/version")
_PACKAGE_PARENT = os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
)
_CODE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from headway.agent.probes.nvml import main; main()"


class Child:
    """A process that answers. Not waited for: one that hangs in the kernel does not even die when
    killed.
    """

    def __init__(self, argv: list[str], env: "Mapping[str, str]", now_s: float) -> None:
        reads, far_out = os.pipe()
        far_in, writes = os.pipe()
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        actions = [
            (os.POSIX_SPAWN_DUP2, far_in, 0),
            (os.POSIX_SPAWN_DUP2, far_out, 1),
            (os.POSIX_SPAWN_DUP2, null, 2),
        ]
        try:
            self.pid = os.posix_spawn(argv[0], argv, dict(env), file_actions=actions, setsigmask=())
        except BaseException:  # whatever it was, the pipes must not leak
            os.close(reads)
            os.close(writes)
            raise
        finally:
            for fd in (far_in, far_out, null):
                os.close(fd)
        self._reads, self._writes, self._data = reads, writes, b""
        os.set_blocking(reads, False)
        os.set_blocking(writes, False)
        self.deadline_s: float | None = None
        self.spoke = self.ended = False
        self.begun_s = now_s

    def ask(self, number: int, now_s: float) -> None:
        try:
            os.write(self._writes, b"%d\n" % number)
        except OSError:
            self.ended = True
            return
        if self.deadline_s is None:
            self.deadline_s = now_s + (GPU_TIMEOUT_S if self.spoke else GPU_TIMEOUT_FIRST_S)

    def hear(self) -> "list[Card]":
        """Whole lines that have come; what is no JSON is passed over."""
        try:
            while part := os.read(self._reads, 1 << 16):
                self._data += part
                if len(self._data) > GPU_ANSWER_BYTES_MAX:
                    break
            self.ended = True  # its end of the pipe is closed, or it talks without end
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True
        *lines, self._data = self._data.split(b"\n")
        answers = []
        for line in lines:
            try:
                answer = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(answer, dict):
                answers.append(answer)
        if answers:
            self.spoke, self.deadline_s = True, None
        return answers

    def kill(self) -> None:
        os.close(self._reads)
        os.close(self._writes)
        try:
            # our own child, not yet reaped: the number is still its own
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def is_reaped(self) -> bool:
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True


class Gpus:
    """`take` gives None when nothing is known this time, and an empty list where there are no GPUs."""

    def __init__(
        self,
        now_s: float,
        env: "Mapping[str, str] | None" = None,
        own: "Collection[int] | None" = None,
        say: "Callable[[str], None]" = lambda text: None,
        argv: list[str] | None = None,
    ) -> None:
        self._env = os.environ if env is None else env
        self._own, self._say = own, say
        library = self._env.get(LIBRARY_VARIABLE) or LIBRARY
        self._argv = argv or [
            sys.executable or "python3",
            "-I",
            "-S",
            "-c",
            _CODE,
            _PACKAGE_PARENT,
            library,
        ]
        self._child: Child | None = None
        self._dying: list[Child] = []
        self._number = 0
        self._start_s = now_s
        self._pause_s = GPU_PAUSE_FIRST_S
        self._none = False  # there is no driver, or it has no cards
        self._told = ""

    @property
    def is_asked(self) -> bool:
        """Whether `ask` is worth a call of its own: a machine without GPUs need not be woken for
        it.
        """
        return self._child is not None or not self._none

    def ask(self, now_s: float) -> None:
        self._dying = [child for child in self._dying if not child.is_reaped()]
        if self._child is None and now_s >= self._start_s and not self._dying:
            self._start(now_s)
        if self._child is not None:
            self._number += 1
            self._child.ask(self._number, now_s)

    def _start(self, now_s: float) -> None:
        if not self._env.get(LIBRARY_VARIABLE) and not any(
            os.path.exists(path) for path in _DEVICES
        ):
            self._none, self._start_s = True, now_s + GPU_PAUSE_MAX_S
            return
        try:
            self._child = Child(self._argv, self._env, now_s)
        except OSError as error:
            self._give_up(
                now_s, f"the process that asks for GPUs cannot be started: {error.strerror}"
            )

    def take(self, now_s: float, tree: "Collection[int]" = ()) -> "list[Card] | None":
        """The answer to the last question. `tree`: processes of the job."""
        child = self._child
        if child is None:
            return [] if self._none else None
        cards: list[Card] | None = None
        for answer in child.hear():
            if "error" in answer:
                self._none = True
                self._give_up(now_s, str(answer["error"])[:300], GPU_PAUSE_MAX_S)
                return []
            if answer.get("number") == self._number:
                cards = self._mark(answer.get("gpus"), tree)
                self._none, self._pause_s = not cards, GPU_PAUSE_FIRST_S
        if child.ended:
            self._give_up(now_s, "the process that asks for GPUs has ended")
        elif child.deadline_s is not None and now_s >= child.deadline_s:
            self._give_up(now_s, "the GPU driver does not answer")
        return cards

    def _mark(self, cards: object, tree: "Collection[int]") -> "list[Card]":
        """Say which cards are the job's: those that it was given, and those that it holds memory
        of.
        """
        found = (
            [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []
        )
        for card in found:
            uuid = str(card.pop("uuid", None) or "")
            held = any(holder.get("pid") in tree for holder in card.get("holders") or ())
            card["own"] = held or self._is_given(card.get("index"), uuid)
        return found

    def _is_given(self, index: object, uuid: str) -> bool:
        if self._own is not None:
            return index in self._own
        words = [word.strip() for word in self._env.get("CUDA_VISIBLE_DEVICES", "").split(",")]
        return str(index) in words or any(
            word.startswith("GPU-") and uuid.startswith(word) for word in words
        )

    def _give_up(self, now_s: float, reason: str, pause_s: float | None = None) -> None:
        """End the child and pause, longer each time."""
        if self._child is not None:
            self._child.kill()
            self._dying.append(self._child)
            self._child = None
        self._start_s = now_s + (pause_s or self._pause_s)
        self._pause_s = min(GPU_PAUSE_MAX_S, self._pause_s * 2)
        if reason != self._told:
            self._told = reason
            self._say(f"GPU usage is missing: {reason}")

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.is_reaped()
            self._child = None
