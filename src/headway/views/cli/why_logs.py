"""`hw why --logs FILE…`: the cause in logs of jobs that Headway never ran. No server is asked."""

import gzip
import os
import signal as signals
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from headway.diagnose import flight_recorder
from headway.diagnose.evidence import Evidence
from headway.diagnose.reader import read_stream
from headway.diagnose.runner import Diagnosis, diagnose
from headway.model.errors import UsageError
from headway.model.finding import Finding
from headway.model.json_types import JsonMapping, JsonObject
from headway.views.cli.dispatch import Call
from headway.views.text.terminal import BOLD, DIM, Output

CHUNK_BYTES = 4 << 20
FILES_MAX = 1_000


def command(call: Call) -> int:
    paths = list(_files(call.words + (call.after or [])))
    alone = call.get("exit_code") is not None or call.get("signal") is not None
    if not paths and not alone:
        raise UsageError(
            "hw why --logs needs the files to read", "for example: hw why --logs slurm-1234.out"
        )
    named = list(_names(paths))
    dumps = [_dump(name, path) for name, path in named if _is_dump(path)]
    streams = [read_stream(name, _chunks(path)) for name, path in named if not _is_dump(path)]
    exit_code = call.get("exit_code")
    found = diagnose(Evidence(streams=streams, exit_code=exit_code, signal=call.get("signal")))
    if dumps:
        found = _with_dumps(found, dumps)
    if call.as_json:
        call.terminal.put_json(as_json(found))
    else:
        out = call.terminal.out
        out.write("\n".join(listing(found, out)) + "\n")
    return 0


def _is_dump(path: str) -> bool:
    """What PyTorch's flight recorder writes when a collective does not end."""
    if path == "-":
        return False
    try:
        with open(path, "rb") as file:
            return flight_recorder.is_dump(file.read(4096))
    except OSError:
        return False  # told where it is read


def _dump(name: str, path: str) -> flight_recorder.Dump:
    try:
        with open(path, "rb") as file:
            return flight_recorder.read(name, file.read(flight_recorder.BYTES_MAX + 1))
    except flight_recorder.NoDumpError as error:
        raise UsageError(f"{path} is no dump of PyTorch's flight recorder: {error}") from None


def _with_dumps(found: Diagnosis, dumps: Sequence[flight_recorder.Dump]) -> Diagnosis:
    """Who is missing in a collective says more than the time-out that followed from it."""
    missing = flight_recorder.judge(dumps)
    if missing is None:
        if found.findings:
            return found
        return Diagnosis(
            f"the {len(dumps)} dumps agree: no rank is missing in any collective", [], []
        )
    finding = Finding(
        missing.cause,
        "user" if missing.cause == "collective_divergence" else "system",
        missing.text,
        rank=missing.rank,
        advice="look at what that rank does instead; while it runs: hw stacks ID",
        evidence=[
            {"stream": dumps[0].name, "offset": None, "line": None, "text": text}
            for text in missing.evidence
        ],
        confidence=missing.confidence,
    )
    return Diagnosis(missing.text, [finding], found.findings[:1], found.fingerprint)


def as_json(found: Diagnosis) -> JsonObject:
    return {
        "id": None,
        "state": None,
        "verdict": found.verdict,
        "findings": [finding.as_json() for finding in found.findings],
        "hypotheses": [finding.as_json() for finding in found.hypotheses],
        "fingerprint": found.fingerprint,
    }


def listing(found: Diagnosis, out: Output) -> Iterator[str]:
    if not found.findings:
        mark = "?" if found.verdict.startswith("unknown") else "✓"
        yield f"{mark} {out.safe(found.verdict)}"
    for finding in found.findings:
        yield from finding_lines(finding.as_json(), out)
    if found.hypotheses:
        yield f"  {out.style('could also be' if found.findings else 'perhaps', DIM)}"
        for finding in found.hypotheses:
            yield f"            {finding.cause} ({finding.confidence:.0%})  {out.safe(_short(finding.text))}"
    if not found.findings and found.fingerprint:
        yield f"  {'pattern':<9} {found.fingerprint}"


def finding_lines(finding: JsonMapping, out: Output, mark: str = "✗ ") -> Iterator[str]:
    """The answer first, then evidence that can be checked, then what to do."""
    who = "" if finding.get("rank") is None else f"rank {finding['rank']}: "
    kind = f"{finding['class']} · {finding['cause']}"
    sure = finding.get("confidence")
    if sure is not None:
        kind += f" · {sure:.0%} sure"
    yield f"{mark}{out.style(out.safe(who + _short(str(finding['text']))), BOLD)}   {out.style(kind, DIM)}"
    for number, line in enumerate(finding.get("evidence") or ()):
        place = str(line["stream"])
        if line.get("line"):
            place += f":{line['line']}"
        name = "evidence" if number == 0 else ""
        yield f"  {name:<9} {out.style(out.safe(place), DIM)}  {out.safe(str(line['text']).strip())}"
    if finding.get("advice"):
        yield f"  {'next':<9} {out.safe(str(finding['advice']))}"
    if finding.get("retry"):
        yield f"  {'retry':<9} {out.safe(str(finding['retry']))}"


def _short(text: str) -> str:
    return text if len(text) <= 160 else text[:159] + "…"


def _files(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        if word != "-" and Path(word).is_dir():
            found = sorted(str(path) for path in Path(word).rglob("*") if path.is_file())
            yield from found[:FILES_MAX]
        else:
            yield word


def _names(paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The shortest names that still tell the files apart."""
    bases = [os.path.basename(path) for path in paths]
    for path, base in zip(paths, bases, strict=True):
        yield (base if bases.count(base) == 1 else path), path


def _chunks(path: str) -> Iterator[bytes]:
    if path == "-":
        yield from iter(lambda: sys.stdin.buffer.read(CHUNK_BYTES), b"")
        return
    try:
        with open(path, "rb") as file:
            plain: IO[bytes] = file if not path.endswith(".gz") else gzip.GzipFile(fileobj=file)  # type: ignore[assignment]
            yield from iter(lambda: plain.read(CHUNK_BYTES), b"")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None


def signal_number(text: str, name: str) -> int:
    """`9`, `KILL` or `SIGKILL`."""
    if text.isdigit() and 0 < int(text) < 65:
        return int(text)
    word = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    try:
        return int(signals.Signals[word])
    except KeyError:
        raise UsageError(
            f'{name}: "{text[:40]}" is not a signal', "for example: --signal 9, --signal KILL"
        ) from None
