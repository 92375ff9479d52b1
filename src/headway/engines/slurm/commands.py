"""Runs Slurm's commands with a time limit, here; `place_ssh.py` has the same for a login node.
Called by the engine alone.

What a command prints is data; why it failed is told with Slurm's own last line. A controller that
does not answer is `UnreachableError`, so nothing follows from it; a request that Slurm refuses is
`RefusedError`, and one that it does not take for now `LaterError`.
"""

import os
import re
import secrets
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from headway.engines import bounded_run
from headway.engines.slurm import refusal
from headway.model.errors import HeadwayError, LaterError, RefusedError, UnreachableError

TIMEOUT_S: Final = 30.0
_NOT_FOUND: Final = 127  # says a shell
# Its standard input is a text; `mark` ends what it prints, with its exit code. The first that fails
# is the last.
_STEP: Final = """\
{words} <<'{mark}'
{text}
{mark}
code=$?
echo "{mark} $code"
echo "{mark}" >&2
[ "$code" -eq 0 ] || exit 0
"""
_AWAY: Final = (
    "unable to contact slurm controller", "connection refused", "connection timed out", "socket timed out",
    "zero bytes were transmitted", "slurm backup controller", "unexpected message received", "transport endpoint",
    "could not resolve hostname", "no route to host", "munge", "resource temporarily unavailable", "broken pipe",
    "connection closed", "connection reset", "kex_exchange", "permission denied (publickey",
    "establish a configuration source",
)  # fmt: skip


class Commands:
    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._env = {**os.environ, **(env or {})}

    def run(
        self, argv: Sequence[str], text: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> str:
        """What the command prints. `text` is its standard input."""
        try:
            done = bounded_run.run(argv, text or "", timeout_s=timeout_s, env=self._env)
        except FileNotFoundError:
            raise not_here(argv[0]) from None
        except subprocess.TimeoutExpired as slow:
            raise too_late(argv[0], timeout_s, slow.stderr) from None
        except bounded_run.TooMuchError as error:
            raise UnreachableError(f"{argv[0]} cannot be understood: {error}") from None
        except OSError as error:
            raise UnreachableError(f"{argv[0]} could not be run: {error}") from None
        if done.returncode == 0:
            return done.stdout
        raise failure(argv[0], done.returncode, done.stderr.strip() or done.stdout.strip())

    def run_each(self, argv: Sequence[str], texts: Sequence[str]) -> list[str | HeadwayError]:
        """Once for each text, one after the other. Where one is not answered, or is taken later, so
        are those behind it.
        """
        found: list[str | HeadwayError] = []
        for text in texts:
            try:
                found.append(self.run(argv, text))
            except (UnreachableError, LaterError) as error:
                found += [error] * (len(texts) - len(found))
                break
            except RefusedError as error:
                found.append(error)
        return found


class ShellCommands(Commands):
    """Here: a shell runs one command after the other, as a person's own loop would, and each costs
    this process next to nothing.
    """

    def run_each(self, argv: Sequence[str], texts: Sequence[str]) -> list[str | HeadwayError]:
        if len(texts) < 2:
            return super().run_each(argv, texts)
        found: list[str | HeadwayError] = []
        while len(found) < len(texts):
            found += self._run_some(argv, texts[len(found) :])
            if isinstance(found[-1], UnreachableError | LaterError):
                found += [found[-1]] * (len(texts) - len(found))
        return found

    def _run_some(self, argv: Sequence[str], texts: Sequence[str]) -> list[str | HeadwayError]:
        """Up to the first that fails, which is the last in the answer."""
        mark = f"headway-{secrets.token_hex(16)}"
        words = shlex.join(argv)
        program = "".join(
            _STEP.format(words=words, text=text.removesuffix("\n"), mark=mark) for text in texts
        )
        try:
            out, err, why = self._talk(program)
        except OSError as error:
            return [UnreachableError(f"{argv[0]} could not be run: {error}")]
        answers = re.findall(rf"(.*?){mark} ([0-9]+)\n", out, re.DOTALL)
        found: list[str | HeadwayError] = []
        for (said, code), reason in zip(answers, err.split(mark), strict=False):
            found.append(
                said if code == "0" else failure(argv[0], int(code), reason.strip() or said.strip())
            )
        if len(found) < len(texts) and not (found and isinstance(found[-1], HeadwayError)):
            found.append(
                too_late(argv[0], TIMEOUT_S, err)
                if why is None
                else UnreachableError(f"{argv[0]} {why}")
            )
        return found

    def _talk(self, program: str) -> tuple[str, str, str | None]:
        """What a shell prints over it, and how it ended where that is too early; None: it took too
        long. As long as it prints, it may go on.
        """
        given: bytes | None = program.encode()
        printed, why = 0, "ended before it had answered"
        with subprocess.Popen(
            ["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self._env,
            start_new_session=True,
        ) as child:  # fmt: skip
            while True:
                try:
                    out, err = child.communicate(given, timeout=TIMEOUT_S)
                    break
                except subprocess.TimeoutExpired as slow:
                    given, out, err = None, slow.output or b"", slow.stderr or b""
                if len(out) == printed:
                    os.killpg(child.pid, signal.SIGKILL)
                    return out.decode(errors="replace"), err.decode(errors="replace"), None
                printed = len(out)
        return out.decode(errors="replace"), err.decode(errors="replace"), why


def failure(program: str, code: int, said: str) -> UnreachableError | RefusedError:
    if code == _NOT_FOUND:
        return not_here(program)
    if refusal.is_full(said) or not any(word in said.lower() for word in _AWAY):
        return refusal.read(code, said)
    lines = refusal.lines_of(said)
    return UnreachableError(f"{program}: {lines[-1]}", "it is tried again")


def too_late(program: str, timeout_s: float, said: bytes | str | None) -> UnreachableError:
    """Of a full queue sbatch tells first, and then tries for longer than we wait."""
    text = said.decode(errors="replace") if isinstance(said, bytes) else said or ""
    return UnreachableError(
        refusal.FULL
        if refusal.is_full(text)
        else f"{program} did not answer within {timeout_s:g} s"
    )


def not_here(program: str) -> UnreachableError:
    hint = "Slurm's commands must be on the PATH, or `host` name a login node"
    return UnreachableError(f"{program} is not on this machine", hint)
