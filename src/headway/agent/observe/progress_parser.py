"""Reads what a line of output says of progress: a table of forms, tried in order. Pure text to values, for
`output_watch.py`.

A form is how one trainer, or family of them, prints: `_FORMS` has them all, and
`tests/unit/test_progress_forms.py` a line of real output for each. The form alone decides which
number is the count, whether it is of a loop inside another, what unit a rate is in, and how a value
is called. What is not surely progress is nothing: a wrong bar is worse than none.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LINE_CHARS_MAX = 1_000
LABEL_CHARS_MAX = 80
VALUES_MAX = 24  # of one line

START, INSIDE, END = "start", "inside", "end"


class Epoch(NamedTuple):
    """Where in the outer loop a line stands."""

    number: int
    total: int | None = None
    # printed when the epoch begins (not done), by a step of it, or when it is over
    when: str = INSIDE
    base: int | None = None  # the number of the first one, where the form says


class Reading(NamedTuple):
    form: str
    label: str = ""
    completed: float | None = None  # None: the line has values or an epoch, and no count
    total: float | None = None
    rate: float | None = None  # in the unit of the count, per second
    eta_s: float | None = None  # of what is counted here
    job_eta_s: float | None = None  # of everything, where the program prints that
    values: tuple[tuple[str, float], ...] = ()
    epoch: Epoch | None = None
    step: int | None = None  # of the whole run, where the line says it
    is_bar: bool = False  # it redraws itself: only its last state is of interest

    @property
    def kind(self) -> str:
        """`epoch 3` and `epoch 4` are one bar; so is one whose label shows the loss."""
        plain = "".join(char for char in self.label if not char.isdigit())
        return plain.strip(" []()/:-.,|") or "progress"


# -- words that the forms share

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Za-z0-9]|[=>78A-M])"
)
_FACTOR = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_AMOUNT = r"\d+(?:\.\d+)?[kKMGTP]?"
_SPAN = r"(?:\d+ days?, )?\d+(?::\d{2}){1,2}"
_NUMBER = r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|NaN|NAN|inf(?:inity)?|Inf(?:inity)?)"
_UNIT_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}

# units of a rate, by what they count; a rate counts only beside a count of the same family
_FAMILIES = {
    "step": r"it|its|iters?|iterations?|steps?|batch(?:es)?|updates?|ups",
    "epoch": r"epochs?",
    "sample": r"samples?|images?|imgs?|examples?|ex|sentences?|sequences?|seqs?|frames?|rows?",
    "token": r"tokens?|toks?|words?|wps|tps",
}
_ANY_UNIT = "|".join(_FAMILIES.values())
_PER_SECOND = r"\s*(?:/|per |_per_)\s*s(?:ec(?:ond)?s?)?\b"
# `3.2 it/s`, `12k tokens/sec`
_RATE_AFTER = re.compile(
    rf"(?<![\w.])(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(?P<scale>[kKMG]?)\s?(?P<unit>{_ANY_UNIT}){_PER_SECOND}",
    re.IGNORECASE,
)
# `it/s: 3.2`, `tokens/s=12345`, `It/sec 3.2`
_RATE_BEFORE = re.compile(
    rf"(?<![\w.])(?P<unit>{_ANY_UNIT}){_PER_SECOND}\s*[:=]?\s*"
    r"(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?P<scale>[kKMG]?)\b",
    re.IGNORECASE,
)
# `350 ms/step`, `1.5 s/it`
_PACE_AFTER = re.compile(
    rf"(?<![\w.])(?P<number>\d+(?:\.\d+)?)\s*(?P<time>ms|us|µs|s)/(?P<unit>{_ANY_UNIT})\b",
    re.IGNORECASE,
)
# `ms/batch 12.35`, `s/it: 1.5`
_PACE_BEFORE = re.compile(
    rf"(?<![\w.])(?P<time>ms|us|µs|s)/(?P<unit>{_ANY_UNIT})\s*[:=]?\s*(?P<number>\d+(?:\.\d+)?)\b",
    re.IGNORECASE,
)
_ETA = re.compile(
    rf"\b(?:eta|remaining|time left)\b\s*[:=]?\s*(?P<eta>{_SPAN}|(?:\d+(?:\.\d+)?\s*[dhms]\s*)+(?![A-Za-z]))",
    re.IGNORECASE,
)

# -- values beside a count

_METRIC = (
    r"loss(?:_[A-Za-z0-9]+)*|acc(?:uracy)?(?:@\d+)?|acc[_/]?top-?\d|top-?\d(?:_acc(?:uracy)?)?|ppl|perplexity|"
    r"lr|learning[_ ]rate|f1(?:[_-]score)?|auc|auroc|bleu|rouge[_-]?\w*|map|miou|iou|dice|mse|mae|rmse|"
    r"nll|elbo|kl|entropy|reward|return|wer|cer|bpb|bpc|bpd|fid|psnr|ssim|r2|precision|recall|"
    r"grad[_ ]norm|gnorm|norm|score|error|err"
)
_PREFIX = (
    r"train(?:ing)?|val|valid(?:ation)?|test|eval(?:uation)?|dev|avg|average|mean|best|lm|total|running|"
    r"smoothed|epoch|final|cur(?:rent)?|batch|step|aux|min|max|last"
)
_VALUE = re.compile(
    rf"(?<![\w.@])(?P<name>(?:(?:{_PREFIX})[_ /.-])*(?:[A-Za-z][A-Za-z0-9]*[_/.-])*(?:{_METRIC}))[\"']?"
    rf"(?:\s+value)?\s*(?:\(\w+\))?\s*(?:[:=]|is)?\s*(?:tensor\()?\[?[\"']?(?P<value>{_NUMBER})(?!\w)"
    rf"(?:/(?P<of>\d+) ?\(\d+(?:\.\d+)?%\))?",
    re.IGNORECASE,
)
_PAIR = re.compile(
    rf"(?<![\w.])(?P<name>[A-Za-z_][\w./@-]*(?: [A-Za-z_][\w./@-]*)?)[\"']?\s*[:=]\s*[\"']?(?P<value>{_NUMBER})(?![\w:])%?"
)
# numbers that stand in such pairs and are no metric
_NO_METRIC = re.compile(
    r"(?:v_num|eta|time|data[_ ]time|last_time|last_data_time|memory|max_mem|mem|elapsed|epochs?|steps?|iter(?:ation)?s?|"
    r"batch(?:es)?|global[_ ]step|num_updates|it/s|wall|train_wall|rank|gb_free|cuda)\Z",
    re.IGNORECASE,
)


def metric_name(text: str) -> str:
    """As it is written, in lower case and without blanks: `Val Loss` is `val_loss`."""
    return re.sub(r"[\s]+", "_", text.strip().strip("\"'")).lower().rstrip("_.:/-")


def _values(line: str) -> tuple[tuple[str, float], ...]:
    """Metrics that are known by their names, anywhere in a line; the first of each name."""
    found: dict[str, float] = {}
    for match in _VALUE.finditer(line):
        value = float(match["value"])
        if match["name"].lower().endswith("loss") and line[match.end() :].lstrip()[:1] == "%":
            continue  # `packet loss 3%`
        if match["of"] and float(match["of"]) > 0:  # `9833/10000 (98%)`
            value = 100.0 * value / float(match["of"])
        found.setdefault(metric_name(match["name"]), value)
    return tuple(found.items())[:VALUES_MAX]


def _pairs(text: str) -> tuple[tuple[str, float], ...]:
    """Every `name: number` or `name=number`, for forms where each of them is a value."""
    found: dict[str, float] = {}
    for match in _PAIR.finditer(text):
        name = metric_name(match["name"])
        if not _NO_METRIC.match(name):
            found.setdefault(name, float(match["value"]))
    return tuple(found.items())[:VALUES_MAX]


# -- rates and times


def _family(unit: str) -> str:
    for name, pattern in _FAMILIES.items():
        if re.fullmatch(pattern, unit, re.IGNORECASE):
            return name
    return unit.lower()


def _rate_in(line: str, family: str) -> float | None:
    """The rate of a count of that family, whichever way round it is written; rates of anything
    else are not the count's.
    """
    if "/" not in line and "per" not in line:
        return None

    for pattern in (_RATE_AFTER, _RATE_BEFORE):
        for match in pattern.finditer(line):
            if _family(match["unit"]) == family:
                return float(match["number"]) * _FACTOR.get(match["scale"], 1.0)

    for pattern in (_PACE_AFTER, _PACE_BEFORE):
        for match in pattern.finditer(line):
            if _family(match["unit"]) != family:
                continue
            seconds = float(match["number"]) * _UNIT_S[match["time"].lower()]
            if seconds > 0:
                return 1.0 / seconds
    return None


def _eta_in(line: str) -> float | None:
    match = _ETA.search(line)
    return span_s(match["eta"]) if match is not None else None


def _bar_rate(text: str | None) -> float | None:
    """tqdm's own: `35.2it/s`, `1.50s/it`, `3.4MB/s`. It counts what the bar counts."""
    match = re.match(r"\s*(\d+(?:\.\d+)?)\s*([^\s/]*)/\s*(\S+)", text or "")
    if match is None:
        return None
    number, unit, per = float(match[1]), match[2], match[3]
    if unit in ("s", "ms", "us", "µs") and per != "s":
        return 1.0 / (number * _UNIT_S[unit]) if number else None
    return number * _FACTOR.get(unit[:1], 1.0) if len(unit) > 1 or unit in _FACTOR else number


