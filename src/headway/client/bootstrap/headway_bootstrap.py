"""What `sitecustomize` starts in every Python process of a job, from Python 3.9 on.

Makes output line-buffered, has uncaught exceptions told, and makes `import headway` work where it
is not installed. It may meet any environment: nothing is imported that is not loaded already, and
whatever is wrong, the program runs as if we were not here. Nothing is written unless there is
something to tell: most Python processes of a job are helpers that never log.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any


# When one of these modules has been imported, that function of ours puts a logger in (`--autolog`).
AUTOLOG = {
    "transformers.trainer": "huggingface.autolog",
    "accelerate.tracking": "accelerate.register",
    "lightning.pytorch.trainer.trainer": "lightning.autolog",
    "pytorch_lightning.trainer.trainer": "lightning.autolog",
    "keras.src.callbacks.callback_list": "keras.autolog",
}
ENTRY_POINTS = """[mlflow.tracking_store]
headway = headway.compat.mlflow_store:HeadwayStore
"""


def _bootstrap() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    if "HEADWAY_SPOOL" not in os.environ or os.environ.get("HEADWAY_DISABLED", "") not in ("", "0"):
        return
    _buffer_lines()
    watch_stacks()
    package = os.environ.get("HEADWAY_PACKAGE") or os.path.dirname(os.path.dirname(here))
    sys.meta_path.append(_Finder(package))
    if os.environ.get("HEADWAY_AUTOLOG", "") not in ("", "0"):
        for module, maker in AUTOLOG.items():
            sys.meta_path.insert(0, Lookout(module, _logger_of(maker)))
    if os.environ.get("HEADWAY_COMPAT"):
        _answer_imports(os.environ["HEADWAY_COMPAT"])
    if os.environ.get("HEADWAY_FORWARD_EXCEPTIONS", "1") != "0":
        _watch_exceptions()
        _watch_fatal()
    _explain_breakpoints()
    if not (sys.stdout is not None and sys.stdout.isatty()):
        sys.meta_path.insert(0, Lookout("rich.live", _hint_terminal))
    watched: dict[str, Callable[[Any], None]] = {"logging": _watch_logging}
    if os.environ.get("RANK", "0") == "0" and "HEADWAY_ARGUMENTS_OF" not in os.environ:
        watched |= {
            "argparse": _watch_argparse,
            "absl.flags._flagvalues": _watch_absl,
            "hydra.core.utils": _watch_hydra,
        }
    for name, watch in watched.items():
        if name in sys.modules:
            watch(sys.modules[name])
        else:
            sys.meta_path.insert(0, Lookout(name, watch))


def _buffer_lines() -> None:
    """A file is block-buffered by default: a program that is killed would take its last lines with
    it.
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True)


def _explain_breakpoints() -> None:
    """`breakpoint()` reads commands from stdin. Where there is none, pdb ends the program with
    BdbQuit, which tells nobody why.
    """
    before = sys.breakpointhook

    def breakpointhook(*args: object, **named: object) -> "Any":
        is_pdb = os.environ.get("PYTHONBREAKPOINT", "") in ("", "pdb.set_trace")
        if is_pdb and sys.stdin is not None and not sys.stdin.isatty():
            frame = sys._getframe(1)
            sys.stderr.write(
                f"headway: breakpoint() in {frame.f_code.co_filename}:{frame.f_lineno}: stdin of a job "
                "is no terminal, so pdb cannot ask you. Start the program with plain python, "
                "or use `hw run --hold 1h …` and `hw shell` to look at it where it failed; "
                "--env PYTHONBREAKPOINT=0 passes over it.\n"
            )
        return before(*args, **named)

    sys.breakpointhook = breakpointhook


def _tell_hint(text: str) -> None:
    """Beside the program's output, not in it."""
    try:
        from headway.client.api import hint

        hint("terminal", text)
    except Exception:  # the program goes on without the hint
        return


def _hint_terminal(live: "Any") -> None:
    """Live displays of rich, and so Lightning's bars, draw nothing where there is no terminal: say
    so once, beside the program's output and not in it.
    """
    start = live.Live.start

    def hinted(self: "Any", *args: "Any", **named: "Any") -> "Any":
        live.Live.start = start
        if not getattr(getattr(self, "console", None), "is_terminal", True):
            _tell_hint("it draws only on a terminal (rich): --pty gives it one")
        return start(self, *args, **named)

    live.Live.start = hinted


