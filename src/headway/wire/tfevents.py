"""TensorBoard's event files: records and the scalars in them, written and read without TensorBoard.

    u64 length | u32 masked CRC-32C of it | that many bytes, an `Event` | u32 masked CRC-32C of them

Little endian. The first event of a file says `brain.Event:2`. A scalar is a plain `simple_value`
(TF1, PyTorch) or a tensor of one number with the plugin `scalars` (TF2), which is named only with a
tag's first value in a file. A record that is not whole yet is waited for; one whose checksum is
wrong is passed over.
"""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HEAD_BYTES = 12
RECORD_BYTES_MAX = (
    256 * 1024 * 1024
)  # a length beyond this is damage: nothing after it can be found
_MASK_DELTA = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, reflected
_HEAD = struct.Struct("<QI")
_CRC_AT = struct.Struct("<I")
HISTOGRAM_BINS_MAX = 4096
_IMAGES = {b"\x89PNG": "image/png", b"GIF8": "image/gif", b"\xff\xd8": "image/jpeg"}
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
# struct codes of TensorProto.dtype: float, double, int32, int64, half, bool
_CONTENT = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e", 10: "<?"}


def _table() -> list[int]:
    rows = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
        rows.append(byte)
    return rows


CRC_TABLE = _table()


def masked_crc(data: bytes | memoryview) -> int:
    crc, table = 0xFFFFFFFF, CRC_TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


# -- writing


def record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc(head)) + data + struct.pack("<I", masked_crc(data))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _block(field: int, data: bytes) -> bytes:
    """A field of bytes, a text or a message."""
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def event(time_s: float, step: int, values: "Mapping[str, float]") -> bytes:
    """An `Event` with a `Summary` of plain values."""
    rows = b"".join(
        _block(1, _block(1, name.encode()) + b"\x15" + struct.pack("<f", value))
        for name, value in values.items()
    )
    return b"\x09" + struct.pack("<d", time_s) + b"\x10" + _varint(max(0, step)) + _block(5, rows)


def first_event(time_s: float) -> bytes:
    return b"\x09" + struct.pack("<d", time_s) + _block(3, b"brain.Event:2")


def restart_event(time_s: float, step: int) -> bytes:
    """The program was started again: readers forget what they have from this step on."""
    session_start = b"\x08\x01"
    head = b"\x09" + struct.pack("<d", time_s) + b"\x10" + _varint(step & (2**64 - 1))
    return head + _block(7, session_start)


# -- reading


class Records:
    """The whole records in some bytes: where they lie, where they end, how many are damaged."""

    __slots__ = ("damaged", "end", "spans")

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        self.end = 0  # what comes after is not whole yet
        self.damaged = 0


def read_records(data: bytes | memoryview, *, check: bool = True) -> Records:
    """`check=False`: the caller checks the checksums of the records' own bytes."""
    found, view, size, pos = Records(), memoryview(data), len(data), 0
    while pos + HEAD_BYTES <= size:
        length, crc = _HEAD.unpack_from(view, pos)
        if length > RECORD_BYTES_MAX or masked_crc(view[pos : pos + 8]) != crc:
            found.damaged += 1
            pos = size  # a length that is wrong leads nowhere: what is left of these bytes is lost
            break
        begin, end = pos + HEAD_BYTES, pos + HEAD_BYTES + length
        if end + 4 > size:
            break
        if check and masked_crc(view[begin:end]) != _CRC_AT.unpack_from(view, end)[0]:
            found.damaged += 1
        else:
            found.spans.append((begin, end))
        pos = end + 4
    found.end = pos
    return found


class Fields:
    """A message of protocol buffers, field by field: `for number, value in Fields(data)`.

    Numbers come as int, fixed ones as their bytes, everything else as a view of its bytes. Raises
    ValueError for what is not a message.
    """

    __slots__ = ("data",)

    def __init__(self, data: memoryview) -> None:
        self.data = data

    def __iter__(self) -> "Iterator[tuple[int, int | memoryview]]":
        data, pos, size = self.data, 0, len(self.data)
        while pos < size:
            key, pos = read_varint(data, pos)
            kind = key & 7
            if kind == 0:
                value, pos = read_varint(data, pos)
                yield key >> 3, value
                continue
            if kind == 2:
                length, pos = read_varint(data, pos)
            elif kind == 1:
                length = 8
            elif kind == 5:
                length = 4
            else:
                raise ValueError(f"not a message: wire type {kind}")
            if pos + length > size:
                raise ValueError("not a message: a field is cut off")
            yield key >> 3, data[pos : pos + length]
            pos += length