def span_s(text: str | None) -> float | None:
    """Seconds of `02:24`, `13:02:24`, `1 day, 2:03:04`, `16s`, `2h 3m`, `350ms`."""
    if not text or "?" in text:
        return None
    days, _, clock = text.rpartition(", ")
    if ":" in clock:
        seconds = 0.0
        for part in clock.rstrip("s").split(":"):
            seconds = seconds * 60 + float(part)
        return seconds + (float(days.split()[0]) * 86_400 if days else 0.0)
    units = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|[dhms])", text)
    return sum(float(number) * _UNIT_S[unit] for number, unit in units) if units else None


def _amount(text: str) -> float:
    return float(text[:-1]) * _FACTOR[text[-1]] if text[-1] in _FACTOR else float(text)


def _whole(text: str | None) -> int | None:
    digits = (text or "").replace(",", "").strip()
    return int(digits) if digits else None


def _label(text: str) -> str:
    plain = "".join(ch for ch in text if ch.isprintable()).strip(" :-|,")
    return plain if len(plain) <= LABEL_CHARS_MAX else plain[-LABEL_CHARS_MAX:]


_LABEL_EPOCH = re.compile(
    r"\bepochs?\b\s*[:#]?\s*[\[(]?\s*(?P<number>\d{1,9})(?:\s*(?:/|of)\s*(?P<total>\d{1,9}))?",
    re.IGNORECASE,
)


