"""Things to look at that are no numbers: images, audio, tables, histograms, text, figures. Called by `hw.log`, off its
fast path, and by `headway.compat`.

    hw.log({"samples": hw.Image(array, caption="epoch 3"), "weights": hw.Histogram(values)}, step=i)

Everything is encoded when it is logged, with the standard library alone: arrays of NumPy or torch are used through
their own methods, so neither is imported. An object of matplotlib, plotly or PIL may be logged as it is.
"""

from __future__ import annotations

import json
import os
import struct
import zlib

from headway.client.metric_values import Refused, clean_text, type_name
from headway.model.limits import MEDIA_BYTES_MAX, MEDIA_TABLE_ROWS_MAX, MEDIA_TEXT_CHARS_MAX

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from headway.model.json_types import JsonObject

_MIME_BY_SUFFIX = {
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
    ".bmp": "image/bmp", ".svg": "image/svg+xml", ".wav": "audio/wav", ".mp3": "audio/mpeg", ".ogg": "audio/ogg",
    ".flac": "audio/flac", ".mp4": "video/mp4", ".webm": "video/webm", ".mov": "video/quicktime",
    ".obj": "model/obj", ".gltf": "model/gltf+json", ".glb": "model/gltf-binary", ".stl": "model/stl",
}  # fmt: skip
_PNG_COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # channels -> colour type
HISTOGRAM_BINS = 64
HISTOGRAM_BINS_MAX = 4096


class Media:
    """Something to look at: what kind it is, its bytes and what is said beside it."""

    kind = "file"

    def __init__(
        self, data: bytes, mime: str, caption: "str | None" = None, **meta: object
    ) -> None:
        self.data, self.mime = data, mime
        self.meta = {name: value for name, value in meta.items() if value is not None}
        if caption is not None:
            self.meta["caption"] = clean_text(str(caption))[:MEDIA_TEXT_CHARS_MAX]


class Image(Media):
    """`data`: a path, bytes of an image file, a PIL image, a figure of matplotlib, or an array (height, width[, 1..4]);
    floats are taken as 0 to 1. A torch tensor may have its channels first."""

    kind = "image"

    def __init__(self, data: object, caption: "str | None" = None) -> None:
        content, mime, meta = _image(data)
        super().__init__(content, mime, caption, **meta)


class Audio(Media):
    """`data`: a path, bytes of an audio file, or samples (frames[, channels]) with their `sample_rate`."""

    kind = "audio"

    def __init__(
        self, data: object, sample_rate: int = 16_000, caption: "str | None" = None
    ) -> None:
        if isinstance(data, (str, os.PathLike, bytes, bytearray)):
            content, mime = _file(data, "audio/wav")
        else:
            content, mime = _wav(data, int(sample_rate)), "audio/wav"
        super().__init__(content, mime, caption)


class Video(Media):
    """`data`: a path, bytes of a video file, or frames (time, height, width, channels), which become an animated PNG;
    frames with their channels second, as torch has them, are understood."""

    kind = "video"

    def __init__(self, data: object, fps: int = 4, caption: "str | None" = None) -> None:
        if isinstance(data, (str, os.PathLike, bytes, bytearray)):
            content, mime = _file(data, "video/mp4")
        else:
            content, mime = _animation(data, max(1, int(fps))), "image/apng"
        super().__init__(content, mime, caption)


class Histogram(Media):
    """Of `values` (numbers, an array or a tensor), or made already: `counts` and one edge more than those."""

    kind = "histogram"

    def __init__(
        self,
        values: object = None,
        bins: int = HISTOGRAM_BINS,
        *,
        counts: "Iterable[float] | None" = None,
        edges: "Iterable[float] | None" = None,
        caption: "str | None" = None,
    ) -> None:
        if counts is not None and edges is not None:
            made = [float(count) for count in counts], [float(edge) for edge in edges]
        else:
            made = _histogram(values, bins)
        if len(made[1]) != len(made[0]) + 1:
            raise Refused("a histogram has one edge more than it has counts")
        if len(made[0]) > HISTOGRAM_BINS_MAX:
            raise Refused(f"a histogram has at most {HISTOGRAM_BINS_MAX} bins")
        text = json.dumps({"counts": made[0], "edges": made[1]}, separators=(",", ":"))
        super().__init__(text.encode(), "application/json", caption)


