"""Starting, running and ending the server of one home. Called by `python -m headway.server`.

Exactly one runs per home: it holds `server.lock` for as long as it lives, so whoever else finds a
socket file or a `server.json` without the lock being held knows that they are left over. Nothing
here needs a clean end (P10).
"""

import asyncio
import contextlib
import ctypes
import fcntl
import gc
import json
import logging
import logging.handlers
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from headway import __version__
from headway.home import database_path
from headway.home.connect import is_listening
from headway.home.paths import (
    AGENT_SOCKET,
    Paths,
    agent_socket_path,
    home,
    socket_path,
    write_private,
)
from headway.model.errors import HeadwayError
from headway.model.json_types import JsonObject
from headway.model.limits import RUNTIME_KEPT_S, SERVER_LOG_BYTES_MAX, SHUTDOWN_S
from headway.server.app import App, Readers, Services, Table
from headway.server.control.control import Control
from headway.server.health.forecast_watch import ForecastWatch
from headway.server.http.agent_address import Reach
from headway.server.http.auth import LOOPBACK_ONLY, Auth, Role, TokenRow, mint
from headway.server.http.guard import Guard, hosts_for
from headway.server.http.listeners import Door, Network
from headway.server.http.transport import (
    bind_loopback,
    bind_unix,
    for_agents,
    protocol_with,
    slots_for_descriptors,
)
from headway.server.live import Live
from headway.server.metric_sinks import InfluxSink
from headway.server.notify.notifier import Notifier
from headway.server.routes import ROUTES
from headway.server.tray_server import Trays
from headway.settings import layers, monitor_settings
from headway.store import catalog, notice_queue
from headway.store.database import Store
from headway.wire.identity import start_of

_RUNTIME_NAME = re.compile(
    r"[0-9a-f]{16}(?:\.sock)?\Z"
)  # of a home: its socket, or the folder of its agents'
log = logging.getLogger("headway.server")
TRIM_INTERVAL_S = 10.0
_OBJECTS_MANY = 10_000


def main() -> int:
    # whatever we make is for its owner alone (B33); a job's own umask is set by its shim
    os.umask(0o077)
    paths = Paths(home())
    lock = take_lock(paths.server_lock)
    if lock is None:
        return 0  # another one serves this home
    start_log(paths.server_log)
    try:
        settings = layers.load(paths.home)
        told = database_path.settle(paths, settings.get("database_folder"))
        if told is not None:
            log.warning("%s", told)
        store = Store(paths, log_bytes_max=settings.get("log_bytes_max"))
        store.open()
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_run(Process(paths, settings, store)))
        finally:
            store.close()
    except HeadwayError as error:
        log.error("the server ends: %s", "; ".join(filter(None, (error.message, error.hint))))
        return error.exit_code
    log.info("the server has ended")
    return 0


async def _run(process: "Process") -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, process.stopping.set)
    await process.run(on_end=end_anyway)


def take_lock(path: Path) -> int | None:
    """The lock of this home, held until the process ends; None when another server has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


# -- the log


class LogFile(logging.handlers.RotatingFileHandler):
    """server.log, bounded. Output that bypasses logging (a crash of the interpreter) follows it
    when it moves on.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(
            path, maxBytes=SERVER_LOG_BYTES_MAX, backupCount=1, encoding="utf-8", delay=False
        )

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        stream = os.fdopen(
            os.open(self.baseFilename, flags, 0o600),
            "a",
            encoding="utf-8",
            errors="backslashreplace",
        )
        for standard in (1, 2):
            with contextlib.suppress(OSError):  # closed, or a terminal that is gone
                if not os.isatty(standard):
                    os.dup2(stream.fileno(), standard)
        return stream


def start_log(path: Path) -> None:
    handler: logging.Handler
    try:
        handler = LogFile(path)
    except OSError:  # a full disk is no reason not to serve
        handler = logging.StreamHandler()
    formatter = logging.Formatter(
        "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # a full disk must not make logging itself a source of errors (F8)
    logging.raiseExceptions = False
    # they warn of every malformed request, which any stranger can send
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).setLevel(logging.ERROR)


# -- the process


