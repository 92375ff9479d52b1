"""One carrier: fetches or mounts the folders of a task, sends while its processes run, and finishes
when they are over.

Started by the shim, by a shipper in its place, or by the container engine, as `carrier TASK_DIR`;
never two for one task. It may be killed at any time and started again. What it does stands in
`folders.state`; it is told by the files `folders.end` and `folders.stop` what else to do.
"""

import fcntl
import glob
import os
import shutil
import signal
import sys
import time
from pathlib import PurePath
from typing import Final

from headway.carrier import fetch, folder_paths, mount
from headway.carrier.carrier_state import Meter, State, Stopped, cause_of
from headway.carrier.send import Busy, Left, Sender
from headway.carrier.shared_links import Link
from headway.code import checkout
from headway.model import folder_names as names
from headway.model.errors import HeadwayError, UsageError
from headway.model.json_types import JsonMapping, JsonObject
from headway.model.limits import FOLDER_MISSING_SHOWN
from headway.storage import open_store
from headway.storage.location import Place, parse
from headway.storage.transfer import Storage
from headway.wire import sealed_json

EXIT_OK, EXIT_FAILED, EXIT_LOCKED = 0, 1, 3
_LOOK_S: Final = 0.2


class Carrier:
    def __init__(self, task_dir: str) -> None:
        kept = names.kept(task_dir)
        with open(os.path.join(kept, "task.json"), "rb") as file:
            self._task: JsonObject = sealed_json.decode(file.read(), "task.json")
        with open(os.path.join(kept, names.PRIVATE), "rb") as file:
            given: JsonObject = sealed_json.decode(file.read(), names.PRIVATE)
        # what is fetched into the working folder is the job's own
        os.umask(int(self._task.get("umask", 0o077)))
        os.environ.update(given["env"])
        self._folders: list[JsonObject] = given["folders"]
        self._accounts: dict[str, dict[str, str]] = given["accounts"]
        self._base: str = given["base"]
        # of a container, whose agent may be elsewhere
        self._given_root: str | None = given.get("root")
        self._interval_s = float(given["interval_s"])
        self._uuid, self._task_dir = str(self._task["uuid"]), task_dir
        self.state = State(task_dir)
        self._senders: list[Sender] = []
        # where a container has what is mounted here
        self._seen_mounts: str | None = given.get("mounts")
        # point -> the link to it, and where that leads
        self._mounted: dict[str, tuple[Link, str]] = {}

    def run(self) -> int:
        self.state.save()
        try:
            for folder in self._folders:
                self._bring(folder)
        except Stopped:
            self._unmount()
            return EXIT_OK
        self.state.tell(names.READY)
        if not self._senders and not self._mounted:
            return EXIT_OK
        self._serve()
        return self._finish()

    # -- bringing

    def _root(self) -> str:
        """The working folder of the processes."""
        if self._given_root is not None:
            return self._given_root
        if self._task.get("code") is None:
            return str(self._task["cwd"])
        root = checkout.prepare(self._task["home"], self._task["code"], self._uuid)
        return os.path.normpath(os.path.join(root, self._task["code_cwd"]))

    def _bring(self, folder: JsonMapping) -> None:
        name = str(folder["name"])
        try:
            path = os.path.join(self._root(), *PurePath(name).parts)
            if not self.state.is_ready:
                folder_paths.check_free(self._base, folder, path)
            self.state.values["paths"][name] = self._placed(folder, path)
            self.state.save()
        except (HeadwayError, OSError) as error:
            raise Failed(
                cause_of(error, f"the folder {name} could not be {_verb(folder)}")
            ) from error

    def _placed(self, folder: JsonMapping, path: str) -> str:
        """Where it lies now."""
        source = parse(folder["source"]) if folder["source"] else None
        if folder["mount"]:
            return self._mount(folder, source or parse(folder["target"]), path)
        if source is not None and not self.state.is_ready:
            path = self._fetched(folder, source, path)
        elif source is not None:
            path = self.state.values["paths"].get(folder["name"], path)
        if folder["target"]:
            self._senders.append(
                Sender(
                    folder,
                    self._open(parse(folder["target"]), folder),
                    self._base,
                    self._uuid,
                    path,
                    self.state,
                )
            )
            self._senders[-1].begin()
        return path

    def _fetched(self, folder: JsonMapping, source: Place, path: str) -> str:
        if folder_paths.is_link_only(folder, source):
            return fetch.link_local(source, path)
        return fetch.fetch(
            folder, self._open(source, folder), self._base, self._uuid, path, self.state
        )

    def _open(self, where: Place, folder: JsonMapping) -> Storage:
        try:
            open_store.library()
        except HeadwayError as error:
            told = f"{error.message}: {sys.executable} on {os.uname().nodename}"
            raise UsageError(told, f"{sys.executable} -m pip install obstore") from None
        return Storage(where, self._accounts.get(folder["account"] or "", {}))

    def _mount(self, folder: JsonMapping, source: Place, path: str) -> str:
        """In containers each task has its own mount, which all of them see under one path; else
        tasks and jobs that have one working folder and want the same there share it.
        """
        above = os.path.join(self._base, "mounts", os.path.basename(self._task_dir))
        if not self._seen_mounts:
            wanted = [
                str(folder[key])
                for key in ("source", "target", "mount", "mode", "options", "account")
            ]
            above = os.path.join(
                self._base,
                "mounts",
                folder_paths.digest(os.path.realpath(os.path.dirname(path)), *wanted),
            )
        name = folder_paths.digest(folder["name"])
        point, target = os.path.join(above, name), os.path.join(self._seen_mounts or above, name)
        link = Link(self._base, path, self._task_dir, str(self._task.get("id") or ""))
        mount.check(folder, source, None)
        with link.held(self.state.check_stop):
            link.join(point, target)
            self._mounted[point] = (link, target)
            cache = _cache_of(point)
            os.makedirs(cache, mode=0o700, exist_ok=True)
            found = mount.words(
                folder, source, self._accounts.get(folder["account"] or "", {}), point, cache
            )
            meter = Meter(self.state, str(folder["name"]), "mounting", 0)
            mount.mount(found, point, 2, self.state)
            meter.close()
            folder_paths.link(path, target)
        return target

    # -- sending

    def _serve(self) -> None:
        """Until the processes are over."""
        due_s = time.monotonic() + self._interval_s
        while not self.state.is_over:
            time.sleep(_LOOK_S)
            if time.monotonic() >= due_s:
                self._step()
                due_s = time.monotonic() + self._interval_s

    def _step(self) -> None:
        for sender in self._senders:
            try:
                sender.step()
            except Busy:
                continue
            except (HeadwayError, OSError) as error:  # the next time, or the end, tries again
                say(f"the folder {sender.name} could not be sent now: {error}")

    def _finish(self) -> int:
        self.state.tell(names.FINISHING)
        texts: list[str] = []
        for sender in self._senders:
            try:
                left = sender.finish()
            except OSError as error:
                left = Left(["all of it"], HeadwayError(str(error)))
            if left.names:
                texts.append(self._missing(sender, left))
        texts += self._unmount()
        for text in texts:
            self.state.note(text)
        cause = {"cause": "output_not_sent", "class": "system", "text": texts[0]} if texts else None
        self.state.tell(names.FAILED if texts else names.DONE, cause)
        return EXIT_FAILED if texts else EXIT_OK

    def _missing(self, sender: Sender, left: Left) -> str:
        folder = next(one for one in self._folders if one["name"] == sender.name)
        shown = ", ".join(left.names[:FOLDER_MISSING_SHOWN])
        more = len(left.names) - FOLDER_MISSING_SHOWN
        shown += f" and {more} more" if more > 0 else ""
        why = left.error.message if left.error else "they changed all the time"
        option = f"--account {folder['account']} " if folder["account"] else ""
        command = f"hw storage upload {option}{sender.path} {sender.storage.place}"
        return (f"of the folder {sender.name} on {os.uname().nodename} was not sent: {shown}: {why}; "
                f"to send it: {command}")  # fmt: skip

    def _unmount(self) -> list[str]:
        """Why something is left: still mounted, or in the cache of a mount tool."""
        told = []
        for point, (link, target) in self._mounted.items():
            left = mount.wait_sent(_cache_of(point))
            with link.held():
                told += self._let_go(point, link, target, left)
        return told

    def _let_go(self, point: str, link: Link, target: str, left: list[str]) -> list[str]:
        cache = _cache_of(point)
        if not link.leave(point):
            return _unsent(left, cache)  # others still need it
        why = mount.unmount(point, remove=link.is_last)
        if left:
            return _unsent(left, cache)
        if why is not None:
            return [f"{point} could not be unmounted: {why}"]
        if late := mount.unsent(cache):  # since that look, by a task whose own carrier was killed
            return _unsent(late, cache)
        shutil.rmtree(cache, ignore_errors=True)
        if not glob.glob(f"{glob.escape(os.path.dirname(point))}/*"):
            mount.unmount(os.path.dirname(point))  # a mount of its own, where it had to be shared
        link.forget(point, target)
        return []