def _label_epoch(label: str) -> Epoch | None:
    """A bar called `epoch 3/5` is one epoch of several."""
    match = _LABEL_EPOCH.search(label)
    if match is None:
        return None
    return Epoch(int(match["number"]), _whole(match["total"]))


# -- the forms: each takes a match and the line, and returns a Reading or None


def _tqdm(match: "re.Match[str]", line: str) -> Reading:
    label = _label(match["label"])
    total = _amount(match["total"])
    return Reading(
        "tqdm",
        label,
        _amount(match["done"]),
        total or None,
        _bar_rate(match["rate"]),
        span_s(match["eta"]),
        values=_pairs(line[match.end() :]) or _values(label),
        epoch=_label_epoch(label),
        is_bar=True,
    )


def _tqdm_open(match: "re.Match[str]", line: str) -> Reading:
    label = _label(match["label"])
    return Reading(
        "tqdm",
        label,
        _amount(match["done"]),
        None,
        _bar_rate(match["rate"]),
        values=_pairs(line[match.end() :]) or _values(label),
        epoch=_label_epoch(label),
        is_bar=True,
    )


def _keras(match: "re.Match[str]", line: str) -> Reading:
    rest = line[match.end() :]
    times = re.match(
        r"\s*(?:-\s*)?(?:ETA:\s*)?(?P<eta>(?:\d+:)*\d+s?)?(?:\s+(?P<pace>\d+(?:\.\d+)?(?:us|µs|ms|s)/\w+))?",
        rest,
    )
    pace = times["pace"] if times is not None else None
    completed, total = float(match["done"]), float(match["total"])
    return Reading(
        "keras",
        "",
        completed,
        total or None,
        _bar_rate(pace),
        # once it is full, the time that it took stands in the same place
        span_s(times["eta"]) if times is not None and completed < total else None,
        values=_pairs(rest),
        is_bar=True,
    )


