"""What an exception says by its type, its message and the files it came through.

The tables in `rules/` are asked first (a message such as "No space left on device" says more than its type); this
is the answer for what they do not know.
"""

import re

from headway.diagnose.rule import Traceback

# Raised by launchers and pools about a child: the child's own error is the cause.
WRAPPERS = frozenset(
    {
        "ChildFailedError",
        "CalledProcessError",
        "ProcessRaisedException",
        "ProcessExitedException",
        "SignalException",
        "SystemExit",
        "BrokenProcessPool",
        "KilledWorker",
        "RayActorError",
        "ActorDiedError",
        "ActorUnavailableError",
        "WorkerCrashedError",
        "WorkerGroupError",
        "TrainingFailedError",
        "TerminatedWorkerError",
        "BrokenPipeError",
        "RemoteTraceback",
        "_RemoteTraceback",
        "CancelledError",
        "GeneratorExit",
        "ExecuteError",
        "SimplifiedTraceback",
        "UnfilteredStackTrace",
    }
)
_WRAPS = re.compile(
    r"^Caught \w+ in |in DataLoader worker process|in replica \d+ on device|^Error in call to target"
)

_BY_NAME = {
    "ModuleNotFoundError": ("import_error", 0.96),
    "ImportError": ("import_error", 0.87),
    "FileNotFoundError": ("missing_file", 0.93),
    "NotADirectoryError": ("missing_file", 0.85),
    "PermissionError": ("permission_or_credentials", 0.92),
    "MemoryError": ("host_oom", 0.95),
    "_ArrayMemoryError": ("host_oom", 0.95),
    "OutOfMemoryError": ("gpu_oom", 0.93),
    "KeyboardInterrupt": ("cancelled", 0.88),
    "UnidentifiedImageError": ("bad_sample", 0.95),
    "ParserError": ("bad_sample", 0.85),  # of pandas: a row of the data
    "Forbidden": ("permission_or_credentials", 0.9),
    "Unauthorized": ("permission_or_credentials", 0.9),
    "NameError": ("code_exception", 0.93),
    "UnboundLocalError": ("code_exception", 0.95),
    "TypeError": ("code_exception", 0.9),
    "IndexError": ("code_exception", 0.9),
    "KeyError": ("code_exception", 0.88),
    "AttributeError": ("code_exception", 0.88),
    "ZeroDivisionError": ("code_exception", 0.92),
    "AssertionError": ("code_exception", 0.82),
    "NotImplementedError": ("code_exception", 0.82),
    "RecursionError": ("code_exception", 0.93),
    "SyntaxError": ("code_exception", 0.94),
    "IndentationError": ("code_exception", 0.94),
    "ValueError": ("code_exception", 0.78),
    "RuntimeError": ("code_exception", 0.76),
    "StopIteration": ("code_exception", 0.85),
    "ConnectionRefusedError": ("rendezvous", 0.7),
    "ConnectionResetError": ("remote_service", 0.62),
    "ConnectionAbortedError": ("remote_service", 0.62),
    "TimeoutError": ("remote_service", 0.5),
    "UnpicklingError": ("checkpoint_truncated", 0.75),
    "BadZipFile": ("checkpoint_truncated", 0.72),
    "EOFError": ("checkpoint_truncated", 0.5),
    # conda complains and the script goes on
    "CondaError": ("code_exception", 0.4),
    "CommandNotFoundError": ("code_exception", 0.4),
}

_AMBIGUOUS = frozenset({"AssertionError", "NotImplementedError", "ImportError"})

# Types that say it themselves, whatever words the message happens to hold.
_PLAIN_TYPES = frozenset(
    {
        "FileNotFoundError",
        "PermissionError",
        "MemoryError",
        "_ArrayMemoryError",
        "KeyboardInterrupt",
        "NameError",
        "UnboundLocalError",
        "ZeroDivisionError",
        "RecursionError",
        "IndexError",
        "KeyError",
    }
)
_SAID_OF_PLAIN_TYPES = frozenset({"disk_full", "checkpoint_mismatch", "shm_or_loader_worker"})

_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.\d+/")
_LOADS_CHECKPOINT = re.compile(
    r"serialization\.py|load_state_dict|load_checkpoint|torch_load|modeling_utils\.py|safetensors|from_pretrained"
)
_READS_DATA = re.compile(
    r"(?i)dataset|data_?load|collate|fetch\.py|/data/|webdataset|image|decode|tokeniz"
)
_CONFIG_FILE = re.compile(r"(?i)['\"][^'\"]*(?:config|cfg|settings|hparams)\w*\.json['\"]")


def is_wrapper(one: Traceback) -> bool:
    return one.name in WRAPPERS or bool(_WRAPS.search(one.message))


def is_builtin(one: Traceback) -> bool:
    return one.name in _BY_NAME


def is_ambiguous(one: Traceback) -> bool:
    """Raised for several reasons: an assertion may check a configuration, a keyword may have gone with
    a version.
    """
    return one.name in _AMBIGUOUS or "unexpected keyword argument" in one.message


def may_mean(one: Traceback, cause: str) -> bool:
    """Whether words of the message may say that it is this, against the type."""
    return one.name not in _PLAIN_TYPES or cause in _SAID_OF_PLAIN_TYPES


def explain(one: Traceback) -> tuple[str, float]:
    """(cause, confidence) of an exception that no rule knows by its words."""
    name = one.name
    inner_frames = " ".join(one.frames[-8:])
    if name in ("UnpicklingError", "EOFError", "BadZipFile"):
        if _READS_DATA.search(inner_frames) and not _LOADS_CHECKPOINT.search(inner_frames):
            return "bad_sample", 0.7
        if name == "EOFError" and not _LOADS_CHECKPOINT.search(inner_frames):
            return "code_exception", 0.5
        return "checkpoint_truncated", 0.8
    if name == "JSONDecodeError":
        if any(map(_CONFIG_FILE.search, one.sources)):
            return "config_error", 0.78
        return "bad_sample", 0.85 if _READS_DATA.search(inner_frames) else 0.7
    if name == "UnicodeDecodeError":
        return "bad_sample", 0.72
    if _does_not_fit(one):
        return "version_conflict", 0.82
    known = _BY_NAME.get(name)
    if known:
        return known
    if name.endswith(("ConfigError", "ConfigurationError", "ValidationError")):
        return "config_error", 0.8
    return "code_exception", 0.7


def _does_not_fit(one: Traceback) -> bool:
    """A library calls another one in a way that this does not know (any more)."""
    if not one.frames or not _LIBRARY.search(one.frames[-1]):
        return False
    if one.name == "AttributeError" and re.match(r"module '[\w.]+' has no attribute", one.message):
        return True
    if one.name == "TypeError" and "unexpected keyword argument" in one.message:
        return True
    return one.name == "ImportError" and "cannot import name" in one.message
