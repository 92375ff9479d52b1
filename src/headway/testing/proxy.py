"""A fault proxy for unix sockets, in user space: between agent and server it cuts, slows, swallows
and repeats.

Used by tests on any machine, where a kernel's own means may not be there. Faults are attributes
that may be changed at any time; they hold for bytes that pass from then on.
"""

import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

CHUNK_BYTES = 64 * 1024


class FaultProxy:
    """`with FaultProxy(listen, target) as proxy:`; then set its attributes."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path, self.target = path, target
        self.refuse = False  # connections are closed at once
        self.black_hole = False  # bytes are taken and go nowhere, in both directions
        # bytes of an answer that pass before the connection breaks
        self.cut_reply_after: int | None = None
        self.cut_request_after: int | None = None
        self.bytes_per_s: float | None = None  # of answers: 1 is a server that drips
        # everything that was sent on a connection is sent again on another one
        self.repeat_requests = False
        self.passed = 0  # bytes, in both directions
        self.repeated = 0  # connections that were played again
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        assert self._listener is not None
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.path.unlink(missing_ok=True)
        self.break_all()

    def break_all(self) -> None:
        """Cut every connection that stands."""
        with self._lock:
            standing = list(self._open)
        for one in standing:
            _shut(one)

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        if self.refuse:
            near.close()
            return
        far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            far.connect(str(self.target))
        except OSError:
            near.close()
            far.close()
            return
        with self._lock:
            self._open |= {near, far}
        sent = bytearray()
        back = threading.Thread(target=self._pump, args=(far, near, True, bytearray()), daemon=True)
        back.start()
        self._pump(near, far, False, sent)
        back.join(30)
        with self._lock:
            self._open -= {near, far}
        near.close()
        far.close()
        if self.repeat_requests and sent:
            self._replay(bytes(sent))

    def _pump(
        self, source: socket.socket, sink: socket.socket, reply: bool, sent: bytearray
    ) -> None:
        """Carry bytes one way until something ends it."""
        passed = 0
        try:
            while data := source.recv(CHUNK_BYTES if self.bytes_per_s is None or not reply else 1):
                if self.black_hole:
                    continue
                cut = self.cut_reply_after if reply else self.cut_request_after
                if cut is not None and passed + len(data) > cut:
                    sink.sendall(data[: max(0, cut - passed)])
                    break
                if reply and self.bytes_per_s is not None:
                    time.sleep(1 / self.bytes_per_s)
                sink.sendall(data)
                passed += len(data)
                self.passed += len(data)
                if self.repeat_requests and not reply:
                    sent += data
        except OSError:
            pass  # the other side is gone
        finally:
            _shut(source)
            _shut(sink)

    def _replay(self, data: bytes) -> None:
        """All requests of a connection once more, as a late duplicate (F18)."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as again:
            try:
                again.connect(str(self.target))
                threading.Thread(target=_drain, args=(again,), daemon=True).start()
                again.sendall(data)
                again.shutdown(socket.SHUT_WR)
                time.sleep(0.05)
                self.repeated += 1
            except OSError:
                return


def _drain(source: socket.socket) -> None:
    try:
        while source.recv(CHUNK_BYTES):
            pass
    except OSError:
        return


def _shut(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
