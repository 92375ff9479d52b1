"""Reads progress out of what a program prints: tqdm, rich, Keras, and lines with iterations, speed and time to go.

Pure text to values, for `progress_facts.py`. Bars that redraw themselves come as floods of `\\r`;
only the last state of each counts. What is not surely progress is nothing: a wrong bar is worse than none.
"""

import re
from typing import NamedTuple

PIECES_MAX = 24  # of the end of the text; bars and their neighbours
LINE_CHARS_MAX = 500
LABEL_CHARS_MAX = 80
_FACTOR = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Za-z0-9]|[=>78A-M])"
)
_BREAK = re.compile(r"[\r\n]+")

_AMOUNT = r"\d+(?:\.\d+)?[kKMGTP]?"
_SPAN = r"(?:\d+ days?, )?\d+(?::\d{2}){1,2}"
_TQDM = re.compile(
    rf"^(?P<label>.*?)(?P<percent>\d{{1,3}})%\|(?P<bar>[^|]*)\|\s*(?P<done>{_AMOUNT})/(?P<total>{_AMOUNT})\S*\s*"
    rf"\[(?:{_SPAN}|\?)<(?P<eta>{_SPAN}|\?)(?:,\s*(?P<rate>[^,\]]+))?"
)
_TQDM_OPEN = re.compile(
    rf"^(?P<label>.*?)(?<![\w.])(?P<done>{_AMOUNT})[A-Za-z]+ \[{_SPAN}, (?P<rate>\s?[\d.?]+[^,\]]*/[^,\]]+)"
)
_RICH = re.compile(
    rf"^(?P<label>.*?)(?<![━╸╺])[━╸╺]{{5,}}\s*(?:(?P<percent>\d{{1,3}})%|(?P<done>{_AMOUNT})/(?P<total>{_AMOUNT}))"
    rf"(?P<rest>.*)$"
)
_KERAS = re.compile(
    r"^(?P<label>.*?)(?<![\w/])(?P<done>\d+)/(?P<total>\d+)\s+(?:\[[=>.\s]+\]\s*-|[━╸╺]{5,})\s*(?:ETA:\s*)?"
    r"(?P<eta>(?:\d+:)*\d+s?)(?:\s+(?P<rate>\d+(?:\.\d+)?(?:us|µs|ms|s)/(?:step|sample|epoch)))?"
)
_COUNT = re.compile(
    r"(?<![\w.])(?P<word>global[_ ]step|iterations?|iters?|steps?|batch(?:es)?|updates?|epochs?)\b\]?\s*[:=#]?\s*"
    r"(?:\[\s*\d+\s*\]\s*)?[\[(]?\s*(?P<done>\d[\d,]{0,15})(?![\d,]*\.?\d)(?:\s*(?:/|of)\s*(?P<total>\d[\d,]{0,15}))?",
    re.IGNORECASE,
)
_SPEED = re.compile(
    r"(?<![\w.])(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(?P<scale>[kKMG]?)\s?"
    r"(?P<unit>it|iters?|iterations?|steps?|images?|imgs?|samples?|examples?|tokens?|tok|batch(?:es)?|sentences?|frames?|"
    r"sequences?|seqs?|words?|wps|files?|rows?)\s*(?:/|per )\s*s(?:ec(?:onds?)?)?\b",
    re.IGNORECASE,
)
_ETA = re.compile(
    rf"\b(?:eta|remaining|time left)\b\s*[:=]?\s*(?P<eta>{_SPAN}|(?:\d+(?:\.\d+)?\s*[dhms]\s*)+(?![A-Za-z]))",
    re.IGNORECASE,
)
_LOSS = re.compile(
    r"(?<![\w.])(?P<name>(?:(?:train|training|val|valid|validation|test|eval)[_ /-])?loss)[\"']?\s*[:=(]?\s*"
    r"(?:tensor\()?(?P<value>[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf(?:inity)?))(?![\w%])",
    re.IGNORECASE,
)
_UNIT_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
# which count of a line is the one that moves
_RANKED = {"step": 0, "iter": 1, "batch": 2, "update": 3, "epoch": 4}


class Reading(NamedTuple):
    label: str
    completed: float
    total: float | None
    rate: float | None = None  # as the program says it, in its own unit
    eta_s: float | None = None
    values: tuple[tuple[str, float], ...] = ()  # losses that stand beside it


def readings(text: str) -> list[Reading]:
    """The last state of every bar at the end of some output, in the order in which they came."""
    pieces = [piece for piece in _BREAK.split(text) if piece.strip()][-PIECES_MAX:]
    found: dict[str, Reading] = {}
    for piece in pieces:
        reading = read_line(piece)
        if reading is not None:
            found.pop(reading.label, None)
            found[reading.label] = reading
    return list(found.values())


def read_line(line: str) -> Reading | None:
    """What one line, or one state of a bar, says; None when it is something else."""
    # no runs of blanks: they make patterns slow
    line = " ".join(_ESCAPE.sub("", line[:LINE_CHARS_MAX]).split())
    for reader in (_tqdm, _keras, _rich, _tqdm_open, _counted):
        reading = reader(line)
        if reading is not None:
            return reading._replace(values=_losses(line))
    return None


