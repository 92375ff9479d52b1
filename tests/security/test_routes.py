"""Walks the table of routes: nobody gets past the guard, whatever the route and the method (Sec10)."""

import asyncio
import re
from typing import Any

import pytest

from headway.server.app import Route, Table
from headway.server.http.auth import Auth, Role
from headway.server.http.guard import METHODS, Guard
from headway.server.routes import ROUTES
from tests.security.harness import Served

WORDS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "PROPFIND")
PATHS = sorted({route.path for route in ROUTES})
# The page's own files are the same for everybody; without a login its shell comes with 401.
PAGE_FILES = ("/login", "/assets/{name}")
DECLARED = {(route.method, route.path) for route in ROUTES}


def address(path: str) -> str:
    return path.replace("{ref}", "job-00000").replace("{name}", "index.js")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_every_route_refuses_a_caller_without_a_token(served: Served) -> None:
    for path in PATHS:
        for method in WORDS:
            if method == "GET" and path in PAGE_FILES:
                continue
            answer = served.tcp(method, address(path))
            assert answer.status == (401 if method in METHODS else 405), (method, path, answer)


def test_every_route_refuses_a_foreign_host_even_with_a_token(served: Served) -> None:
    token = served.token("admin")
    for path in PATHS:
        for method in WORDS:
            for host in (
                "evil.example",
                f"evil.example:{served.port}",
                "127.0.0.1",
                f"localhost:{served.port + 1}",
            ):
                answer = served.tcp(method, address(path), bearer(token) | {"Host": host})
                assert answer.status == 400, (method, path, host, answer)


def test_every_route_refuses_a_foreign_origin_even_with_a_token_or_a_cookie(served: Served) -> None:
    token, cookie = served.token("admin"), f"headway={served.browser()}"
    origins = (
        "https://evil.example",
        "null",
        f"http://127.0.0.1:{served.port + 1}",
        f"https://127.0.0.1:{served.port}",
    )
    for path in PATHS:
        for method in sorted(METHODS):
            for origin in origins:
                for who in (bearer(token), {"Cookie": cookie}):
                    answer = served.tcp(method, address(path), who | {"Origin": origin})
                    assert answer.status == 403, (method, path, origin, answer)


def test_what_changes_something_by_cookie_must_come_from_our_own_page(served: Served) -> None:
    cookie = {"Cookie": f"headway={served.browser()}"}
    ours = f"http://127.0.0.1:{served.port}"
    refused: list[dict[str, str]] = [
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ]
    for method, path in sorted(DECLARED):
        if method == "GET":
            continue
        for more in refused:
            assert served.tcp(method, address(path), cookie | more).status == 403, (
                method,
                path,
                more,
            )
    for more in ({"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {"Origin": ours}):
        assert served.tcp("POST", "/api/jobs", cookie | more, b"{}").status == 400, more
    assert served.tcp("GET", "/api/jobs", cookie | {"Sec-Fetch-Site": "same-site"}).status == 403
    assert served.tcp("GET", "/api/jobs", cookie).status == 200


def test_every_route_refuses_a_role_that_is_too_small(served: Served) -> None:
    _, key = served.job()
    tokens = {
        role: served.token(role.name.lower(), key if role is Role.INGEST else None)
        for role in Role
        if role
    }
    for route in ROUTES:
        for role, token in tokens.items():
            allowed = (
                role >= route.role
                if route.role is not Role.INGEST
                else role in (Role.INGEST, Role.ADMIN)
            )
            if (
                route.role is Role.NOBODY
                or (allowed and not route.unix_only)
                or (role is Role.ADMIN)
            ):
                continue
            answer = served.tcp(route.method, address(route.path), bearer(token))
            assert answer.status == 403, (route.method, route.path, role, answer)


def test_a_route_for_unix_peers_refuses_even_an_admin_on_tcp(served: Served) -> None:
    token = served.token("admin")
    found = [route for route in ROUTES if route.unix_only]
    assert {route.path for route in found} == {"/agent/register", "/api/login-code"}
    for route in found:
        assert served.tcp(route.method, route.path, bearer(token)).status == 403


def test_a_method_that_a_route_does_not_declare_is_refused(served: Served) -> None:
    token = served.token("admin")
    for path in PATHS:
        for method in WORDS:
            if (method, path) not in DECLARED:
                assert served.tcp(method, address(path), bearer(token)).status == 405, (
                    method,
                    path,
                )


def test_an_unknown_address_is_hidden_from_strangers(served: Served) -> None:
    for path in (
        "/nothing",
        "/api",
        "/api/jobs/",
        "/agent",
        "/static/app.js",
        "/login/",
        "//login",
        "/login/../api/server",
    ):
        assert served.tcp("GET", path).status == 401, path
        assert served.tcp("POST", path).status == 401, path
        assert served.tcp("GET", path, bearer(served.token("read"))).status == 404, path


def test_every_answer_has_the_headers_that_bind_a_browser(served: Served) -> None:
    token = bearer(served.token("read"))
    for answer in (
        served.tcp("GET", "/"),
        served.tcp("GET", "/", token),
        served.tcp("GET", "/nothing", token),
    ):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert "server" not in answer.headers


def test_a_route_cannot_be_declared_without_a_role() -> None:
    async def handler(call: Any) -> Any: ...

    with pytest.raises(TypeError):
        Route("GET", "/x", handler=handler)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="does not say who"):
        Route("GET", "/x", None, handler)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="does not say who"):
        Route("PUT", "/x", Role.READ, handler)
    with pytest.raises(TypeError, match="strangers"):
        Route("POST", "/x", Role.NOBODY, handler)
    with pytest.raises(TypeError, match="twice"):
        Table([Route("GET", "/x", Role.READ, handler)] * 2)