class Table(Media):
    """Rows under named columns: `Table(["epoch", "acc"], [[1, 0.5]])`, or a data frame."""

    kind = "table"

    def __init__(
        self, columns: "Any" = None, rows: "Any" = None, caption: "str | None" = None
    ) -> None:
        if rows is None and hasattr(columns, "columns"):
            columns, rows = _frame(columns)
        names = [clean_text(str(name)) for name in columns or []]
        lines = list(rows or [])
        kept = [[_cell(value) for value in line] for line in lines[:MEDIA_TABLE_ROWS_MAX]]
        text = json.dumps({"columns": names, "rows": kept}, separators=(",", ":"))
        super().__init__(
            text.encode(), "application/json", caption, rows=len(lines), columns=len(names)
        )


class Text(Media):
    """A text, such as a sample that a model wrote."""

    kind = "text"

    def __init__(self, text: object, caption: "str | None" = None) -> None:
        super().__init__(clean_text(str(text)).encode(), "text/plain; charset=utf-8", caption)


class Html(Media):
    """Kept as it is, and shown as text: a page that shows other people's HTML would run their scripts."""

    kind = "html"

    def __init__(self, data: object, caption: "str | None" = None) -> None:
        if hasattr(data, "read"):
            data = data.read()
        text = (
            data.decode("utf-8", "replace") if isinstance(data, (bytes, bytearray)) else str(data)
        )
        if len(text) < 4096 and "<" not in text and os.path.isfile(text):
            text = _file(text, "text/html")[0].decode("utf-8", "replace")
        super().__init__(clean_text(text).encode(), "text/plain; charset=utf-8", caption)


class Figure(Media):
    """A figure of matplotlib, as PNG, or of plotly, as its JSON."""

    kind = "figure"

    def __init__(self, figure: "Any", caption: "str | None" = None) -> None:
        if hasattr(figure, "to_plotly_json") or hasattr(figure, "to_json"):
            super().__init__(
                str(figure.to_json()).encode(), "application/vnd.plotly.v1+json", caption
            )
        else:
            super().__init__(_savefig(figure), "image/png", caption)


class File(Media):
    """Bytes or a file of any other kind."""

    kind = "file"

    def __init__(
        self, data: object, mime: str = "application/octet-stream", caption: "str | None" = None
    ) -> None:
        content, found = _file(data, mime)
        super().__init__(content, found, caption)


def as_media(value: object) -> "Media | None":
    """What a value of somebody else's library is to look at; None where it is nothing of the kind."""
    if isinstance(value, Media):
        return value
    convert = getattr(type(value), "_headway_media", None)  # of headway.compat
    if convert is not None:
        made = convert(value)
        return made if isinstance(made, Media) else None
    if isinstance(value, type(os)) and value.__name__ == "matplotlib.pyplot":
        # people log the module itself, and mean the figure that it draws on
        return Figure(value.gcf())

    library = type(value).__module__.partition(".")[0]
    if library == "matplotlib":
        return _figure_of(value)
    if library == "plotly" and hasattr(value, "to_json"):
        return _figure_of(value)
    if library == "PIL" and hasattr(value, "save"):
        return Image(value)
    if library in ("pandas", "polars") and hasattr(value, "columns"):
        return Table(value)
    return None


def _figure_of(value: object) -> "Media | None":
    if hasattr(value, "savefig") or hasattr(value, "to_json"):
        return Figure(value)
    figure = getattr(value, "figure", None)  # axes, or what a plot call has returned
    return Figure(figure) if hasattr(figure, "savefig") else None


# -- files -------------------------------------------------------------------------------------------------------------


def _file(data: "Any", mime: str) -> "tuple[bytes, str]":
    if isinstance(data, (bytes, bytearray)):
        return _bounded(bytes(data)), mime
    path = os.fspath(data)
    if os.path.getsize(path) > MEDIA_BYTES_MAX:
        raise Refused(
            f"{path} is larger than {MEDIA_BYTES_MAX >> 20} MiB; hw.artifact() takes files of any size"
        )
    with open(path, "rb") as file:
        content = file.read(MEDIA_BYTES_MAX + 1)
    return _bounded(content), _MIME_BY_SUFFIX.get(os.path.splitext(path)[1].lower(), mime)


def _bounded(data: bytes) -> bytes:
    if len(data) > MEDIA_BYTES_MAX:
        raise Refused(
            f"it has {len(data)} bytes, more than {MEDIA_BYTES_MAX}; hw.artifact() takes files of any size"
        )
    return data