def _rich(match: "re.Match[str]", line: str) -> Reading:
    rest = match["rest"]
    label = _label(match["label"])
    if match["percent"]:
        completed, total = float(match["percent"]), 100.0
    else:
        completed, total = _amount(match["done"]), _amount(match["total"])
    rate = _rate_in(rest, "step") if not match["percent"] else None
    spans = re.findall(rf"(?<![\d:]){_SPAN}(?![\d:])", rest)
    # Lightning: `elapsed • left`; rich's own default column is the time left
    left = span_s(spans[-1]) if spans and completed < total else None
    epoch = None
    outer = re.match(r"Epoch (\d+)/(-?\d+)", label)
    if outer is not None:
        # Lightning counts from 0 and prints the number of the last one
        last = int(outer[2])
        epoch = Epoch(int(outer[1]), last + 1 if last >= 0 else None, base=0)
        label = f"Epoch {outer[1]}"
    else:
        epoch = _label_epoch(label)
    return Reading(
        "rich",
        label,
        completed,
        total or None,
        rate,
        left,
        values=_pairs(rest.partition("it/s")[2]) if outer is not None else (),
        epoch=epoch,
        is_bar=True,
    )


def _mapping(match: "re.Match[str]", line: str) -> Reading | None:
    """A dict of numbers: HF Trainer, and everybody who prints a dict or a JSON object."""
    found: dict[str, float] = {}
    for item in re.finditer(
        rf"[\"'](?P<name>[^\"']{{1,80}})[\"']\s*:\s*(?:tensor\()?[\"']?(?P<value>{_NUMBER})[\"']?(?=[\s,}})])",
        line,
    ):
        found.setdefault(metric_name(item["name"]), float(item["value"]))
    step = next(
        (found.pop(name) for name in ("global_step", "step", "iteration", "iter") if name in found),
        None,
    )
    epoch = found.pop("epoch", None)
    if not found or (
        step is None and epoch is None and not any(re.search(_METRIC, n) for n in found)
    ):
        return None
    return Reading(
        "dict",
        step=int(step) if step is not None and step == int(step) else None,
        values=tuple(found.items())[:VALUES_MAX],
    )


def _bracketed(match: "re.Match[str]", line: str) -> Reading:
    """`Epoch: [0][ 10/5005]` (torchvision, imagenet), `Epoch [1][50/1000]` (mmcv),
    `Epoch(train) [1][ 50/1000]` (mmengine).
    """
    number = int(match["epoch"])
    total = _whole(match["epochs"])
    phase = (match["phase"] or "").lower()
    is_train = phase in ("", "train")
    word = "epoch" if is_train else phase
    return Reading(
        "bracketed",
        f"{word} {number}",
        float(match["done"]),
        float(match["total"]),
        _rate_in(line, "step"),
        job_eta_s=_eta_in(line) if is_train else None,
        values=_values(line) if is_train else _prefixed(_values(line), phase),
        epoch=Epoch(number, total) if is_train else None,
    )


def _prefixed(values: tuple[tuple[str, float], ...], word: str) -> tuple[tuple[str, float], ...]:
    return tuple(
        (name if name.startswith(word) else f"{word}_{name}", value) for name, value in values
    )


def _test_bracket(match: "re.Match[str]", line: str) -> Reading:
    return Reading(
        "bracketed",
        match["word"].lower(),
        float(match["done"]),
        float(match["total"]),
        _rate_in(line, "step"),
        _eta_in(line),
    )


def _mnist(match: "re.Match[str]", line: str) -> Reading:
    """`Train Epoch: 1 [640/60000 (1%)]`: samples of the data set are counted."""
    return Reading(
        "mnist",
        f"epoch {match['epoch']}",
        float(match["done"]),
        float(match["total"]),
        _rate_in(line, "sample"),
        values=_values(line[match.end() :]),
        epoch=Epoch(int(match["epoch"])),
    )


def _test_set(match: "re.Match[str]", line: str) -> Reading | None:
    values = _prefixed(_values(line[match.end() :]), "test")
    values = tuple((name.replace("test_average_", "test_"), value) for name, value in values)
    return Reading("mnist", values=values) if values else None


def _quickstart(match: "re.Match[str]", line: str) -> Reading:
    """`loss: 2.302  [   64/60000]` of PyTorch's quick start."""
    return Reading(
        "quickstart",
        "samples",
        float(match["done"]),
        float(match["total"]),
        _rate_in(line, "sample"),
        values=_values(line),
    )


def _cifar(match: "re.Match[str]", line: str) -> Reading:
    """`[1,  2000] loss: 2.173`: epoch and batch, of PyTorch's CIFAR tutorial."""
    return Reading(
        "cifar",
        f"epoch {match['epoch']}",
        float(match["done"]),
        None,
        values=_values(line[match.end() :]),
        epoch=Epoch(int(match["epoch"])),
    )


