"""The web page: its shell for every address that a browser's bar may hold, and the files that `make web` has built.

The files are read once into memory and found by their name there: no word of a caller reaches a path (B20). They hold
nothing of anybody, so they are served without a login; the shell then comes with 401, and the page asks for one.
"""

import gzip
import logging
import mimetypes
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from headway.model.limits import PAGE_FILE_BYTES_MAX, REQUEST_BYTES_ANONYMOUS_MAX
from headway.server import contract
from headway.server.app import Handler, Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Refusal, Reply

log = logging.getLogger("headway.server")

FOLDER = Path(__file__).parent.parent / "static"
_MISSING = (
    b"Headway serves this address, but this installation was built without its page (npm was not there).\n"
    b"`hw ls` lists the jobs; `make web` builds the page.\n"
)
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_COMPRESSED = (".js", ".css", ".svg")


@dataclass(frozen=True, slots=True)
class File:
    data: bytes
    compressed: bytes | None
    content_type: bytes


@lru_cache(1)
def shell() -> str | None:
    """The page's HTML; None: it was not built."""
    try:
        return (FOLDER / "index.html").read_text()
    except OSError:
        return None


@lru_cache(1)
def files() -> dict[str, File]:
    found: dict[str, File] = {}
    folder = FOLDER / "assets"
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not path.is_file() or path.stat().st_size > PAGE_FILE_BYTES_MAX:
            continue
        data = path.read_bytes()
        known = (
            _TYPES.get(path.suffix)
            or mimetypes.guess_type(path.name)[0]
            or "application/octet-stream"
        )
        compressed = gzip.compress(data, 6) if path.suffix in _COMPRESSED else None
        found[path.name] = File(data, compressed, known.encode())
    return found


def exists() -> bool:
    return shell() is not None


def address(url: str | None, suffix: str) -> str | None:
    """Where a browser sees a job; None where there is no page, or no address for browsers."""
    return f"{url}/j/{suffix}" if url and exists() else None


async def show(call: Call) -> Reply:
    """The page. Without a login it comes with 401, and says how to get one."""
    return _shell(call, 200 if call.caller.may(Role.READ) else 401)


async def show_login(call: Call) -> Reply:
    """The page, where a browser brings the code that `hw page` gave it."""
    return _shell(call, 200)


def _shell(call: Call, status: int) -> Reply:
    text = shell()
    if text is None:
        return Reply(_MISSING, status, b"text/plain; charset=utf-8")
    # Files are named relative to the address, so that the page works below any path of a reverse proxy.
    deeper = "../" if "ref" in call.params else "./"
    return Reply(
        text.replace('"./assets/', f'"{deeper}assets/').encode(),
        status,
        b"text/html; charset=utf-8",
    )


async def asset(call: Call) -> Reply:
    """A file of the page. Its name holds a checksum of its content, so a browser may keep it."""
    file = files().get(call.params["name"])
    if file is None:
        raise Refusal(
            404,
            "not_found",
            "the page has no such file",
            "load the page again: the server may be newer",
        )
    headers = [
        (b"cache-control", b"public, max-age=31536000, immutable"),
        (b"vary", b"accept-encoding"),
    ]
    if file.compressed is not None and _takes_gzip(call):
        return Reply(
            file.compressed, 200, file.content_type, [*headers, (b"content-encoding", b"gzip")]
        )
    return Reply(file.data, 200, file.content_type, headers)


def _takes_gzip(call: Call) -> bool:
    return any(name == b"accept-encoding" and b"gzip" in value for name, value in call.headers)


def _open_to_all(path: str, handler: Handler) -> Route:
    limit = REQUEST_BYTES_ANONYMOUS_MAX
    return Route("GET", path, Role.NOBODY, handler, body_bytes_max=limit, answer=contract.Raw)


ROUTES = [
    _open_to_all("/", show),
    _open_to_all("/login", show_login),
    _open_to_all("/compare", show),
    _open_to_all("/clusters", show),
    _open_to_all("/j/{ref}", show),
    _open_to_all("/assets/{name}", asset),
]
