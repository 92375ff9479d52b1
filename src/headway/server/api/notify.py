"""`/api/notify`: what is told to people, what became of it, and a test."""

from headway.server.app import Route
from headway.server.auth import Role
from headway.server.call import Call, Reply, reply_json


async def show(call: Call) -> Reply:
    return reply_json(await call.services.notifier.about())


async def test(call: Call) -> Reply:
    """Takes no address: it sends only where the settings say."""
    return reply_json({"results": await call.services.notifier.test()})


ROUTES = [
    Route("GET", "/api/notify", Role.READ, show),
    Route("POST", "/api/notify/test", Role.OPERATE, test),
]