class _Finder:
    """Finds `headway` when nothing else on the path did. At the end of the line: an installed one
    goes first.
    """

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> "Any":
        if name != "headway":
            return None
        external: Any = sys.modules["_frozen_importlib_external"]
        # the package, or the folder that it lies in
        for folder in (self.package, os.path.join(self.package, name)):
            init = os.path.join(folder, "__init__.py")
            if os.path.isfile(init):
                return external.spec_from_file_location(
                    name, init, submodule_search_locations=[folder]
                )
        return None


def _logger_of(maker: str) -> "Callable[[Any], None]":
    name, _, function = maker.partition(".")

    def put_in(module: object) -> None:
        try:
            __import__(f"headway.integrations.{name}")
            getattr(sys.modules[f"headway.integrations.{name}"], function)(module)
        # a release of that library that we do not know: it works as without us
        except Exception as error:
            sys.stderr.write(
                f"headway: --autolog of {name} does not work here: {type(error).__name__}: {error}\n"
            )

    return put_in


def _answer_imports(names: str) -> None:
    """`hw run --as wandb`: other trackers' packages are answered by headway.compat, imported when asked for."""
    for name in names.split(","):
        if name.strip() == "wandb":
            sys.meta_path.insert(0, _Wandb())
        elif name.strip() == "mlflow":
            sys.meta_path.append(_EntryPoints())


class _Wandb:
    """Finds `wandb` by loading headway.compat.wandb's own finder, which takes this one's place."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> "Any":
        if name != "wandb" and not name.startswith("wandb."):
            return None
        finder = self._finder()
        return finder.find_spec(name, path, target) if finder is not None else None

    def find_distributions(self, context: object = None) -> "Any":
        if getattr(context, "name", None) != "wandb":
            return ()
        finder = self._finder()
        return finder.find_distributions(context) if finder is not None else ()

    def _finder(self) -> "Any":
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        try:
            from headway.compat.wandb_finder import Finder
        # a package that is incomplete: the real wandb is better than none
        except Exception as error:
            sys.stderr.write(f"headway: wandb is not answered: {type(error).__name__}: {error}\n")
            return None
        found = Finder()
        sys.meta_path.insert(0, found)
        return found


class _EntryPoints:
    """Our plug-in for mlflow, told to `importlib.metadata` as an installed package would be. It finds
    no modules.
    """

    def find_spec(self, name: str, path: object = None, target: object = None) -> "Any":
        return None

    def find_distributions(self, context: object = None) -> "Any":
        name = getattr(context, "name", None)
        if name not in (None, "headway-plugins"):
            return ()
        from headway.compat.distribution import Stand

        return (Stand("headway-plugins", "1", ENTRY_POINTS),)


def _tell(where: str, error: "Any", thread: "str | None" = None) -> None:
    """The client is imported only now, when there is something to tell."""
    try:
        from headway.client.api import report_exception

        report_exception(where, error, thread)
    except Exception:  # the program is failing already; it must fail in its own way
        return


def _watch_exceptions() -> None:
    import atexit

    main_before, unraisable_before = sys.excepthook, sys.unraisablehook

    def excepthook(
        kind: "type[BaseException]", error: BaseException, tb: "TracebackType | None"
    ) -> None:
        if isinstance(error, BaseException):
            _tell("main", error)
        main_before(kind, error, tb)

    def unraisablehook(args: "Any", /) -> None:
        if "headway.client.api" in sys.modules and isinstance(args.exc_value, Exception):
            _tell("unraisable", args.exc_value)  # alone it is no reason to import anything
        unraisable_before(args)

    def at_exit() -> None:
        # set even when the program has replaced sys.excepthook
        error = getattr(sys, "last_value", None)
        if isinstance(error, BaseException) and not hasattr(sys, "ps1"):
            _tell("main", error)

    sys.excepthook, sys.unraisablehook = excepthook, unraisablehook
    atexit.register(at_exit)
    _watch_threads()


def _watch_threads() -> None:
    """`threading` takes its hook from `_thread` when it is imported, so we need not import it for
    this.
    """
    import _thread

    threading: Any = sys.modules.get("threading")
    before: Any = threading.excepthook if threading else _thread._excepthook

    def excepthook(args: "Any", /) -> None:
        if isinstance(args.exc_value, BaseException) and not isinstance(args.exc_value, SystemExit):
            _tell("thread", args.exc_value, getattr(args.thread, "name", None))
        before(args)

    if threading:
        threading.excepthook = excepthook
    else:
        _thread._excepthook = excepthook


def _watch_fatal() -> None:
    """A segmentation fault and its like leave a traceback on stderr, where the program has not seen
    to that itself.
    """
    import faulthandler  # a part of the interpreter: nothing is read for it

    if not faulthandler.is_enabled():
        faulthandler.enable(file=2)


STACKS_NAME = "hw-stacks"  # of the memory file; the agent looks for it below /proc/PID/fd
STACKS_FD = 700  # high, so that the program's own numbers stay as they would be
_stacks: "list[int]" = []  # the descriptor, while the signal is ours


def watch_stacks() -> None:
    """Have Python's own C handler (faulthandler) write the stacks of all threads when the agent
    asks by SIGURG. Also called by the client, for a script that was started without us.

    SIGURG, because a process that does not handle it ignores it: a question that comes too late
    or too early kills nobody. A memory file, because a file in the spool may lie on a network
    disk that hangs, and a signal handler must not. The handler needs neither the GIL nor a safe
    point, so that a thread that is stuck in C is seen as well.
    """
    if (
        sys.platform != "linux"
        or os.environ.get("HEADWAY_STACKS", "1") == "0"
        or _is_stacks(STACKS_FD)
    ):
        return
    try:
        import _signal  # type: ignore[import-not-found]

        if _signal.getsignal(_signal.SIGURG) not in (_signal.SIG_DFL, _signal.SIG_IGN):
            return  # the program uses it, and goes first
        _register_stacks()
        os.register_at_fork(after_in_child=_stacks_after_fork)
        _yield_signal(_signal)
    except (ImportError, AttributeError, OSError, ValueError, RuntimeError):
        return  # a kernel or a Python without one of these: the agent says so when asked


def _register_stacks() -> None:
    import faulthandler
    from _signal import SIGURG

    memory = os.memfd_create(STACKS_NAME)
    try:
        # opened anew for O_APPEND: the agent empties the file when it has grown
        path = "/proc/self/fd/" + str(memory)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    finally:
        os.close(memory)
    fd = _move_up(fd)
    faulthandler.register(SIGURG, file=fd, all_threads=True, chain=False)
    _stacks[:] = [fd]


def _move_up(fd: int) -> int:
    """To a number that no program counts on; it stays low where few are allowed."""
    try:
        os.fstat(STACKS_FD)
    except OSError:  # it is free
        try:
            moved = os.dup2(fd, STACKS_FD, inheritable=False)
        except OSError:  # above the limit
            return fd
        os.close(fd)
        return moved
    return fd


def _is_stacks(fd: int) -> bool:
    """Programs close descriptors that they do not know, and the numbers are given again."""
    try:
        return STACKS_NAME in os.readlink("/proc/self/fd/" + str(fd))
    except OSError:
        return False


def _close_stacks() -> None:
    fd = _stacks.pop()
    if _is_stacks(fd):
        os.close(fd)


def _stacks_after_fork() -> None:
    """A child writes to a file of its own; what it inherited is its parent's."""
    if not _stacks:
        return  # the program has taken the signal since
    try:
        _close_stacks()
        _register_stacks()
    except (OSError, ValueError, RuntimeError):
        return


