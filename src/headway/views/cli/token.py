"""`hw token create|ls|revoke`: tokens for other machines and people. The token itself is data; the
rest is talk.
"""

from datetime import UTC, datetime

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text import table


def command(call: Call) -> int:
    verb, words = (call.words[0], call.words[1:]) if call.words else ("", [])
    if verb == "create" and not words:
        return _create(call)
    if verb == "ls" and not words:
        return _list(call)
    if verb == "revoke" and len(words) == 1:
        return _revoke(call, words[0])
    raise UsageError("hw token creates, lists or revokes", f"usage: {call.command.usage}")


def _create(call: Call) -> int:
    name = call.get("name")
    if not name:
        raise UsageError(
            "a token needs the name of the machine or person that it is for", "--name node7"
        )
    made = call.source().post("/api/tokens", {"name": name, "role": call.get("role") or "ingest"})
    if call.as_json:
        call.terminal.put_json(made)
        return 0
    call.terminal.put(str(made["token"]))
    call.terminal.say(
        f"a token of role {made['role']} for {name}; it is shown this once. There: hw monitor join HOST:PORT"
    )
    return 0


def _list(call: Call) -> int:
    rows: list[JsonObject] = call.source().get("/api/tokens")
    if call.as_json:
        call.terminal.put_json(rows)
        return 0
    if not rows:
        call.terminal.say("no tokens yet; to make one: hw token create --name node7")
        return 0
    out, now = call.terminal.out, datetime.now(UTC)
    columns = [
        table.Column(name, keep=table.ALWAYS) for name in ("id", "name", "role", "made", "revoked")
    ]
    cells = [
        [str(row["id"]), out.safe(str(row["name"])), str(row["role"]), fmt.local_time(row["created_at"], now),
         fmt.local_time(row["revoked_at"], now) if row["revoked_at"] else ""]
        for row in rows
    ]  # fmt: skip
    _, lines = table.layout(columns, cells, out.columns, {})
    out.write("\n".join(lines) + "\n")
    return 0


def _revoke(call: Call, token_id: str) -> int:
    if "." in token_id:
        raise UsageError(
            "give the id of the token, not the token itself", "hw token ls lists the ids"
        )
    from urllib.parse import quote

    call.source().delete(f"/api/tokens/{quote(token_id, safe='')}")
    if call.as_json:
        call.terminal.put_json({"id": token_id})
    else:
        call.terminal.say(
            "revoked; what its machine still has to send waits there for another token of the same name"
        )
    return 0