def _losses(line: str) -> tuple[tuple[str, float], ...]:
    """`loss: 0.31`, `train_loss=0.5`, `val loss 0.4`; the first of each name."""
    if "loss" not in line.lower():
        return ()
    found: dict[str, float] = {}
    for match in _LOSS.finditer(line):
        name = match["name"].lower().replace(" ", "_").replace("-", "_").replace("/", "_")
        found.setdefault(name, float(match["value"]))
    return tuple(found.items())


def _tqdm(line: str) -> Reading | None:
    match = _TQDM.match(line)
    if match is None:
        return None
    done, total = _amount(match["done"]), _amount(match["total"])
    return Reading(
        _label(match["label"]), done, total or None, _rate(match["rate"]), span_s(match["eta"])
    )


def _tqdm_open(line: str) -> Reading | None:
    match = _TQDM_OPEN.match(line)
    if match is None:
        return None
    return Reading(_label(match["label"]), _amount(match["done"]), None, _rate(match["rate"]))


def _keras(line: str) -> Reading | None:
    match = _KERAS.match(line)
    if match is None:
        return None
    done, total = float(match["done"]), float(match["total"])
    return Reading(
        _label(match["label"]), done, total or None, _rate(match["rate"]), span_s(match["eta"])
    )


def _rich(line: str) -> Reading | None:
    match = _RICH.match(line)
    if match is None:
        return None
    span = re.search(rf"(?<![\d:]){_SPAN}(?![\d:])", match["rest"])
    done = float(match["percent"]) if match["percent"] else _amount(match["done"])
    total = 100.0 if match["percent"] else _amount(match["total"])
    speed = _SPEED.search(match["rest"])
    return Reading(
        _label(match["label"]),
        done,
        total or None,
        _speed(speed),
        span_s(span[0]) if span else None,
    )


def _counted(line: str) -> Reading | None:
    """`iter: 42800 speed: 16.1 images/sec eta: 13:02:24`, `Epoch [1][50/1000] … eta: 1:02:03`,
    `step 10/100`.
    """
    counts = [match for match in _COUNT.finditer(line) if match["done"]]
    if not counts:
        return None
    bracket = re.search(r"\[\d+\]\s*\[\s*(\d+)\s*/\s*(\d+)\s*\]", line)
    best = min(counts, key=lambda match: (match["total"] is None, _rank(match["word"])))
    speed, eta = _SPEED.search(line), _ETA.search(line)
    done, total = _whole(best["done"]), _whole(best["total"])
    if bracket is not None:
        done, total = float(bracket[1]), float(bracket[2])
    told = (
        total is not None or speed is not None or eta is not None or _LOSS.search(line) is not None
    )
    if done is None or not told or (total is not None and done > total):
        return None
    return Reading(
        _label(best["word"].lower()),
        done,
        total or None,
        _speed(speed),
        span_s(eta["eta"]) if eta else None,
    )


def _rank(word: str) -> int:
    return next((rank for stem, rank in _RANKED.items() if stem in word.lower()), 9)


def _whole(text: str | None) -> float | None:
    digits = (text or "").replace(",", "")
    return float(digits) if digits else None


def _label(text: str) -> str:
    plain = "".join(ch for ch in text if ch.isprintable()).strip(" :-|,")
    return plain if len(plain) <= LABEL_CHARS_MAX else plain[-LABEL_CHARS_MAX:]


def _amount(text: str) -> float:
    return float(text[:-1]) * _FACTOR[text[-1]] if text[-1] in _FACTOR else float(text)


def _speed(match: "re.Match[str] | None") -> float | None:
    return float(match["number"]) * _FACTOR.get(match["scale"], 1.0) if match is not None else None


def _rate(text: str | None) -> float | None:
    """`35.2it/s`, `1.50s/it`, `3.4MB/s`, `35ms/step`: things per second."""
    match = re.match(r"\s*(\d+(?:\.\d+)?)\s*([^\s/]*)/\s*(\S+)", text or "")
    if match is None:
        return None
    number, unit, per = float(match[1]), match[2], match[3]
    if unit in ("s", "ms", "us", "µs") and per != "s":
        return 1.0 / (number * _UNIT_S[unit]) if number else None
    return number * _FACTOR.get(unit[:1], 1.0) if len(unit) > 1 or unit in _FACTOR else number


def span_s(text: str | None) -> float | None:
    """Seconds of `02:24`, `13:02:24`, `1 day, 2:03:04`, `16s`, `2h 3m`."""
    if not text or "?" in text:
        return None
    days, _, clock = text.rpartition(", ")
    if ":" in clock:
        seconds = 0.0
        for part in clock.rstrip("s").split(":"):
            seconds = seconds * 60 + float(part)
        return seconds + (float(days.split()[0]) * 86_400 if days else 0.0)
    units = re.findall(r"(\d+(?:\.\d+)?)\s*([dhms])", text)
    return sum(float(number) * _UNIT_S[unit] for number, unit in units) if units else None