def _batches(match: "re.Match[str]", line: str) -> Reading:
    """`| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 12.35 | loss  7.61 | ppl  2017.90`"""
    return Reading(
        "batches",
        f"epoch {match['epoch']}",
        float(match["done"]),
        float(match["total"]),
        _rate_in(line, "step"),
        values=_values(line[match.end() :]),
        epoch=Epoch(int(match["epoch"])),
    )


def _end_of_epoch(match: "re.Match[str]", line: str) -> Reading:
    number = _whole(match["epoch"])
    return Reading(
        "batches",
        values=_values(line[match.end() :]),
        epoch=Epoch(number, when=END) if number is not None else None,
    )


def _boosting(match: "re.Match[str]", line: str) -> Reading | None:
    """`[10]\\ttrain-rmse:0.35\\teval-rmse:0.40` of XGBoost, `[10]\\tvalid_0's l2: 0.25` of
    LightGBM.
    """
    values = []
    for item in re.finditer(
        rf"(?P<set>[\w.]+)(?:'s |-)(?P<metric>[\w@.:-]+?)\s*:\s*(?P<value>{_NUMBER})(?![\w])",
        line[match.end() :],
    ):
        values.append((f"{item['set']}-{item['metric']}", float(item["value"])))
    if not values:
        return None
    number = int(match["number"])
    return Reading("boosting", "round", float(number), None, values=tuple(values))


def _megatron(match: "re.Match[str]", line: str) -> Reading:
    pace = re.search(r"elapsed time per iteration \(ms\):\s*(\d+(?:\.\d+)?)", line)
    rate = 1e3 / float(pace[1]) if pace is not None and float(pace[1]) > 0 else None
    done = int(match["done"])
    return Reading(
        "megatron",
        "iteration",
        float(done),
        float(match["total"]),
        rate,
        values=_pairs_of_columns(line[match.end() :]),
        step=done,
    )


def _pairs_of_columns(text: str) -> tuple[tuple[str, float], ...]:
    """`| lm loss: 8.1E+00 | grad norm: 1.2 |`: columns between bars whose names are metrics."""
    found: dict[str, float] = {}
    for column in text.split("|"):
        name, colon, value = column.rpartition(":")
        number = re.match(rf"\s*({_NUMBER})\s*\Z", value)
        if colon and number and re.search(rf"(?:{_METRIC})\Z", name.strip(), re.IGNORECASE):
            found.setdefault(metric_name(name), float(number[1]))
    return tuple(found.items())[:VALUES_MAX]


def _megatron_validation(match: "re.Match[str]", line: str) -> Reading:
    values = [
        (f"validation_{metric_name(item['name'])}", float(item["value"]))
        for item in re.finditer(
            rf"\|\s*(?P<name>[\w ]+?)(?: value)?:\s*(?P<value>{_NUMBER})\s*(?=\||$)",
            line[match.end() :],
        )
    ]
    return Reading("megatron", values=tuple(values), step=int(match["step"]))


def _deepspeed(match: "re.Match[str]", line: str) -> Reading:
    done = int(match["done"])
    return Reading("deepspeed", "step", float(done), None, values=_values(line), step=done)


def _fairseq_inner(match: "re.Match[str]", line: str) -> Reading:
    rest = line[match.end() :]
    step = re.search(r"num_updates=(\d+)", rest)
    return Reading(
        "fairseq",
        f"epoch {int(match['epoch'])}",
        float(match["done"]),
        float(match["total"]),
        _rate_in(rest, "step") or _firstfloat(rest, r"ups[=:]\s*"),
        values=_values(rest),
        epoch=Epoch(int(match["epoch"])),
        step=int(step[1]) if step is not None else None,
    )


def _firstfloat(text: str, name: str) -> float | None:
    match = re.search(rf"\b{name}({_NUMBER})", text)
    return float(match[1]) if match is not None else None


def _fairseq_end(match: "re.Match[str]", line: str) -> Reading:
    rest = line[match.end() :]
    step = re.search(r"num_updates (\d+)", rest)
    values = _values(rest)
    is_train = match["phase"] == "train"
    return Reading(
        "fairseq",
        values=values if is_train else _prefixed(values, match["phase"]),
        epoch=Epoch(int(match["epoch"]), when=END) if is_train else None,
        step=int(step[1]) if step is not None else None,
    )