# -- images ------------------------------------------------------------------------------------------------------------


def _image(data: "Any") -> "tuple[bytes, str, JsonObject]":
    if isinstance(data, (str, os.PathLike, bytes, bytearray)):
        content, mime = _file(data, "image/png")
        return content, mime, {}
    if hasattr(data, "savefig"):
        return _savefig(data), "image/png", {}
    if hasattr(getattr(data, "figure", None), "savefig"):
        return _savefig(data.figure), "image/png", {}
    if type(data).__module__.partition(".")[0] == "PIL" and hasattr(data, "save"):
        return _pil(data), "image/png", {"width": data.size[0], "height": data.size[1]}
    pixels = _pixels(_array(data))
    height, width = int(pixels.shape[0]), int(pixels.shape[1])
    return _bounded(_png(pixels)), "image/png", {"width": width, "height": height}


def _savefig(figure: "Any") -> bytes:
    from io import BytesIO

    out = BytesIO()
    figure.savefig(out, format="png")
    return _bounded(out.getvalue())


def _pil(image: "Any") -> bytes:
    from io import BytesIO

    out = BytesIO()
    image.save(out, format="PNG")
    return _bounded(out.getvalue())


def _array(data: "Any") -> "Any":
    """An array of NumPy, through the object's own methods."""
    is_torch = type(data).__module__.partition(".")[0] == "torch"
    if is_torch and hasattr(data, "detach"):
        data = data.detach().cpu()
        if str(data.dtype) in ("torch.bfloat16", "torch.float16"):
            data = data.float()
    if hasattr(data, "numpy") and not hasattr(data, "tobytes"):
        data = data.numpy()
    if not hasattr(data, "tobytes") and hasattr(data, "__array__"):
        data = data.__array__()
    if not hasattr(data, "astype") or not hasattr(data, "tobytes"):
        raise Refused(f"a value of type {type_name(data)} is not an array, a path or an image")
    if (
        is_torch
        and data.ndim == 3
        and data.shape[0] in (1, 2, 3, 4)
        and data.shape[2] not in (1, 2, 3, 4)
    ):
        data = data.transpose(1, 2, 0)
    return data


def _pixels(array: "Any") -> "Any":
    """Bytes of shape (height, width[, channels])."""
    while array.ndim > 3 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 3 and array.shape[2] not in _PNG_COLOURS and array.shape[0] in _PNG_COLOURS:
        array = array.transpose(1, 2, 0)
    channels = array.shape[2] if array.ndim == 3 else 1
    if array.ndim not in (2, 3) or channels not in _PNG_COLOURS or 0 in array.shape:
        raise Refused(
            f"an array of shape {tuple(array.shape)} is not an image: (height, width[, 1 to 4])"
        )
    if array.dtype.kind == "f":
        low, high = float(array.min()), float(array.max())
        if low < 0 and low >= -1 and high <= 1:
            array = (array + 1) / 2
        if high <= 1:
            array = array * 255
        array = array.round()
    elif array.dtype.kind == "b":
        array = array.astype("uint8") * 255
    return array if str(array.dtype) == "uint8" else array.clip(0, 255).astype("uint8")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _rows(pixels: "Any") -> bytes:
    """Image data of PNG: each row behind the number of its filter, 0."""
    height, width = int(pixels.shape[0]), int(pixels.shape[1])
    channels = int(pixels.shape[2]) if pixels.ndim == 3 else 1
    data, size = pixels.tobytes(), width * channels
    return zlib.compress(
        b"".join(b"\0" + data[row * size : (row + 1) * size] for row in range(height)), 4
    )


def _png_head(pixels: "Any") -> bytes:
    channels = int(pixels.shape[2]) if pixels.ndim == 3 else 1
    head = struct.pack(
        ">IIBBBBB", int(pixels.shape[1]), int(pixels.shape[0]), 8, _PNG_COLOURS[channels], 0, 0, 0
    )
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head)


def _png(pixels: object) -> bytes:
    return _png_head(pixels) + _chunk(b"IDAT", _rows(pixels)) + _chunk(b"IEND", b"")