def _yield_signal(_signal: "Any") -> None:
    """A program that sets a handler of its own for this signal gets it, and is asked no more."""
    before = _signal.signal

    def signal(number: "Any", handler: "Any", /) -> "Any":
        if number == _signal.SIGURG and _stacks:
            import faulthandler

            faulthandler.unregister(number)
            _close_stacks()
        return before(number, handler)

    signal.__doc__ = before.__doc__
    _signal.signal = signal


class Lookout:
    """A finder that finds nothing by itself, but hands one module on when it has been imported.
    Also for the client.
    """

    def __init__(self, name: str, then: "Callable[[Any], None]") -> None:
        self.name, self.then = name, then

    def find_spec(self, name: str, path: object = None, target: object = None) -> "Any":
        if name != self.name:
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        external: Any = sys.modules["_frozen_importlib_external"]
        spec = external.PathFinder.find_spec(name, path, target)
        loader = getattr(spec, "loader", None)
        if loader is None:
            return None
        run = loader.exec_module

        def exec_module(module: object) -> None:
            del loader.exec_module
            run(module)
            try:
                self.then(module)
            except Exception:  # the program's import must not fail because of us
                return

        try:
            loader.exec_module = exec_module
        except AttributeError:
            return None  # a loader of another make; the import goes its way without us
        return spec


