"""The program of a container engine (docker, podman) as functions: run it, and read what it says of
containers.

Called by `engines/docker/engine.py`. The program and not the HTTP API: it is the same for both
engines, it knows contexts, rootless sockets and `--gpus`, and Podman has no daemon that could be
asked (`docs/decisions/008-containers.md`). Every call has a time limit, and its failures are told
in words. An engine that once did not answer in time is asked in the background from then on, and
every call fails at once until it answers: whoever asks shall not wait for it again.
"""

import csv
import io
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from headway.engines import bounded_run
from headway.model.errors import RefusedError, UnreachableError
from headway.model.limits import CONTAINER_ASK_S, CONTAINER_CALL_S
from headway.settings.nearest import did_you_mean

_STATE = "{{.Name}}\t{{.State.Status}}\t{{.State.ExitCode}}\t{{.State.OOMKilled}}"
_UNREACHABLE = (
    "cannot connect",
    "permission denied while",
    "error during connect",
    "connection refused",
    "is the docker",
)
_NONE = "no such"
_IDS_MAX = 200  # in one call: a command line has an end


class Failed(Exception):
    """The program answered, and the answer is no. Its words."""


@dataclass(frozen=True, slots=True)
class Container:
    """What the engine says of one container; `status` is its own word."""

    status: str
    exit_code: int
    oom: bool

    @property
    def runs(self) -> bool:
        return self.status in ("running", "paused", "restarting", "removing", "stopping")

    @property
    def word(self) -> str:
        if self.status not in ("exited", "dead", "stopped"):
            return self.status
        return f"{self.status} with {self.exit_code}{', killed for want of memory' if self.oom else ''}"


class Program:
    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self._silent_s: float | None = None  # since when it does not answer
        self._closed = threading.Event()
        self._lock = threading.Lock()

    def close(self) -> None:
        self._closed.set()

    def run(self, *args: str, timeout_s: float = CONTAINER_CALL_S) -> str:
        done = self.call(args, timeout_s)
        if done.returncode != 0:
            raise self._failure(done.stderr)
        return done.stdout

    def call(
        self, args: Sequence[str], timeout_s: float = CONTAINER_CALL_S
    ) -> "subprocess.CompletedProcess[str]":
        name, since_s = self.words[0], self._silent_s
        if since_s is not None:
            raise UnreachableError(
                f"{name} has not answered for {time.monotonic() - since_s:.0f} s"
            )
        try:
            return self._do(args, timeout_s)
        except FileNotFoundError:
            raise UnreachableError(
                f"there is no program {name} here", f"install {name}, or name it: `command:`"
            ) from None
        except subprocess.TimeoutExpired:
            self._await_answer()
            raise UnreachableError(
                f"{name} {args[0]} did not answer within {timeout_s:g} s"
            ) from None
        except bounded_run.TooMuchError as error:
            raise UnreachableError(f"{name} {args[0]} cannot be understood: {error}") from None
        except OSError as error:
            raise UnreachableError(f"{name} cannot be run: {error.strerror}") from None

    def _do(self, args: Sequence[str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
        return bounded_run.run([*self.words, *args], timeout_s=timeout_s)

    def _await_answer(self) -> None:
        with self._lock:
            if self._silent_s is None:
                self._silent_s = time.monotonic()
                threading.Thread(
                    target=self._ask_until_answered, name="headway-containers", daemon=True
                ).start()

    def _ask_until_answered(self) -> None:
        """Any answer will do, also a refusal."""
        while not self._closed.wait(1.0):
            try:
                self._do(["version"], CONTAINER_CALL_S)
            except subprocess.TimeoutExpired:
                continue
            except (OSError, bounded_run.TooMuchError):
                break  # the next call tells what is wrong with it
            break
        self._silent_s = None

    def _failure(self, told: str) -> Failed | UnreachableError:
        lines = [
            line.strip()
            for line in told.splitlines()
            if line.strip() and not line.startswith(("Run '", "See '"))
        ]
        told_by_engine = [line for line in lines if "response from daemon" in line]
        text = ([*lines, *told_by_engine][-1] if lines else "it gave no reason")[:500]
        if any(word in told.lower() for word in _UNREACHABLE):
            return UnreachableError(
                f"{self.words[0]} does not reach its engine: {text}", "start it, or see DOCKER_HOST"
            )
        return Failed(text)

    def states(self, names: Sequence[str]) -> dict[str, Container | None]:
        """Of each container; None where the engine is sure that there is none."""
        found: dict[str, Container | None] = {}
        for first in range(0, len(names), _IDS_MAX):
            found |= self._states(names[first : first + _IDS_MAX])
        return found

    def _states(self, names: Sequence[str]) -> dict[str, Container | None]:
        done = self.call(
            ["inspect", "--type", "container", "--format", _STATE, *names], CONTAINER_ASK_S
        )
        found: dict[str, Container | None] = {}
        for line in done.stdout.splitlines():
            name, status, code, oom = [*line.split("\t"), "", "", "", ""][:4]
            if status:
                found[name.removeprefix("/")] = Container(
                    status,
                    int(code) if code.isascii() and code.isdigit() and len(code) < 10 else -1,
                    oom == "true",
                )
        if done.returncode != 0 and _NONE not in done.stderr.lower():
            failure = self._failure(done.stderr)
            raise (
                failure if isinstance(failure, UnreachableError) else UnreachableError(str(failure))
            )
        missing = [name for name in names if name not in found]
        if missing and _NONE not in done.stderr.lower():
            return found  # an answer that cannot be understood says nothing of the others
        return found | dict.fromkeys(missing)

    def image_id(self, image: str) -> str:
        """RefusedError, with the nearest name that is there, for an image that is not."""
        try:
            return self.run("image", "inspect", "--format", "{{.Id}}", image).strip()
        except Failed as error:
            if _NONE not in str(error).lower() and "not known" not in str(error).lower():
                raise RefusedError(f"the image {image} cannot be used: {error}") from None
        there = sorted(set(self.run("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split()))
        short = {name.removeprefix("localhost/"): name for name in there if "<none>" not in name}
        near = did_you_mean(image if ":" in image else f"{image}:latest", short)
        names = (
            f"images here: {', '.join(sorted(short)[:10])}" if short else "there are no images here"
        )
        raise RefusedError(
            f"there is no image {image[:200]}{near}",
            f"{names}; to fetch it: {self.words[0]} pull {image}",
        )


def mount(source: str, target: str, *, read_only: bool = False, follow: bool = False) -> list[str]:
    """Words for `create`. Paths may hold anything, commas and quotes included. `follow`: what is
    mounted below the source later appears in the container too.
    """
    text = io.StringIO()
    fields = ["type=bind", f"src={source}", f"dst={target}", *(["readonly"] if read_only else [])]
    fields += ["bind-propagation=rslave"] if follow else []
    csv.writer(text, lineterminator="").writerow(fields)
    return ["--mount", text.getvalue()]