def _detectron(match: "re.Match[str]", line: str) -> Reading:
    """`eta: 0:12:01  iter: 19  total_loss: 2.5  loss_cls: 1.2  time: 0.35  lr: 0.0001  max_mem: 3000M`"""
    done = int(match["iter"])
    pace = _firstfloat(line, r"time:\s*")
    return Reading(
        "detectron2",
        "iter",
        float(done),
        None,
        1.0 / pace if pace else None,
        span_s(match["eta"]),
        values=_values(line),
        step=done,
    )


def _loss_at(match: "re.Match[str]", line: str) -> Reading:
    number = int(match["number"])
    value = float(match["value"])
    is_epoch = match["word"].lower().startswith("epoch")
    return Reading(
        "loss at",
        match["word"].lower(),
        None if is_epoch else float(number),
        values=((metric_name(match["name"]), value),),
        epoch=Epoch(number, when=END) if is_epoch else None,
        step=None if is_epoch else number,
    )


def _loss_after(match: "re.Match[str]", line: str) -> Reading:
    """`Loss: 0.000123 after 234 batches`"""
    return Reading(
        "loss at",
        match["word"].lower(),
        float(match["number"]),
        values=_values(line),
    )


def _histogram_boosting(match: "re.Match[str]", line: str) -> Reading:
    done = int(match["done"])
    return Reading(
        "sklearn", "tree", float(done), float(match["total"]), values=_values(line), step=done
    )


# which count of a line is the one that moves
_ORDER = ("step", "iter", "update", "batch", "round")
_COUNT = re.compile(
    r"(?<![\w.])(?P<word>global[_ ]step|iterations?|iters?|its?|steps?|batch(?:es)?|(?:num_)?updates?|rounds?|epochs?)"
    r"(?P<close>\]|\))?\s*(?:[:=#]|no\.?)?\s*[\[(]?\s*(?P<done>\d[\d,]{0,15})(?![\d,]*\.\d)(?![\d,%-]|:\d)"
    r"(?:\s*(?:/|of)\s*(?P<total>\d[\d,]{0,15})(?![\d.]))?",
    re.IGNORECASE,
)


def _counted(match: "re.Match[str]", line: str) -> Reading | None:
    """`iter 10: loss 4.12, time 350ms`, `step 20/300 loss … 1048 tokens/s`, `Epoch [3/5], Step [100/600], Loss: 0.12`,
    `Iter 10: Train loss 2.6, It/sec 3.2`, `Epoch 3: val_acc 0.8`, `Epoch 3/5`.
    """
    inner = outer = None
    for count in _COUNT.finditer(line):
        word = count["word"].lower()
        if word.startswith("epoch"):
            outer = outer or count
        elif inner is None or (inner["total"] is None and count["total"] is not None):
            inner = count
    values = _values(line)
    epoch = None
    if outer is not None:
        number, of = int(outer["done"].replace(",", "")), _whole(outer["total"])
        if of is not None and number > of:
            return None
        if inner is not None:
            when = INSIDE
        else:
            when = END if values else START
        epoch = Epoch(number, of, when)
    if inner is None:
        if epoch is None or (not values and not _starts_epoch(line, outer)):
            return None
        return Reading(
            "epoch",
            job_eta_s=_eta_in(line),
            rate=_rate_in(line, "epoch"),
            values=values,
            epoch=epoch,
        )
    done, total = _whole(inner["done"]), _whole(inner["total"])
    rate, eta_s = _rate_in(line, "step"), _eta_in(line)
    told = total is not None or rate is not None or eta_s is not None or bool(values)
    alone = len(line) <= inner.end() - inner.start() + 2  # `STEP: 3`
    if done is None or not (told or alone) or (total is not None and done > total):
        return None
    in_epoch = epoch is not None
    label = inner["word"].lower()
    return Reading(
        "counted",
        # without a total it may count through all epochs, so it is not called the epoch's
        f"epoch {epoch.number}" if epoch is not None and total else label,
        float(done),
        float(total) if total else None,
        rate,
        None if in_epoch else eta_s,
        job_eta_s=eta_s if in_epoch else None,
        values=values,
        epoch=epoch,
        step=done if "global" in label else None,
    )


def _starts_epoch(line: str, count: "re.Match[str] | None") -> bool:
    """A line that has nothing but the epoch: `Epoch 4/4`, `Epoch 3`, `----- epoch 3 -----`."""
    if count is None:
        return False
    rest = line[: count.start()] + line[count.end() :]
    words = re.sub(r"[\W_]+", " ", rest).split()
    return len(words) <= (3 if count["total"] else 1)