class Listener(uvicorn.Server):
    """uvicorn without its clock: it waits for an event instead of waking ten times a second. With
    `network`, it also listens there.
    """

    def __init__(self, config: uvicorn.Config, network: Network | None = None) -> None:
        super().__init__(config)
        self.opened, self.ended = asyncio.Event(), asyncio.Event()
        self.network = network

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.network is not None:
            self.open_door(self.network)
        self.opened.set()

    def open_door(self, network: Network, agents: bool = False) -> None:
        """Listen there as well, from now on. `agents`: for nobody but tasks' agents."""
        kind = self.config.http_protocol_class
        made = for_agents(kind) if agents else kind

        def protocol() -> asyncio.Protocol:
            return made(  # type: ignore[call-arg]  # as uvicorn calls it
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )

        self.servers.append(Door(network, protocol))  # type: ignore[arg-type]  # all that uvicorn does is end it

    async def main_loop(self) -> None:
        await self.ended.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield  # `Process` takes the signals


class Process:
    """The running server."""

    def __init__(
        self,
        paths: Paths,
        settings: layers.Settings,
        store: Store,
        control_of: Callable[..., Control] = Control,
    ) -> None:
        self.paths, self.settings, self.store, self.control_of = paths, settings, store, control_of
        self.address = socket_path(paths.home)
        self.stopping = asyncio.Event()
        self.network: Network | None = None
        self.network_error = ""
        self.slots = slots_for_descriptors()
        self.app: App | None = None
        # of their own, so that long queries of viewers do not keep agents waiting
        self.logins = Readers(threads=1)

    async def run(self, on_end: Callable[[], None] = lambda: None) -> None:
        """Serve until `stopping` is set; `on_end` is called as soon as it is."""
        self._open_network()
        await asyncio.to_thread(sweep_runtime, self.address)
        unix, tcp = bind_unix(self.address), self._bind_tcp()
        self._link_socket()
        agents = self._bind_agents()
        control = self.control_of(self.store, self.paths, self.settings)
        notifier = Notifier(self.store, self.settings, lambda: layers.load(self.paths.home))
        influx = InfluxSink(self.store, self.paths, self.settings)
        try:
            self.app = app = self._app(control, notifier, tcp)
            listener = Listener(self._config(app, tcp), self.network)
            reach = Reach(
                self.paths,
                self.settings.get("agent_address"),
                self.network,
                listener,
                app.services.about,
            )
            control.be_reached(reach.open)
            await control.start()
            await notifier.start()
            await influx.start()
            await app.services.outbox.start(control)
            settle_memory()
            serving = asyncio.create_task(
                listener.serve(sockets=[s for s in (unix, agents, tcp) if s])
            )
            await self._publish(app.services.about)
            log.info(
                "version %s serves %s at %s and %s",
                __version__,
                self.paths.home,
                self.address,
                self._url(tcp),
            )
            if self.network is not None:
                log.info("a monitor for other machines at %s", self.network.listen.address)
            trays = Trays(control.distant, app.post, reach.open)
            works = (
                give_back_memory(app),
                app.services.guests.watch(),
                trays.run(),
                app.services.hangs.run(),
                app.services.slows.run(),
                ForecastWatch(self.store, control).run(),
                app.services.loop_lag.watch(lambda: app.requests),
            )
            beside = [asyncio.create_task(work) for work in works]
            await self._wait(app, serving)
            for task in beside:
                task.cancel()
            on_end()
            await self._end(app, listener, serving)
        finally:
            await _within(influx.stop(), SHUTDOWN_S / 6)
            await _within(notifier.stop(), SHUTDOWN_S / 6)
            await _within(control.stop(), SHUTDOWN_S / 3)
            self.paths.server_json.unlink(missing_ok=True)
            self.address.unlink(missing_ok=True)  # ours: nobody replaces it while we hold the lock
            remove_agent_socket(self.paths.home, folder=not await self._has_open_jobs())

    # -- parts

    async def _has_open_jobs(self) -> bool:
        def look() -> bool:
            with self.store.read() as c:
                return catalog.has_open_jobs(c)

        try:
            return await asyncio.wait_for(asyncio.to_thread(look), SHUTDOWN_S / 6)
        # what cannot be told now counts as there: the next server may be able to
        except Exception:
            return True

    def _link_socket(self) -> None:
        """The setting `socket`: another name for ours. What is no link of ours stays."""
        name = self.settings.get("socket")
        if name is None:
            return
        path = Path(name)
        if path.exists() and not path.is_symlink():
            log.warning("the setting socket: %s is there already, and no link; it stays", path)
            return
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            draft.unlink(missing_ok=True)
            draft.symlink_to(self.address)
            draft.replace(path)
        except OSError as error:
            log.warning("the setting socket: %s cannot be made: %s", path, error.strerror)

    def _bind_agents(self) -> socket.socket | None:
        try:
            return bind_unix(agent_socket_path(self.paths.home))
        except HeadwayError as error:  # jobs that are not in containers need none
            log.warning("no socket for containers: %s", error)
            return None

    def _open_network(self) -> None:
        """Where that fails (a port that is taken, an address that is gone), this home's own jobs
        are served as ever.
        """
        try:
            self.network = Network.of(self.paths)
        except HeadwayError as error:
            self.network_error = error.message
            log.error("no monitor for other machines: %s; %s", error.message, error.hint)

    def _bind_tcp(self) -> socket.socket | None:
        try:
            bound = bind_loopback(self.settings.get("port") or self._last_port())
            write_private(self.paths.page_port, str(bound.getsockname()[1]))
            return bound
        except OSError as error:  # a container without a network: jobs need none
            log.warning("no loopback address for browsers: %s", error)
            return None

    def _last_port(self) -> int:
        """That of the last server of this home: pages that are open, and links, stay good."""
        try:
            found = int(self.paths.page_port.read_text())
        except (OSError, ValueError):
            return 0
        return found if 0 < found < 65_536 else 0

    def _url(self, tcp: socket.socket | None) -> str | None:
        return f"http://127.0.0.1:{tcp.getsockname()[1]}" if tcp else None

    def _app(self, control: Control, notifier: Notifier, tcp: socket.socket | None) -> App:
        auth = Auth.over(self._find_token, os.getuid(), self.paths.sessions)
        live = Live(on_job=auth.tokens.forget)
        about = {
            "pid": os.getpid(),
            "address": str(self.address),
            "url": self._url(tcp),
            "version": __version__,
            "home": str(self.paths.home),
            "started_ns": time.time_ns(),
            "monitor": self._about_network(),
            "agents": None,
        }
        self.store.listen(live.notify)
        services = Services(
            self.store,
            self.paths,
            self.settings,
            control,
            auth,
            live,
            notifier,
            about,
            self.stopping,
        )
        self.store.listen(services.outbox.on_change)
        return App(Table(ROUTES), services)

    def _about_network(self) -> JsonObject | None:
        if self.network_error:
            return {
                "listen": None,
                "addresses": [],
                "pin": None,
                "container": False,
                "error": self.network_error,
            }
        return self.network.about() if self.network else None

    def _record(self, about: JsonObject) -> JsonObject:
        """What `server.json` holds; pid and start together name the process, the pid alone does not
        (F29).
        """
        return {"start": start_of(os.getpid())} | {
            k: about[k] for k in ("pid", "address", "url", "version", "home")
        }

    async def _find_token(self, token_id: str) -> TokenRow | None:
        def look() -> catalog.Token | None:
            with self.store.read() as connection:
                return catalog.find_token(connection, token_id)

        found = await self.logins.run(look)
        if found is None or found.role.upper() not in Role.__members__:
            return None
        return TokenRow(
            found.hash, Role[found.role.upper()], found.task, found.ended_ns is not None, found.name
        )

    def _config(self, app: App, tcp: socket.socket | None) -> uvicorn.Config:
        hosts = hosts_for(tcp.getsockname()[1]) if tcp else frozenset[str]()
        tls_hosts = (
            monitor_settings.hosts(self.network.listen) if self.network else frozenset[str]()
        )
        return uvicorn.Config(
            Guard(app, app.services.auth, hosts, tls_hosts),
            http=protocol_with(self.slots),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            # nobody stands before us; what a caller says of itself in a header is not believed
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=int(SHUTDOWN_S / 2),
        )

    async def _publish(self, about: JsonObject) -> None:
        """Files for others to find us by. Where the disk is full there are none, and we serve all
        the same (F8).
        """
        try:
            await self._publish_token()
            write_private(self.paths.server_json, json.dumps(self._record(about)))
        except (OSError, HeadwayError) as error:
            log.error(
                "%s or %s could not be written: %s",
                self.paths.browser_token,
                self.paths.server_json,
                error,
            )

    async def _publish_token(self) -> None:
        """A token for the loopback address, in a file for its owner alone; made once and kept."""
        path = self.paths.browser_token
        try:
            known = await self._find_token(path.read_text().partition(".")[0])
        except OSError:
            known = None
        if known is not None and not known.ended and known.name == LOOPBACK_ONLY:
            return
        token_id, token, hashed = mint()
        now_ns = time.time_ns()
        write = self.store.write(
            lambda c: catalog.insert_token(
                c, token_id, hashed, "operate", None, now_ns, LOOPBACK_ONLY
            )
        )
        await asyncio.wrap_future(write)
        write_private(path, token)

    # -- the end

    async def _wait(self, app: App, serving: "asyncio.Task[None]") -> None:
        """Until somebody stops us, or nobody has needed us for `idle_exit_s`."""
        idle_exit_s = float(self.settings.get("idle_exit_s"))
        stop = asyncio.create_task(self.stopping.wait())
        seen, since_s = -1, time.monotonic()
        while True:
            done, _ = await asyncio.wait(
                {stop, serving}, timeout=max(idle_exit_s / 4, 0.05) if idle_exit_s else None,
                return_when=asyncio.FIRST_COMPLETED,
            )  # fmt: skip
            if done:
                stop.cancel()
                return
            busy = self.network is not None or not app.services.outbox.idle
            if (
                busy
                or app.requests != seen
                or app.active
                or await app.services.query(has_open_jobs)
            ):
                seen, since_s = app.requests, time.monotonic()
            elif time.monotonic() - since_s >= idle_exit_s:
                log.info("nobody has needed the server for %g s", idle_exit_s)
                stop.cancel()
                return

    async def _end(self, app: App, listener: Listener, serving: "asyncio.Task[None]") -> None:
        self.stopping.set()
        app.services.outbox.stop()
        app.services.live.close()
        listener.ended.set()
        await _within(serving, SHUTDOWN_S * 2 / 3)
        app.services.close()
        self.logins.close()


