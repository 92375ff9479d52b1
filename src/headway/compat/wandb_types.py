"""`wandb.Image`, `Table`, `Histogram` and the like, over headway's media. Each is encoded when it is made: the data may
be changed behind it. What cannot be encoded is said once, and training goes on."""

from __future__ import annotations

import json
import os
from importlib import import_module

from headway.client import media
from headway.client.metric_values import Refused, type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from headway.model.json_types import JsonObject

TABLE_MEDIA_MAX = 1000  # images and the like in the cells of one table that are kept
_warned: set[str] = set()


def warn_once(key: str, text: str) -> None:
    if key not in _warned:
        _warned.add(key)
        from headway.client.api import current_run

        current_run().note(f"wandb-{key}".replace(" ", "-"), text)


class WBValue:
    """Something to look at."""

    _media: "media.Media | None" = None

    def _make(self, make: "Callable[[], media.Media]") -> None:
        try:
            self._media = make()
        # data of somebody else's making: nothing of ours may end a training
        except Exception as error:
            reason = (
                str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
            )
            warn_once(
                f"{type(self).__name__}",
                f"a wandb.{type(self).__name__} is not kept: {reason[:300]}",
            )

    def _headway_media(self) -> "media.Media | None":
        return self._media


class Media(WBValue):
    pass


class Image(Media):
    def __init__(
        self,
        data_or_path: object = None,
        mode: "str | None" = None,
        caption: "str | None" = None,
        grouping: object = None,
        classes: object = None,
        boxes: object = None,
        masks: object = None,
        file_type: "str | None" = None,
        normalize: bool = True,
    ) -> None:
        self._caption, self._classes, self._boxes, self._masks = caption, classes, boxes, masks
        self._image = data_or_path if hasattr(data_or_path, "save") else None
        if isinstance(data_or_path, Image):
            self._media = data_or_path._media
            return
        self._make(lambda: media.Image(data_or_path, caption))
        if self._media is not None and boxes is not None:
            self._media.meta["boxes"] = _plain(boxes)

    @property
    def caption(self) -> "str | None":
        return self._caption

    @property
    def image(self) -> "Any":
        return self._image


class Audio(Media):
    def __init__(
        self,
        data_or_path: object = None,
        sample_rate: "int | None" = None,
        caption: "str | None" = None,
    ) -> None:
        self._make(lambda: media.Audio(data_or_path, sample_rate or 16_000, caption))


class Video(Media):
    def __init__(
        self,
        data_or_path: object = None,
        caption: "str | None" = None,
        fps: "int | None" = None,
        format: "str | None" = None,
    ) -> None:
        self._make(lambda: media.Video(data_or_path, fps or 4, caption))


class Html(Media):
    def __init__(
        self, data: object = "", inject: bool = True, data_is_not_path: bool = False
    ) -> None:
        self._make(lambda: media.Html(data))


class Histogram(WBValue):
    MAX_LENGTH = 512

    def __init__(
        self, sequence: "Any" = None, np_histogram: "Any" = None, num_bins: int = 64
    ) -> None:
        self.histogram: list[float] = []
        self.bins: list[float] = []

        def make() -> media.Media:
            if np_histogram is not None:
                made = media.Histogram(
                    counts=_numbers(np_histogram[0]), edges=_numbers(np_histogram[1])
                )
            else:
                made = media.Histogram(sequence, num_bins)
            found = json.loads(made.data)
            self.histogram, self.bins = found["counts"], found["edges"]
            return made

        self._make(make)