def _animation(data: object, fps: int) -> bytes:
    array = _array(data)
    while array.ndim == 5 and array.shape[0] >= 1:
        array = array[0]
    if array.ndim == 4 and array.shape[3] not in _PNG_COLOURS and array.shape[1] in _PNG_COLOURS:
        array = array.transpose(0, 2, 3, 1)
    if array.ndim not in (3, 4) or not array.shape[0]:
        raise Refused(
            f"an array of shape {tuple(array.shape)} is not a video: (time, height, width[, channels])"
        )
    frames = [_pixels(array[number]) for number in range(array.shape[0])]
    out = [_png_head(frames[0]), _chunk(b"acTL", struct.pack(">II", len(frames), 0))]
    number = 0
    for index, pixels in enumerate(frames):
        place = struct.pack(">IIIII", number, int(pixels.shape[1]), int(pixels.shape[0]), 0, 0)
        out.append(_chunk(b"fcTL", place + struct.pack(">HHBB", 1, min(fps, 65_535), 0, 0)))
        number += 1
        if index == 0:
            out.append(_chunk(b"IDAT", _rows(pixels)))
            continue
        out.append(_chunk(b"fdAT", struct.pack(">I", number) + _rows(pixels)))
        number += 1
    return _bounded(b"".join(out) + _chunk(b"IEND", b""))


# -- audio, histograms, tables -----------------------------------------------------------------------------------------


def _wav(data: object, rate: int) -> bytes:
    if isinstance(data, (list, tuple)):
        samples = [max(-1.0, min(1.0, float(value))) for value in data]
        content, channels = (
            struct.pack(f"<{len(samples)}h", *(round(value * 32767) for value in samples)),
            1,
        )
    else:
        array = _array(data)
        if array.ndim == 2 and array.shape[0] <= 8 < array.shape[1]:
            array = array.transpose(1, 0)
        channels = int(array.shape[1]) if array.ndim == 2 else 1
        if array.dtype.kind == "f":
            array = (array.clip(-1, 1) * 32767).round()
        content = array.astype("<i2").tobytes()
    head = struct.pack("<HHIIHH", 1, channels, rate, rate * channels * 2, channels * 2, 16)
    body = (
        b"WAVEfmt "
        + struct.pack("<I", len(head))
        + head
        + b"data"
        + struct.pack("<I", len(content))
        + content
    )
    return _bounded(b"RIFF" + struct.pack("<I", len(body)) + body)


def _flat(values: object) -> "Sequence[float]":
    if hasattr(values, "detach"):
        values = values.detach().cpu().float()
    if hasattr(values, "flatten"):
        values = values.flatten()
    if hasattr(values, "tolist"):
        values = values.tolist()
    found: list[float] = []
    for value in values if hasattr(values, "__iter__") else [values]:
        found.extend(_flat(value) if hasattr(value, "__iter__") else [float(value)])
    return found


def _histogram(values: object, bins: int) -> "tuple[list[float], list[float]]":
    numbers = [value for value in _flat(values) if value - value == 0.0]  # finite ones
    bins = max(1, min(int(bins), HISTOGRAM_BINS_MAX))
    if not numbers:
        return [0.0] * bins, [index / bins for index in range(bins + 1)]
    low, high = min(numbers), max(numbers)
    if low == high:
        low, high = low - 0.5, high + 0.5
    width = (high - low) / bins
    counts = [0.0] * bins
    for value in numbers:
        counts[min(bins - 1, int((value - low) / width))] += 1
    return counts, [low + index * width for index in range(bins + 1)]


def _frame(frame: "Any") -> "tuple[list[str], list[list[Any]]]":
    names = [str(name) for name in frame.columns]
    head = frame.head(MEDIA_TABLE_ROWS_MAX)
    if hasattr(head, "rows"):  # polars
        return names, [list(row) for row in head.rows()]
    return names, [list(row) for row in head.itertuples(index=False)]


def _cell(value: object) -> "Any":
    if value is None or isinstance(value, bool):
        return value
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        try:
            value = value.item()
        except (TypeError, ValueError):
            return f"<{type_name(value)}>"
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    if isinstance(value, float):
        return value if value - value == 0.0 else str(value)
    if isinstance(value, str):
        return clean_text(value[:MEDIA_TEXT_CHARS_MAX])
    if isinstance(value, Media):
        return f"<{value.kind}>"
    if isinstance(value, (list, tuple)):
        return [_cell(item) for item in value[:100]]
    if isinstance(value, dict):
        return {clean_text(str(key)): _cell(item) for key, item in list(value.items())[:100]}
    return f"<{type_name(value)}>"