def test_only_the_login_and_the_pages_own_files_are_open_to_strangers() -> None:
    open_to_all = {(r.method, r.path) for r in ROUTES if r.role is Role.NOBODY}
    page = {
        ("GET", path)
        for path in ("/", "/login", "/compare", "/clusters", "/j/{ref}", "/assets/{name}")
    }
    assert open_to_all == {("POST", "/login")} | page


def test_the_page_without_a_login_holds_nothing_of_a_job(served: Served) -> None:
    job, _ = served.job()
    with_login = served.tcp("GET", f"/j/{job.id}", bearer(served.token("read")))
    without = served.tcp("GET", f"/j/{job.id}")
    assert (with_login.status, without.status) == (200, 401)
    assert with_login.body == without.body
    assert served.tcp("GET", "/j/../api/jobs").status == 401
    assert served.tcp("GET", "/assets/..%2findex.html", bearer(served.token("read"))).status == 404


def test_only_files_of_the_page_may_be_kept_by_a_browser(served: Served) -> None:
    shell = served.tcp("GET", "/", bearer(served.token("read")))
    assert shell.headers["cache-control"] == "no-store"
    names = re.findall(r"assets/([A-Za-z0-9_.-]+[.]js)", shell.body.decode())
    for name in names:  # none where the page was not built
        answer = served.tcp("GET", f"/assets/{name}")
        assert answer.status == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-type"].startswith("text/javascript")
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("kind", ["websocket", "http.something", "webtransport"])
def test_a_scope_that_is_not_http_never_reaches_the_application(kind: str) -> None:
    reached: list[Any] = []
    sent: list[Any] = []

    async def app(*args: Any) -> None:
        reached.append(args)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def lookup(token_id: str) -> None: ...

    guard = Guard(app, Auth.over(lookup, 0), frozenset({"localhost:1"}))
    asyncio.run(guard({"type": kind, "path": "/", "headers": []}, receive, send))
    assert not reached
    assert [m["type"] for m in sent] == (["websocket.close"] if kind == "websocket" else [])


def test_a_websocket_handshake_is_refused(served: Served) -> None:
    token = served.token("admin")
    more = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    for path in PATHS:
        answer = served.tcp("GET", address(path), bearer(token) | more)
        assert answer.status == 400, (path, answer)