def _values_alone(match: "re.Match[str]", line: str) -> Reading | None:
    """`val loss 3.28`, `Test Error: Accuracy: 64.9%, Avg loss: 1.07`, ` *   Acc@1 69.758 Acc@5 89.078`: a line of
    metrics and hardly anything else.
    """
    values = _values(line)
    if not values:
        return None
    rest = _VALUE.sub(" ", line)
    words = [w for w in re.findall(r"[A-Za-z_]{2,}", rest) if not _FILLER.match(w)]
    return Reading("values", values=values) if len(words) <= 2 else None


_FILLER = re.compile(
    rf"(?:{_PREFIX}|results?|metrics?|set|error|info|took|time|sec|ms|tok|after|rank)\Z",
    re.IGNORECASE,
)


class Form(NamedTuple):
    name: str
    hints: tuple[str, ...]  # in lower case: one of them stands in every line of this form
    pattern: "re.Pattern[str]"
    build: "Callable[[re.Match[str], str], Reading | None]"


_I = re.IGNORECASE
_FORMS = (
    Form(
        "tqdm", ("%|",),
        re.compile(
            rf"^(?P<label>.*?)(?P<percent>\d{{1,3}})%\|(?P<bar>[^|]*)\|\s*(?P<done>{_AMOUNT})/(?P<total>{_AMOUNT})\S*\s*"
            rf"\[(?:{_SPAN}|\?)<(?P<eta>{_SPAN}|\?)(?:,\s*(?P<rate>[^,\]]+))?"
        ), _tqdm,
    ),
    Form("keras", ("━", "[="), re.compile(
        r"^(?P<done>\d+)/(?P<total>\d+)\s+(?:\[[=>.\s]+\]|[━╸╺]{5,})"), _keras),
    Form("keras", ("[>", "[."), re.compile(r"^(?P<done>\d+)/(?P<total>\d+)\s+\[>?[.\s]+\]"), _keras),
    Form(
        "rich", ("━",),
        re.compile(
            rf"^(?P<label>.*?)(?<![━╸╺])[━╸╺]{{5,}}[━╸╺ ]*?\s*"
            rf"(?:(?P<percent>\d{{1,3}})%|(?P<done>{_AMOUNT})/(?P<total>{_AMOUNT}))(?P<rest>.*)$"
        ), _rich,
    ),
    Form(
        "tqdm without a total", ("[",),
        re.compile(
            rf"^(?P<label>.*?)(?<![\w.])(?P<done>{_AMOUNT})[A-Za-z]+ \[{_SPAN}, (?P<rate>\s?[\d.?]+[^,\]]*/[^,\]]+)"
        ), _tqdm_open,
    ),
    Form("dict", ("{'", '{"'), re.compile(r"\{[\"'].*\}\s*$"), _mapping),
    Form(
        "bracketed", ("epoch",),
        re.compile(
            r"\bEpoch(?:\((?P<phase>\w+)\))?:?\s*\[\s*(?P<epoch>\d+)(?:\s*/\s*(?P<epochs>\d+))?\s*\]"
            r"\s*\[\s*(?P<done>\d+)\s*/\s*(?P<total>\d+)\s*\]",
            _I,
        ), _bracketed,
    ),
    Form("bracketed", ("test:", "val:", "iter("), re.compile(
        r"\b(?P<word>Test|Val|Iter)(?:\(\w+\))?:?\s*\[\s*(?P<done>\d+)\s*/\s*(?P<total>\d+)\s*\]", _I), _test_bracket),
    Form("mnist", ("epoch",), re.compile(
        r"\bEpoch:?\s*(?P<epoch>\d+)\s*\[\s*(?P<done>\d+)/(?P<total>\d+)\s*\(\s*\d+(?:\.\d+)?%\s*\)\]", _I), _mnist),
    Form("mnist test", ("test set", "validation set"), re.compile(r"\b(?:Test|Validation) set:", _I), _test_set),
    Form("quickstart", ("loss",), re.compile(
        rf"^loss:\s*{_NUMBER}\s*\[\s*(?P<done>\d+)/\s*(?P<total>\d+)\s*\]$", _I), _quickstart),
    Form("cifar", ("loss",), re.compile(r"^\[\s*(?P<epoch>\d+),\s*(?P<done>\d+)\]"), _cifar),
    Form("word_language_model", ("batches",), re.compile(
        r"\bepoch\s+(?P<epoch>\d+)\s*\|\s*(?P<done>\d+)/\s*(?P<total>\d+)\s+batches", _I), _batches),
    Form("word_language_model end", ("end of",), re.compile(
        r"\bend of (?:epoch\s+(?P<epoch>\d+)|training)\b", _I), _end_of_epoch),
    Form("boosting", ("]",), re.compile(r"^\[(?P<number>\d+)\](?=\s)"), _boosting),
    Form("megatron", ("iteration",), re.compile(
        r"\biteration\s+(?P<done>\d+)/\s*(?P<total>\d+)\s*\|", _I), _megatron),
    Form("megatron validation", ("at iteration",), re.compile(
        r"\bvalidation loss at iteration (?P<step>\d+)", _I), _megatron_validation),
    Form("deepspeed", ("step=",), re.compile(r"\[Rank \d+\] step=(?P<done>\d+), skipped="), _deepspeed),
    Form("fairseq", ("epoch 0", "epoch "), re.compile(
        r"\bepoch (?P<epoch>\d{3,}):\s+(?P<done>\d+)\s*/\s*(?P<total>\d+)\s"), _fairseq_inner),
    Form("fairseq end", ("| epoch",), re.compile(
        r"\|\s*(?P<phase>train|valid|test)\s*\|\s*epoch (?P<epoch>\d+)\s*\|"), _fairseq_end),
    Form("detectron2", ("iter:",), re.compile(
        rf"\beta:\s*(?P<eta>{_SPAN}|N/A)\s+iter:\s*(?P<iter>\d+)\b"), _detectron),
    Form("loss at", ("at epoch", "at step", "at iter"), re.compile(
        rf"\b(?P<name>(?:\w+ )?loss) at (?P<word>epoch|step|iter(?:ation)?) (?P<number>\d+)"
        rf"\s*[:=]?\s*(?P<value>{_NUMBER})(?!\w)",
        _I), _loss_at),
    Form("loss after", ("after",), re.compile(
        rf"\bloss:?\s*{_NUMBER}\s+after (?P<number>\d+) (?P<word>batch(?:es)?|steps?|iterations?|epochs?)",
        _I), _loss_after),
    Form("sklearn hist", ("tree",), re.compile(
        r"^\[(?P<done>\d+)/(?P<total>\d+)\] \d+ trees?,"), _histogram_boosting),
    Form("counted", ("epoch", "step", "iter", "batch", "update", "round"), _COUNT, _counted),
    Form("values", ("loss", "acc", "ppl", "perplexity", "score", "mse", "auc", "f1"), _VALUE, _values_alone),
)  # fmt: skip

