"""`/api/notify`: what is told to people, what became of it, and a test."""

from headway.model.json_types import JsonObject
from headway.server import contract
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Reply, reply_json
from headway.settings import layers


def _files(call: Call) -> list[JsonObject]:
    """The settings files of this server, which may have another environment than whoever asks."""
    return [
        {"path": str(path), "exists": exists}
        for path, exists in layers.files(call.services.paths.home)
    ]


async def show(call: Call) -> Reply:
    return reply_json({**await call.services.notifier.about(), "files": _files(call)})


async def test(call: Call) -> Reply:
    """Takes no address: it sends only where the settings say."""
    return reply_json({"results": await call.services.notifier.test(), "files": _files(call)})


ROUTES = [
    Route("GET", "/api/notify", Role.READ, show, answer=contract.Notify),
    Route("POST", "/api/notify/test", Role.OPERATE, test, answer=contract.NotifyTest),
]
