"""`mount:` of a folder: the command line of a mount tool, its start and its end. Called by
`main.py`.

Keys reach the tool by its environment alone. The tools run in the foreground, as children of the
carrier; they outlive it, so that a carrier that is started again finds what is mounted.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from headway.carrier.carrier_state import State
from headway.carrier.folder_paths import read_json, write_json
from headway.model.errors import RefusedError, UnreachableError, UsageError
from headway.model.json_types import JsonMapping
from headway.model.limits import FOLDER_END_S, FOLDER_MOUNT_S
from headway.storage.location import AZURE, LOCAL, S3, Place
from headway.wire import identity

TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "blobfuse2": (AZURE,),
    "s3fs": (S3,),
    "rclone": (AZURE, S3),
}
_FUSE: Final = "/dev/fuse"
_UNMOUNTS: Final = (("fusermount3", "-u"), ("fusermount", "-u"), ("umount",))
# of one that is dead: others may still stand in it
_LAZY: Final = (("fusermount3", "-uz"), ("umount", "-l"))
ANSWER_S = 5.0  # a tool that is asked for nothing but its name, or was unmounted
TOOL: Final = ".tool"  # who mounts, beside the point
_REMOTE: Final = "headway"  # rclone's name for the account, of which its environment tells the rest
_AWS: Final = {"key_id": "ACCESS_KEY_ID", "secret": "SECRET_ACCESS_KEY", "token": "SESSION_TOKEN"}
_STEP_S: Final = 0.05
_SENT_STEP_S: Final = 0.5  # each look reads a file for every file of the cache
_WORDS: Final = "its words are in the agent's log: hw logs --stream agent ID"


@dataclass(frozen=True, slots=True)
class Words:
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict, repr=False)
    alone: bool = False  # what the environment says of the cloud is of somebody else


def check(folder: JsonMapping, source: Place, path: str | None, *, here: bool = True) -> None:
    """UsageError in words for what cannot be mounted. `here`: on this machine; else only what holds
    everywhere.
    """
    tool, name = str(folder["mount"]), folder["name"]
    if tool not in TOOLS:
        raise UsageError(f"folders.{name}.mount is {tool[:40]!r}", f"one of {', '.join(TOOLS)}")
    if source.kind == LOCAL:
        raise UsageError(
            f"the folder {name} is on this machine already: nothing is to mount",
            "leave `mount` out",
        )
    if source.kind not in TOOLS[tool]:
        fitting = ", ".join(known for known, kinds in TOOLS.items() if source.kind in kinds)
        raise UsageError(f"{tool} cannot mount {source}", f"use {fitting}")
    if here and shutil.which(tool, path=path) is None:
        raise UsageError(f"the folder {name} is to be mounted with {tool}, which is not installed here",
                         f"install {tool}, or leave `mount` out: the folder is then copied")  # fmt: skip
    if here and not os.access(_FUSE, os.R_OK | os.W_OK):
        raise UsageError(f"the folder {name} cannot be mounted: {_FUSE} is not there or not open to this account",
                         "leave `mount` out: the folder is then copied")  # fmt: skip


def words(
    folder: JsonMapping, source: Place, account: Mapping[str, str], point: str, cache: str
) -> Words:
    """What is run. The person's own options come last, so that they win."""
    made = {"rclone": _rclone, "s3fs": _s3fs, "blobfuse2": _blobfuse2}[str(folder["mount"])]
    found = made(source, account, point, cache, folder["mode"] == "ro")
    return Words([*found.argv, *folder["options"]], found.env, alone=bool(account))


def _rclone(source: Place, account: Mapping[str, str], point: str, cache: str, ro: bool) -> Words:
    prefix = f"RCLONE_CONFIG_{_REMOTE.upper()}_"
    env = {"TYPE": "azureblob" if source.kind == AZURE else "s3"}
    if source.kind == S3:
        env |= {"PROVIDER": "Other" if "endpoint" in account else "AWS"}
        env |= {theirs: account[ours] for ours, theirs in _AWS.items() if ours in account}
        env |= {name.upper(): account[name] for name in ("endpoint", "region") if name in account}
        env |= {} if "secret" in account else {"ENV_AUTH": "true"}
    else:
        env |= {"ACCOUNT": account["account"]} if "account" in account else {}
        env |= {"KEY": account["key"]} if "key" in account else {}
        env |= (
            {"ENDPOINT": account["endpoint"]}
            if "endpoint" in account and "sas" not in account
            else {}
        )
        env |= {"SAS_URL": _sas_url(source, account)} if "sas" in account else {}
    argv = [
        "rclone",
        "mount",
        f"{_REMOTE}:{source.container}/{source.path}",
        point,
        "--cache-dir",
        cache,
    ]
    argv += ["--read-only"] if ro else ["--vfs-cache-mode", "writes", "--vfs-write-back", "0s"]
    return Words(
        argv,
        {**{prefix + name: value for name, value in env.items()}, "RCLONE_CONFIG": "/notfound"},
    )