async def give_back_memory(app: App) -> None:
    """What a burst of data took goes back to the system: the allocator would keep it for the next
    one.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return  # not glibc
    seen = app.requests
    while True:
        await asyncio.sleep(TRIM_INTERVAL_S)
        if app.requests != seen:
            seen = app.requests
            await asyncio.to_thread(trim, 0)


def settle_memory() -> None:
    """What was loaded until now stays, so it is never looked through for garbage; and what is made
    in bulk, such as a list of ten thousand jobs, is looked through less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_MANY, 20, 20)


def end_anyway() -> None:
    """Whatever hangs (a query, a disk): the server is gone in SHUTDOWN_S. What was acknowledged is
    on disk (P3).
    """
    watchdog = threading.Timer(SHUTDOWN_S, os._exit, [0])
    watchdog.daemon = True
    watchdog.start()


def remove_agent_socket(home_folder: Path, *, folder: bool) -> None:
    """Its folder stays while jobs are open: a container may have it mounted, and the next server's
    socket must appear in it.
    """
    with contextlib.suppress(HeadwayError, OSError):
        path = agent_socket_path(home_folder)
        path.unlink(missing_ok=True)
        if folder:
            path.parent.rmdir()


def sweep_runtime(own: Path) -> None:
    """Remove what servers of other homes left beside our socket long ago: they were killed, or their
    homes are gone. Whoever is there is asked, and nothing that answers or is young is touched.
    """
    with contextlib.suppress(OSError):
        for path in own.parent.iterdir():
            old = time.time() - path.lstat().st_mtime > RUNTIME_KEPT_S
            if not old or path.stem == own.stem or not _RUNTIME_NAME.match(path.name):
                continue
            with contextlib.suppress(OSError):
                if path.suffix == ".sock" and not is_listening(path):
                    path.unlink()
                elif not path.suffix and not path.with_suffix(".sock").exists():
                    (path / AGENT_SOCKET).unlink(missing_ok=True)
                    path.rmdir()


def has_open_jobs(connection: Any) -> bool:
    """Or something to tell about one that has ended."""
    return catalog.has_open_jobs(connection) or notice_queue.next_due_ns(connection) is not None


async def _within(work: Any, timeout_s: float) -> None:
    try:
        await asyncio.wait_for(work, timeout_s)
    except TimeoutError:
        log.warning("a part of the server did not end in %g s", timeout_s)