def read_varint(data: memoryview, pos: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if pos >= len(data) or shift > 63:
            raise ValueError("not a message: a number is cut off")
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7


def signed(value: int) -> int:
    """An int64 that was written as a varint."""
    return value - (1 << 64) if value >= 1 << 63 else value


class EventMedia:
    """An image, a histogram or a text of an event, as `media` facts have them."""

    __slots__ = ("data", "kind", "mime", "tag")

    def __init__(self, tag: str, kind: str, mime: str, data: bytes) -> None:
        self.tag = tag
        self.kind = kind
        self.mime = mime
        self.data = data


class Scalars:
    """Reads the events of one file. Knows which tags are scalars: TF2 says that once."""

    def __init__(self, *, with_media: bool = False) -> None:
        self.plugins: dict[str, str] = {}
        self.others = 0  # values that are no scalars: images, histograms, text
        self.media: list[EventMedia] | None = [] if with_media else None  # taken away by the caller

    def read(self, data: memoryview) -> "tuple[float, int, dict[str, float]]":
        """(time in seconds, step, values by tag) of one event. Raises ValueError."""
        time_s = 0.0
        step = 0
        values: dict[str, float] = {}
        for number, value in Fields(data):
            if isinstance(value, int):
                if number == 2:
                    step = signed(value)
            elif number == 1:
                time_s = _DOUBLE.unpack(value)[0]
            elif number == 5:
                for inner, row in Fields(value):
                    if inner == 1 and not isinstance(row, int):
                        self._value(row, values)
        return time_s, step, values

    def _value(self, row: memoryview, values: dict[str, float]) -> None:
        tag, simple, tensor = "", None, None
        pictured: tuple[int, memoryview] | None = None
        for number, value in Fields(row):
            if isinstance(value, int):
                continue
            if number == 1:
                tag = bytes(value).decode("utf-8", "replace")
            elif number == 2:
                simple = _FLOAT.unpack(value)[0]
            elif number in (4, 5):
                pictured = (number, value)
            elif number == 8:
                tensor = value
            elif number == 9:
                self._metadata(tag, value)
        if simple is not None:
            values[tag] = simple
            return
        number_ = None
        if tensor is not None and self.plugins.get(tag, "scalars") == "scalars":
            number_ = tensor_number(tensor)
        if number_ is not None:
            values[tag] = number_
            return
        self.others += 1
        if self.media is not None:
            self.media += event_media(tag, self.plugins.get(tag, ""), pictured, tensor)

    def _metadata(self, tag: str, data: memoryview) -> None:
        for number, value in Fields(data):
            if number == 1 and not isinstance(value, int):
                for inner, name in Fields(value):
                    if inner == 1 and not isinstance(name, int):
                        self.plugins[tag] = bytes(name).decode("utf-8", "replace")


# -- images, histograms and texts


def event_media(
    tag: str, plugin: str, pictured: "tuple[int, memoryview] | None", tensor: "memoryview | None"
) -> "list[EventMedia]":
    """`pictured`: TF1's own fields, 4 an image and 5 a histogram; `tensor`: as TF2 writes them."""
    if pictured is not None and pictured[0] == 4:
        found = [bytes(v) for n, v in Fields(pictured[1]) if n == 4 and not isinstance(v, int)]
        return _images(tag, found)
    if pictured is not None:
        return _histogram(tag, *_buckets(pictured[1]))
    if tensor is None:
        return []
    if plugin == "histograms":
        return _histogram(tag, *_tensor_buckets(tensor))
    texts = [bytes(v) for n, v in Fields(tensor) if n == 8 and not isinstance(v, int)]
    if plugin == "images":
        return _images(tag, texts[2:])  # width and height stand in front
    if plugin == "text":
        return [EventMedia(tag, "text", "text/plain", text) for text in texts]
    return []


def _images(tag: str, found: "list[bytes]") -> "list[EventMedia]":
    made = []
    for data in found:
        mime = next((kind for head, kind in _IMAGES.items() if data.startswith(head)), None)
        if mime is not None:
            made.append(EventMedia(tag, "image", mime, data))
    return made


def _buckets(data: memoryview) -> "tuple[list[float], list[float]]":
    """(counts, edges) of a HistogramProto: limits of buckets and what is in them."""
    lowest = 0.0
    limits: list[float] = []
    counts: list[float] = []
    for number, value in Fields(data):
        if isinstance(value, int):
            continue
        if number == 1:
            lowest = _DOUBLE.unpack(value)[0]
        elif number in (6, 7):
            numbers = struct.unpack(f"<{len(value) // 8}d", value[: len(value) // 8 * 8])
            (limits if number == 6 else counts).extend(numbers)
    filled = [place for place, count in enumerate(counts) if count]
    if not filled or len(limits) != len(counts):
        return [], []
    first, last = filled[0], filled[-1]  # the outer ones are empty, and as wide as numbers go
    begin = limits[first - 1] if first else lowest
    return counts[first : last + 1], [begin, *limits[first : last + 1]]


def _tensor_buckets(data: memoryview) -> "tuple[list[float], list[float]]":
    """Of TF2: rows of left edge, right edge and count."""
    content = b""
    numbers: list[float] = []
    for number, value in Fields(data):
        if number == 4 and not isinstance(value, int):
            content = bytes(value)
        elif number == 6:
            numbers += _listed(number, value)
    if content:
        numbers = list(struct.unpack(f"<{len(content) // 8}d", content[: len(content) // 8 * 8]))
    rows = [numbers[at : at + 3] for at in range(0, len(numbers) - 2, 3)]
    if not rows:
        return [], []
    return [row[2] for row in rows], [rows[0][0], *(row[1] for row in rows)]


def _histogram(tag: str, counts: "list[float]", edges: "list[float]") -> "list[EventMedia]":
    finite = all(number - number == 0 for number in (*counts, *edges))
    if not counts or not finite or len(counts) > HISTOGRAM_BINS_MAX:
        return []
    text = json.dumps({"counts": counts, "edges": edges}, separators=(",", ":"))
    return [EventMedia(tag, "histogram", "application/json", text.encode())]


def tensor_number(data: memoryview) -> float | None:
    """The one number of a TensorProto; None where it has none, or several."""
    dtype = 0
    content = None
    listed: list[float] = []
    for number, value in Fields(data):
        if number in (5, 6, 7, 10, 11):
            listed += _listed(number, value)
        elif isinstance(value, int):
            if number == 1:
                dtype = value
        elif number == 2:
            if _elements(value) != 1:
                return None
        elif number == 4:
            content = value

    if content is not None and dtype in _CONTENT:
        if len(content) != struct.calcsize(_CONTENT[dtype]):
            return None
        return float(struct.unpack(_CONTENT[dtype], content)[0])
    if len(listed) == 1:
        return listed[0]
    return None


def _elements(shape: memoryview) -> int:
    count = 1
    for number, value in Fields(shape):
        if number == 2 and not isinstance(value, int):
            for inner, size in Fields(value):
                if inner == 1 and isinstance(size, int):
                    count *= size
    return count


def _listed(number: int, value: "int | memoryview") -> list[float]:
    """float_val 5, double_val 6, int_val 7, int64_val 10, bool_val 11; packed or one by one."""
    if isinstance(value, int):
        return [float(signed(value))]
    if number in (5, 6):
        code, width = ("<f", 4) if number == 5 else ("<d", 8)
        return [
            struct.unpack_from(code, value, at)[0] for at in range(0, len(value) - width + 1, width)
        ]
    found, pos = [], 0
    while pos < len(value):
        one, pos = read_varint(value, pos)
        found.append(float(signed(one)))
    return found