def _sas_url(source: Place, account: Mapping[str, str]) -> str:
    """A token of one container (`sr=c`) is for an address that names it."""
    base = account.get("endpoint") or f"https://{account.get('account', '')}.blob.core.windows.net"
    token = account["sas"].removeprefix("?")
    inside = source.container if "sr=c" in token.split("&") else ""
    return f"{base.rstrip('/')}/{inside}?{token}"


def _s3fs(source: Place, account: Mapping[str, str], point: str, cache: str, ro: bool) -> Words:
    bucket = source.container + (f":/{source.path.strip('/')}" if source.path.strip("/") else "")
    argv = ["s3fs", bucket, point, "-f", "-o", f"tmpdir={cache}"]
    if "endpoint" in account:
        argv += ["-o", f"url={account['endpoint']}"]
        argv += [] if account.get("virtual_hosted") == "True" else ["-o", "use_path_request_style"]
    argv += ["-o", f"endpoint={account['region']}"] if "region" in account else []
    argv += ["-o", "ro"] if ro else []
    env = {
        "AWS" + theirs.replace("_", ""): account[ours]
        for ours, theirs in _AWS.items()
        if ours in account
    }
    return Words(argv, env)


def _blobfuse2(
    source: Place, account: Mapping[str, str], point: str, cache: str, ro: bool
) -> Words:
    argv = [
        "blobfuse2",
        "mount",
        point,
        f"--container-name={source.container}",
        f"--tmp-path={cache}",
        "--foreground",
    ]
    argv += [f"--subdirectory={source.path.strip('/')}"] if source.path.strip("/") else []
    argv += ["--read-only"] if ro else []
    names = {"account": "AZURE_STORAGE_ACCOUNT", "key": "AZURE_STORAGE_ACCESS_KEY",
             "sas": "AZURE_STORAGE_SAS_TOKEN", "endpoint": "AZURE_STORAGE_BLOB_ENDPOINT"}  # fmt: skip
    env = {theirs: account[ours] for ours, theirs in names.items() if ours in account}
    kind = next((name for name in ("key", "sas") if name in account), None)
    return Words(argv, env | ({"AZURE_STORAGE_AUTH_TYPE": kind} if kind else {}))


# -- doing


def mount(found: Words, point: str, log: int, state: State) -> None:
    """Start the tool, unless it is mounted there already, and wait until it is. What a killed tool
    has left makes room; one that hangs stays: it may be at work for others.
    """
    if is_mounted(point):
        if _answers(point) is not False:
            return
        if why := unmount(point, remove=False):
            raise UnreachableError(
                f"what a killed mount tool left at {point} could not be unmounted: {why}", _WORDS
            )
    os.makedirs(point, mode=0o700, exist_ok=True)
    cloud = ("AWS_", "AZURE_") if found.alone else ()
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(cloud)},
        **found.env,
    }
    try:
        child = subprocess.Popen(
            found.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env
        )
    except FileNotFoundError:
        node = os.uname().nodename
        raise UsageError(
            f"the mount tool {found.argv[0]} is not installed on {node}", "leave `mount` out"
        ) from None
    _note_tool(point, child.pid)
    try:
        _await_mount(child, found.argv[0], point, state)
    # also when the job is stopped: a tool that is not waited for any more must not mount later
    except BaseException:
        child.kill()
        child.wait()
        raise


def _await_mount(child: "subprocess.Popen[bytes]", tool: str, point: str, state: State) -> None:
    deadline_s = time.monotonic() + FOLDER_MOUNT_S
    while not is_mounted(point):
        code = child.poll()
        if code is not None:
            raise UnreachableError(f"{tool} ended with {code} before it had mounted", _WORDS)
        if time.monotonic() >= deadline_s:
            raise UnreachableError(f"{tool} has not mounted within {FOLDER_MOUNT_S:g} s", _WORDS)
        state.check_stop()
        time.sleep(_STEP_S)


def is_mounted(point: str) -> bool:
    """By the kernel's own list: a mount whose tool was killed cannot be looked into, but is there."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            points = {line.split(" ")[1] for line in file}
    except OSError:
        return os.path.ismount(point)
    # the point itself is not asked: a tool that hangs would hold us
    above, name = os.path.split(point)
    return _escaped(os.path.join(os.path.realpath(above), name)) in points


def _escaped(path: str) -> str:
    """As the kernel's lists of mounts have it."""
    for char in "\\ \t\n":
        path = path.replace(char, f"\\{ord(char):03o}")
    return path


