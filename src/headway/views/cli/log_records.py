"""Records of `logging` as lines: `hw logs ID --stream log`. Called by `logs`.

A record that the program has not printed itself is nowhere else to be read once the job is over.
"""

from collections.abc import Iterator
from functools import partial

from headway.model.errors import NotFoundError
from headway.model.json_types import JsonObject
from headway.views.api.follow import Follow
from headway.views.api.source import Source, job_route
from headway.views.cli.dispatch import Call
from headway.views.cli.output import JsonLines, Merged
from headway.views.text import job_text

Record = JsonObject


def show(call: Call, source: Source, job: JsonObject) -> None:
    """All records, or the last; with -f those that come, until the job is over."""
    follow = Follow(source, job["id"], tail=0, records=bool(call.get("follow")))
    query = [(key, call.get(key)) for key in ("level", "rank", "grep")]
    if call.as_json and not call.get("follow"):
        found = [
            one
            for page in _pages(follow, [*query, ("tail", call.get("tail"))], 0)
            for one in page["records"]
        ]
        call.terminal.put_json({"records": found})
        return
    out = call.terminal.out
    sink = JsonLines(out) if call.as_json else Merged(out, out, ranks=job_text.count_processes(job))
    after = _put(follow, sink, [*query, ("tail", call.get("tail"))], 0)
    for _ in follow.answers() if call.get("follow") else ():
        after = _put(follow, sink, query, after)
    sink.finish()


def _put(
    follow: Follow, sink: Merged | JsonLines, query: list[tuple[str, object]], after: int
) -> int:
    for page in _pages(follow, query, after):
        found = page["records"]
        sink.take(
            {
                "lines": found
                if isinstance(sink, JsonLines)
                else [line for one in found for line in lines(one)]
            }
        )
        after = page["after"]
        if sink.closed:
            raise BrokenPipeError
    return after


def _pages(follow: Follow, query: list[tuple[str, object]], after: int) -> Iterator[JsonObject]:
    more = True
    while more:
        page = follow.ask(partial(_ask, follow.job_id, [*query, ("after", after)]))
        yield page
        more, after = bool(page.get("more")) and page["after"] > after, page["after"]
        query = [pair for pair in query if pair[0] != "tail"]


def _ask(job_id: str, query: list[tuple[str, object]], source: Source) -> JsonObject:
    found: JsonObject = source.get(job_route(job_id, "records"), query)
    return found


def unprinted(records: list[Record]) -> list[JsonObject]:
    """The lines of those that nobody has printed: the others are in the output already."""
    return [line for record in records if not record.get("printed") for line in lines(record)]


class Beside:
    """Records of `logging` that nobody printed, laid between the lines of the output by their
    times. Of a selection of lines that has none of its own (`--stream`, `--task`, …) there are none.
    """

    def __init__(self, call: Call, follow: Follow) -> None:
        self._follow, self._after = follow, 0
        narrowed = any(
            call.get(name) is not None for name in ("stream", "task", "attempt", "bytes")
        )
        self._is_on = not narrowed
        self._query = [(key, call.get(key)) for key in ("rank", "grep")]
        self._tail = call.get("tail")
        self._since = ""
        self._waiting: list[JsonObject] = []

    def laid_in(self, lines: list[JsonObject], *, is_last: bool) -> list[JsonObject]:
        """Those lines with the records that came up to the last of them; with `is_last`, all."""
        if not self._is_on:
            return lines
        self._fetch()
        if self._tail is not None and not self._since and lines:
            self._since = _time(lines[0])  # a tail of the output begins there
        until = ""
        if lines:
            until = _time(lines[-1])

        due = []
        still_waiting = []
        for record in self._waiting:
            if not is_last and _time(record) > until:
                still_waiting.append(record)
            elif _time(record) >= self._since:
                due.append(record)
        self._waiting = still_waiting

        if not due:
            return lines
        return sorted([*lines, *due], key=_time)

    def _fetch(self) -> None:
        query = [*self._query, *([("tail", self._tail)] if not self._after else [])]
        try:
            for page in _pages(self._follow, query, self._after):
                self._waiting += unprinted(page["records"])
                self._after = page["after"]
        except NotFoundError:  # an older server keeps none
            self._is_on = False


def _time(line: JsonObject) -> str:
    return str(line.get("time") or "")


def lines(record: Record) -> list[JsonObject]:
    """Level and logger stand before the first line; the others of a text or a table come below it
    as they are.
    """
    logger = record.get("logger")
    front = f"{record.get('level')}{f' {logger}' if logger and logger != 'root' else ''}: "
    first, *rest = str(record.get("text", "")).split("\n")
    if rest and not first.isascii():
        first, rest = "", [first, *rest]  # a drawing keeps its shape
    return [
        {"time": record.get("time"), "rank": record.get("rank"), "text": text}
        for text in (front + first, *rest)
    ]