class Table(Media):
    """Grows by `add_data`; written down when it is logged."""

    MAX_ROWS = 10_000

    def __init__(
        self,
        columns: "Any" = None,
        data: "Any" = None,
        rows: "Any" = None,
        dataframe: "Any" = None,
        dtype: "Any" = None,
        optional: "Any" = True,
        allow_mixed_types: bool = False,
        log_mode: "str | None" = None,
    ) -> None:
        if (
            dataframe is None
            and data is not None
            and hasattr(data, "columns")
            and hasattr(data, "head")
        ):
            dataframe, data = data, None
        if dataframe is not None:
            self.columns = [str(name) for name in dataframe.columns]
            values: Any = getattr(dataframe, "values", None)
            lines = values.tolist() if hasattr(values, "tolist") else dataframe.rows()
            self.data = [list(row) for row in lines]
            return
        given = data if data is not None else rows
        if hasattr(given, "tolist"):
            given = given.tolist()
        self.data = [list(row) for row in given or []]
        self.columns = list(columns) if columns is not None else ["Input", "Output", "Expected"]

    def add_data(self, *row: object) -> None:
        if len(row) != len(self.columns):
            raise ValueError(
                f"This table expects {len(self.columns)} columns: {self.columns}, found {len(row)}"
            )
        self.data.append(list(row))

    add_row = add_data

    def add_column(self, name: str, data: "Any", optional: bool = False) -> None:
        values = data.tolist() if hasattr(data, "tolist") else list(data)
        while len(self.data) < len(values):
            self.data.append([None] * len(self.columns))
        self.columns.append(name)
        for row, value in zip(self.data, values):
            row.append(value)

    def add_computed_columns(self, make: "Callable[[int, JsonObject], JsonObject]") -> None:
        made = [make(index, dict(zip(self.columns, row))) for index, row in enumerate(self.data)]
        for name in made[0] if made else ():
            self.add_column(name, [row.get(name) for row in made])

    def get_column(self, name: str, convert_to: "str | None" = None) -> "Any":
        index = self.columns.index(name)
        values = [row[index] for row in self.data]
        if convert_to == "numpy":
            return import_module("numpy").array(values)
        return values

    def get_index(self) -> "list[int]":
        return list(range(len(self.data)))

    def iterrows(self) -> "Iterator[tuple[int, list[Any]]]":
        yield from enumerate(self.data)

    def get_dataframe(self) -> "Any":
        return import_module("pandas").DataFrame(self.data, columns=self.columns)

    def cast(self, name: str, dtype: object, optional: bool = False) -> None:
        return None

    def _cells(self) -> "Iterator[tuple[str, int, media.Media]]":
        """(column, row, what) of the cells that hold something to look at."""
        left = TABLE_MEDIA_MAX
        for number, row in enumerate(self.data):
            for column, value in zip(self.columns, row):
                found = value._headway_media() if isinstance(value, WBValue) else None
                if found is not None and left:
                    left -= 1
                    yield str(column), number, found

    def _headway_media(self) -> "media.Media | None":
        lines = [[_shown(value) for value in row] for row in self.data]
        self._make(lambda: media.Table(self.columns, lines))
        return self._media


class Plotly(Media):
    def __init__(self, figure: object) -> None:
        self._make(lambda: media.Figure(figure))

    @classmethod
    def make_plot_media(cls, figure: object) -> "Plotly":
        return cls(figure)


class Object3D(Media):
    """Points or a file: kept as they are."""

    def __init__(
        self, data_or_path: object = None, caption: "str | None" = None, **_: object
    ) -> None:
        self._make(lambda: _object(data_or_path, caption))

    @classmethod
    def from_file(cls, data_or_path: object, file_type: object = None) -> "Object3D":
        return cls(data_or_path)

    @classmethod
    def from_numpy(cls, data: object) -> "Object3D":
        return cls(data)


class Molecule(Object3D):
    @classmethod
    def from_rdkit(
        cls, data_or_path: object, caption: "str | None" = None, **_: object
    ) -> "Molecule":
        return cls(data_or_path, caption)

    @classmethod
    def from_smiles(cls, data: str, caption: "str | None" = None, **_: object) -> "Molecule":
        found = cls(None, caption)
        found._make(lambda: media.Text(data, caption))
        return found


class Bokeh(Media):
    def __init__(self, data_or_path: object = None) -> None:
        self._make(lambda: media.Html(data_or_path))


class Classes(Media):
    """Names of classes of masks and boxes."""

    def __init__(self, class_set: object = None) -> None:
        self._class_set = class_set
        self._make(lambda: media.Text(json.dumps(_plain(class_set))))


class JoinedTable(Media):
    def __init__(self, table1: object, table2: object, join_key: object) -> None:
        text = f"tables joined by {join_key}"
        self._make(lambda: media.Text(text))


class PartitionedTable(Media):
    """The tables that an artifact has below a folder."""

    def __init__(self, parts_path: "Any") -> None:
        text = f"the tables below {parts_path}"
        self._make(lambda: media.Text(text))


def __getattr__(name: str) -> "Any":
    """Further types of `wandb.data_types`."""
    if name.startswith("__"):
        raise AttributeError(name)
    from headway.compat.wandb_anything import anything

    return anything(f"data_types.{name}")


def _object(data: object, caption: "str | None") -> media.Media:
    if isinstance(data, (str, os.PathLike, bytes)):
        return media.File(data, caption=caption)
    if hasattr(data, "read"):
        content = data.read()
        return media.File(
            content if isinstance(content, bytes) else str(content).encode(), caption=caption
        )
    return media.File(json.dumps(_plain(data)).encode(), "application/json", caption)


def _plain(value: object) -> "Any":
    from headway.client.config_plain import plain

    return plain(value.tolist() if hasattr(value, "tolist") else value)[0]


def _shown(value: object) -> "Any":
    if isinstance(value, WBValue):
        return f"<{type(value).__name__.lower()}>"
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        return value
    if isinstance(value, (list, tuple, dict)):
        return value
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return f"<{type_name(value)}>"


def _numbers(values: "Any") -> "list[float]":
    return [float(value) for value in (values.tolist() if hasattr(values, "tolist") else values)]