class Failed(Exception):
    """A folder cannot be had. Holds the cause."""

    def __init__(self, cause: dict[str, str]) -> None:
        super().__init__(cause["text"])
        self.cause = cause


def _cache_of(point: str) -> str:
    """What the mount tool of this node keeps: the point itself may be on a file system that nodes
    share.
    """
    return f"{point}-{os.uname().nodename}{folder_paths.CACHE}"


def _unsent(left: list[str], cache: str) -> list[str]:
    shown = ", ".join(left[:FOLDER_MISSING_SHOWN])
    return [f"the mount tool has not sent: {shown}; it is in {cache}"] if left else []


def _verb(folder: JsonMapping) -> str:
    if folder["mount"]:
        return "mounted"
    return "fetched" if folder["source"] else "prepared"


def say(text: str) -> None:
    """Into the agent's log, which is our standard error."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    sys.stderr.write(f"{stamp} carrier: {text}\n")
    sys.stderr.flush()


def run(task_dir: str) -> int:
    fd = os.open(
        os.path.join(task_dir, names.LOCK),
        os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
        0o600,
    )
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return EXIT_LOCKED
    carrier = Carrier(task_dir)
    try:
        return carrier.run()
    except Failed as failed:
        carrier._unmount()
        say(str(failed))
        carrier.state.tell(names.FAILED, failed.cause)
        return EXIT_FAILED
    except FileNotFoundError as error:
        if os.path.exists(os.path.join(task_dir, "task.json")):
            raise
        say(f"the task is gone: {error}")  # what was sent stays sent; nobody waits for the rest
        carrier._unmount()
        return EXIT_OK


def main() -> None:
    os.umask(0o077)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(run(os.path.abspath(sys.argv[-1])))