def is_shared(path: str) -> bool:
    """Whether other mount namespaces, such as those of containers, hear of what is mounted below:
    the mount that holds the path, or what there is of it, is a shared one.
    """
    real = f"{_escaped(os.path.realpath(path))}/"
    shared, longest = False, 0
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            rows = [line.split(" ") for line in file]
    except OSError:
        return False
    for row in rows:  # of two on one point, the later lies above
        point = f"{row[4].rstrip('/')}/"
        if real.startswith(point) and len(point) >= longest:
            shared, longest = (
                any(word.startswith("shared:") for word in row[6 : row.index("-")]),
                len(point),
            )
    return shared


def share(folder: str) -> None:
    """Make it a mount of its own, of which others hear. Needs root."""
    for words in (["mount", "--bind", folder, folder], ["mount", "--make-shared", folder]):
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=FOLDER_MOUNT_S
        )
        if done.returncode != 0:
            raise RefusedError(
                f"containers cannot see what is mounted here: {done.stderr.strip()}",
                "leave `mount` out",
            )


def unsent(cache: str) -> list[str]:
    """Files that rclone still has to send, by what it notes of each in its cache. The other tools
    send on close.
    """
    found = []
    for folder, _, names in os.walk(os.path.join(cache, "vfsMeta")):
        for name in names:
            try:
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    dirty = json.load(file).get("Dirty") is True
            except (OSError, ValueError):
                continue  # it is being replaced, and looked at again
            found += [name] if dirty else []
    return sorted(found)


def wait_sent(cache: str) -> list[str]:
    """What is not sent after all, when a long time is over. Others may write meanwhile, and are not
    waited for.
    """
    deadline_s = time.monotonic() + FOLDER_END_S
    left = unsent(cache)
    while left and time.monotonic() < deadline_s:
        time.sleep(_SENT_STEP_S)
        now = set(unsent(cache))
        left = [name for name in left if name in now]
    return left


def unmount(
    point: str, programs: Sequence[tuple[str, ...]] = _UNMOUNTS, *, remove: bool = True
) -> str | None:
    """None, or why it is still mounted. The tools send what they hold before they let go; one that
    does not answer is ended, and what waits for it with it. `remove`: the point, too, which must
    not go where it is mounted on another node.
    """
    told = _unmount(point, programs)
    if is_mounted(point) and not _answers(point):
        _end_tool(point)
        told = _unmount(point, (*programs, *_LAZY)) or told
    if is_mounted(point):
        return told or "it is busy"
    _end_tool(point)
    with suppress(FileNotFoundError):
        if remove:
            os.rmdir(point)
    return None


def _unmount(point: str, programs: Sequence[tuple[str, ...]]) -> str:
    told = ""
    for program in programs:
        if not is_mounted(point):
            break
        told = _run([*program, point], FOLDER_MOUNT_S) or told
    return told


def _run(words: list[str], timeout_s: float) -> str | None:
    """What it said if it failed. One that does not end is left behind: the kernel may hold it."""
    try:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    except OSError as error:
        return str(error)
    try:
        _, said = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        return f"{words[0]} did not end within {timeout_s:g} s"
    return (
        None
        if child.returncode == 0
        else said.decode(errors="replace").strip() or f"it ended with {child.returncode}"
    )


def _answers(point: str) -> bool | None:
    """Whether the tool behind it does: False if it is dead, None if it hangs. Asked by another
    process, which may hang in our place.
    """
    try:
        child = subprocess.Popen(
            ["stat", "-f", point],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return child.wait(ANSWER_S) == 0
    except subprocess.TimeoutExpired:
        child.kill()
        return None
    except OSError:
        return True  # nothing can be said


def _tool_file(point: str) -> str:
    return f"{point}-{os.uname().nodename}{TOOL}"


def _note_tool(point: str, pid: int) -> None:
    """For whoever unmounts: another carrier may have started it."""
    values = {"pid": pid, "start": identity.start_of(pid), "boot_id": identity.boot_id()}
    write_json(_tool_file(point), values)


def _end_tool(point: str) -> None:
    """It ends by itself when it is unmounted, unless it hangs."""
    who = identity.Identity.load(read_json(_tool_file(point)))
    deadline_s = time.monotonic() + ANSWER_S
    while who is not None and identity.is_alive(who):
        if is_mounted(point) or time.monotonic() >= deadline_s:
            identity.send(who, signal.SIGKILL)
            break
        time.sleep(_STEP_S)
    with suppress(FileNotFoundError):
        os.unlink(_tool_file(point))