# of a chunk of output: whether any form could match in it
HINTS = tuple(
    sorted({h.encode() for form in _FORMS for h in form.hints} | {b"remaining time"}, key=len)
)


def clean(line: str) -> str:
    """Without escapes, and with single blanks: runs of them make patterns slow."""
    line = line[:LINE_CHARS_MAX]
    if "\x1b" in line:
        line = _ESCAPE.sub("", line)
    return " ".join(line.split())


def read_line(line: str) -> Reading | None:
    """What one line, or one state of a bar, says; None when it is something else."""
    line = clean(line)
    low = line.lower()
    for form in _FORMS:
        if not any(hint in low for hint in form.hints):
            continue
        match = form.pattern.search(line)
        if match is None:
            continue
        reading = form.build(match, line)
        if reading is not None:
            return reading
    return None


# -- tables with a heading


class Table(NamedTuple):
    """`Iter  Train Loss  OOB Improve  Remaining Time` of scikit-learn's gradient boosting."""

    columns: tuple[str, ...]

    def read(self, line: str) -> Reading | None:
        """A row of it; None for any other line, which ends the table."""
        cells = clean(line).split()
        if len(cells) != len(self.columns) or not cells[0].isdigit():
            return None
        values, eta_s = [], None
        for name, cell in zip(self.columns[1:], cells[1:]):
            if name == "remaining_time":
                eta_s = span_s(cell)
            elif re.fullmatch(_NUMBER, cell):
                values.append((name, float(cell)))
        done = int(cells[0])
        return Reading(
            "table", "iter", float(done), None, eta_s=eta_s, values=tuple(values), step=done
        )


def is_heading(line: bytes) -> bool:
    plain = line.lstrip()
    return plain.startswith(b"Iter ") and b"Loss" in plain


def read_heading(line: str) -> Table | None:
    plain = line.strip()
    if not is_heading(plain.encode()):
        return None
    return Table(tuple(metric_name(column) for column in re.split(r"\s{2,}", plain)))