def _watch_logging(logging: "Any") -> None:
    """The client is imported when a record of INFO or above is about to be made; most programs make
    none.
    """
    logger = getattr(logging, "Logger", None)
    before: Any = getattr(logger, "isEnabledFor", None)
    if logger is None or before is None:
        return
    low = os.environ.get("HEADWAY_LOG_LEVEL", "").strip().upper()
    least = (
        int(low)
        if low.isdigit()
        else {"DEBUG": 10, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}.get(low, 20)
    )

    loaded: list[bool] = []

    def is_enabled_for(self: "Any", level: int) -> "Any":
        if level < least or loaded:
            return before(self, level)
        loaded.append(True)
        if logger.isEnabledFor is is_enabled_for:  # else somebody has wrapped it
            logger.isEnabledFor = before
        try:
            from headway.client.api import watch_logging

            watch_logging()
        except Exception:  # the program's log must go on without us
            return before(self, level)
        return self.isEnabledFor(level)

    logger.isEnabledFor = is_enabled_for


# -- arguments as the program sees them, with its defaults: the config of a job that tells none


def _watch_argparse(argparse: "Any") -> None:
    parser = argparse.ArgumentParser
    before: Any = parser.parse_known_args

    def parse_known_args(
        self: "Any", args: "Any" = None, namespace: "Any" = None, *more: "Any", **named: "Any"
    ) -> "Any":
        found = before(self, args, namespace, *more, **named)
        # sub-parsers and parsers of libraries are called with some of the words
        # and hydra parses its own, before it composes the program's config
        of_hydra = "hydra" in sys.modules and self.description == "Hydra"
        if (args is None or args == sys.argv[1:]) and not of_hydra:
            _note_arguments(lambda: vars(found[0]), list(found[1]))
        return found

    parse_known_args.__doc__ = before.__doc__
    parser.parse_known_args = parse_known_args


def _watch_absl(flagvalues: "Any") -> None:
    kind = flagvalues.FlagValues
    before: Any = kind.__call__

    def values(flags: "Any") -> "dict[str, Any]":
        """Those that the program itself has defined."""
        by_module = flags.flags_by_module_dict()
        own = [
            flag
            for name, some in by_module.items()
            if name.partition(".")[0] != "absl"
            for flag in some
        ]
        return {flag.name: flag.value for flag in own}

    def call(self: object, argv: object, *more: object, **named: object) -> "Any":
        rest = before(self, argv, *more, **named)
        _note_arguments(lambda: values(self))
        return rest

    kind.__call__ = call


def _watch_hydra(utils: "Any") -> None:
    before: Any = utils.run_job

    def run_job(*args: "Any", **named: "Any") -> "Any":
        config = named.get("config", args[1] if len(args) > 1 else None)
        if config is not None:
            _note_arguments(lambda: {key: config[key] for key in config if key != "hydra"})
        return before(*args, **named)

    utils.run_job = run_job


def _note_arguments(read: "Callable[[], dict[str, Any]]", rest: "list[str] | None" = None) -> None:
    """Of the first program of a job that is not a library's: what that starts does not count."""
    try:
        pid = str(os.getpid())
        if os.environ.get("HEADWAY_ARGUMENTS_OF", pid) != pid or not _is_own_code():
            return
        values = {
            str(key): value
            for key, value in read().items()
            if not (callable(value) or str(key).startswith("_"))
        }
        os.environ["HEADWAY_ARGUMENTS_OF"] = pid
        from headway.client.api import note_arguments

        note_arguments(values, rest or [])
    except Exception:  # the program's arguments are parsed; it goes on without us
        return


def _is_own_code() -> bool:
    """Whether a caller lies outside of what is installed: torchrun and its like parse, too."""
    library = os.path.dirname(os.path.abspath(os.__file__))
    programs = os.path.join(sys.prefix, "bin")
    frame: Any = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename
        installed = path.startswith(("<", library, programs)) or "-packages" in path
        if not installed and os.path.abspath(path) != os.path.abspath(__file__):
            return True
        frame = frame.f_back
    return False


def _chain() -> None:
    """Run the sitecustomize that we stand in front of; what it raises is its own matter, as without
    us.
    """
    external: Any = sys.modules["_frozen_importlib_external"]
    internal: Any = sys.modules["_frozen_importlib"]
    spec = external.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = internal.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _safely() -> None:
    try:
        _bootstrap()
    except Exception:  # whatever is off here, the program runs without us
        return


def run() -> None:
    _safely()
    _chain()
