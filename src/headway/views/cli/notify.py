"""`hw notify [test]`: who is told when a job ends, fails, stalls or starts, what became of it, and
a test.
"""

from datetime import UTC, datetime

from headway.model.errors import HeadwayError, UsageError
from headway.model.json_types import JsonObject
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text import table
from headway.views.text.terminal import GREEN, RED

_LINES = (
    "one of these lines in one of them, then once more: hw notify test",
    "  notify.command: [mail, -s, Headway, me@example.org]",
    "  notify.webhook_url: https://hooks.example.org/…      # in private.yaml, if its address is a secret",
    "  notify.desktop: true",
)


def command(call: Call) -> int:
    if call.after or call.words not in ([], ["test"]):
        found = " ".join(call.words)[:60]
        raise UsageError(f'hw notify has no "{found}"', f"usage: {call.command.usage}")
    return _test(call) if call.words else _show(call)


def _test(call: Call) -> int:
    answer = call.source().post("/api/notify/test", {})
    results = answer["results"]
    failed = [result for result in results if not result["ok"]]
    if call.as_json:
        call.terminal.put_json(results)
        return 1 if failed or not results else 0
    if not results:
        raise HeadwayError(
            "nobody would be told: no way to tell anybody is set", "\n".join(_hint(call, answer))
        )
    out = call.terminal.out
    for result in results:
        if result["ok"]:
            mark = out.style("sent", GREEN)
        else:
            mark = out.style("failed", RED)
        channel = out.safe(result["channel"])
        call.terminal.put(
            f"{mark}  {channel} {out.safe(result['to'])}: {out.safe(result['detail'])}"
        )
    return 1 if failed else 0


def _hint(call: Call, answer: JsonObject) -> list[str]:
    """Where to say it: the files that the server reads, which need not be those that this shell
    would read.
    """
    files = [
        f"  {call.terminal.err.safe(one['path'])}{'' if one['exists'] else '   (does not exist yet)'}"
        for one in answer.get("files") or []
    ]
    return ["the server reads these settings:", *files, *_LINES]


def _show(call: Call) -> int:
    found = call.source().get("/api/notify")
    if call.as_json:
        call.terminal.put_json(found)
        return 0
    put, safe = call.terminal.put, call.terminal.out.safe
    for one in found["channels"]:
        put(f"{one['channel']:<10}{safe(one['to'])}")
    if not found["channels"]:
        put("nobody is told: no way to tell anybody is set")
        for line in _hint(call, found):
            call.terminal.say(line)
        return 0
    put(f"told      {', '.join(found['on']) or 'nothing'}")
    put(
        f"stalled   after {fmt.duration(found['stall_s'])} of silence"
        if found["stall_s"]
        else "stalled   never"
    )
    if found["notices"]:
        put("\n" + "\n".join(_table(call, found["notices"])))
    return 0


def _table(call: Call, notices: list[JsonObject]) -> list[str]:
    titles = ("when", "job", "what", "by", "state")
    columns = [table.Column(title, keep=table.ALWAYS) for title in titles]
    columns += [table.Column("tries", right=True), table.Column("result", keep=1, limit=200)]
    now = datetime.now(UTC)
    rows = [
        [
            fmt.local_time(one["time"], now), one["id"], one["kind"], one["channel"], one["state"], str(one["tries"]),
            one["result"] or "",
        ]
        for one in notices
    ]  # fmt: skip
    safe = call.terminal.out.safe
    return table.layout(
        columns, [[safe(cell) for cell in row] for row in rows], call.terminal.out.columns
    )[1]
