"""`wandb.plot`: charts as the tables that they are drawn from."""

from headway.client import media
from headway.compat.wandb_types import Table, WBValue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class CustomChart(WBValue):
    """A chart: its table, and what it is."""

    def __init__(
        self, kind: str, table: object, title: "str | None" = None, **fields: object
    ) -> None:
        self.kind, self.table, self.title, self.fields = kind, table, title, fields

    def _headway_media(self) -> "media.Media | None":
        found = self.table._headway_media() if isinstance(self.table, WBValue) else None
        if found is not None:
            found.meta.update(
                chart=self.kind, **{name: value for name, value in self.fields.items() if value}
            )
            if self.title:
                found.meta["caption"] = str(self.title)
        return found


def plot_table(
    vega_spec_name: str,
    data_table: "Any",
    fields: "Any" = None,
    string_fields: "Any" = None,
    **_: "Any",
) -> CustomChart:
    return CustomChart(
        vega_spec_name, data_table, (string_fields or {}).get("title"), **(fields or {})
    )


def line(
    table: object,
    x: str,
    y: str,
    stroke: "str | None" = None,
    title: "str | None" = None,
    **_: object,
) -> CustomChart:
    return CustomChart("line", table, title, x=x, y=y, stroke=stroke)


def scatter(table: object, x: str, y: str, title: "str | None" = None, **_: object) -> CustomChart:
    return CustomChart("scatter", table, title, x=x, y=y)


def bar(
    table: object, label: str, value: str, title: "str | None" = None, **_: object
) -> CustomChart:
    return CustomChart("bar", table, title, x=label, y=value)


def histogram(table: object, value: str, title: "str | None" = None, **_: object) -> CustomChart:
    return CustomChart("histogram", table, title, x=value)


def line_series(
    xs: "Any",
    ys: "Any",
    keys: "Any" = None,
    title: "str | None" = None,
    xname: "str | None" = None,
    **_: "Any",
) -> CustomChart:
    lines = [_listed(values) for values in _listed(ys)]
    first = _listed(xs)
    over = (
        [_listed(values) for values in first]
        if first and hasattr(first[0], "__iter__")
        else [first] * len(lines)
    )
    names = (
        [str(key) for key in keys]
        if keys is not None
        else [f"line_{index}" for index in range(len(lines))]
    )
    rows = [
        [x, name, y]
        for name, places, values in zip(names, over, lines, strict=False)
        for x, y in zip(places, values, strict=False)
    ]
    return CustomChart(
        "line", Table(["step", "lineKey", "lineVal"], rows), title, x=xname or "step", y="lineVal"
    )


def confusion_matrix(
    probs: "Any" = None,
    y_true: "Any" = None,
    preds: "Any" = None,
    class_names: "Any" = None,
    title: "str | None" = None,
    **_: "Any",
) -> CustomChart:
    found = (
        [_largest(row) for row in _listed(probs)]
        if preds is None
        else [int(value) for value in _listed(preds)]
    )
    wanted = [int(value) for value in _listed(y_true)]
    classes = max([*found, *wanted, -1]) + 1
    names = [str(name) for name in class_names] if class_names is not None else []
    names += [f"Class_{number}" for number in range(len(names), classes)]
    counts: dict[tuple[int, int], int] = {}
    for actual, predicted in zip(wanted, found, strict=False):
        counts[actual, predicted] = counts.get((actual, predicted), 0) + 1
    rows = [
        [names[actual], names[predicted], counts.get((actual, predicted), 0)]
        for actual in range(len(names))
        for predicted in range(len(names))
    ]
    return CustomChart(
        "confusion_matrix", Table(["Actual", "Predicted", "nPredictions"], rows), title
    )


def roc_curve(
    y_true: object = None,
    y_probas: object = None,
    labels: object = None,
    classes_to_plot: object = None,
    title: "str | None" = None,
    **_: object,
) -> CustomChart:
    rows = []
    for name, hits in _by_class(y_true, y_probas, labels, classes_to_plot):
        positives = sum(hits)
        negatives = len(hits) - positives
        right = wrong = 0
        for hit in hits:
            right, wrong = right + hit, wrong + (not hit)
            rows.append([name, _share(wrong, negatives), _share(right, positives)])
    return CustomChart(
        "roc", Table(["class", "fpr", "tpr"], _thinned(rows)), title or "ROC", x="fpr", y="tpr"
    )


def pr_curve(
    y_true: object = None,
    y_probas: object = None,
    labels: object = None,
    classes_to_plot: object = None,
    title: "str | None" = None,
    **_: object,
) -> CustomChart:
    rows = []
    for name, hits in _by_class(y_true, y_probas, labels, classes_to_plot):
        positives, right = sum(hits), 0
        for count, hit in enumerate(hits, 1):
            right += hit
            rows.append([name, _share(right, positives), _share(right, count)])
    table = Table(["class", "recall", "precision"], _thinned(rows))
    return CustomChart("pr", table, title or "Precision v. Recall", x="recall", y="precision")


CURVE_ROWS_MAX = 10_000


def _by_class(
    y_true: "Any", y_probas: "Any", labels: "Any", classes: "Any"
) -> "list[tuple[str, list[int]]]":
    """For each class: whether each sample is of it, the most probable first."""
    actual, scores = _listed(y_true), [_listed(row) for row in _listed(y_probas)]
    kinds = sorted(set(actual))
    found = []
    for index, kind in enumerate(kinds):
        if classes is not None and kind not in list(classes):
            continue
        name = str(labels[index]) if labels is not None and index < len(labels) else str(kind)
        ranked = sorted(zip(scores, actual, strict=False), key=lambda pair: -pair[0][index])
        found.append((name, [int(label == kind) for _, label in ranked]))
    return found


def _thinned(rows: "list[Any]") -> "list[Any]":
    every = -(-len(rows) // CURVE_ROWS_MAX) or 1
    return rows[::every]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _listed(values: "Any") -> "list[Any]":
    if values is None:
        return []
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _largest(row: "Sequence[float]") -> int:
    values = _listed(row)
    return values.index(max(values))


class _Visualize(CustomChart):
    pass


def visualize(id: str, value: object) -> CustomChart:
    return _Visualize(id, value)
