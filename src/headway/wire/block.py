"""Blocks: points as columns. Made by the store from the frames of a batch; the only file of `wire`
that uses numpy.

    0   4  b"HWK1"
    4   4  rows
    8   4  number of columns
    12  …  per column: u32 length, u32 crc32 of its bytes
    …   …  the columns

A column starts with one byte that names its form. Integers (step, time) rest as differences, floats
as float32 where that loses nothing. The light forms are cheap enough for every batch; the dense
ones (bytes of equal weight together, then zstd) are for compaction. Every form gives back the same
64 bits, NaN payloads and -0.0 included.
"""

import struct
from zlib import crc32

import numpy as np
import numpy.typing as npt
import zstandard

from headway.model.errors import DamagedError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]
Buffer = bytes | memoryview

MAGIC = b"HWK1"
_HEAD = struct.Struct("<4sII")
_ENTRY = struct.Struct("<II")
ZSTD_LEVEL = 3
PLANE_GAIN = 0.97  # a plane that does not shrink below this share stays as it is: faster to read

# Forms of a column. Integers:
RAW_I64 = 0  # i64 each
STRIDE = 1  # first, difference: a straight line
# first, smallest difference, u8 width, then the differences above the smallest in that many bytes
DELTA = 2
DENSE_DELTA = 3  # the same, the differences in planes
DENSE_DELTA2 = 4  # differences of differences, in planes
# Floats:
RAW_F64 = 16
RAW_F32 = 17  # every value is exactly a float32
DENSE_F64 = 18  # in planes
DENSE_F32 = 19
DENSE_F64_DELTA = 20  # differences of the bits, in planes
DENSE_F32_DELTA = 21
CONSTANT = 22  # one f64


def encode(rows: int, columns: list[bytes]) -> bytes:
    head = [_HEAD.pack(MAGIC, rows, len(columns))]
    head += [_ENTRY.pack(len(column), crc32(column)) for column in columns]
    return b"".join(head + columns)


class Block:
    """The columns of one block, decoded when asked for."""

    __slots__ = ("_at", "_entries", "_view", "rows")

    def __init__(self, data: Buffer) -> None:
        view = memoryview(data)
        if len(view) < _HEAD.size:
            raise DamagedError("a block of points is cut off")
        magic, rows, count = _HEAD.unpack_from(view)
        end = _HEAD.size + count * _ENTRY.size
        if magic != MAGIC or end > len(view):
            raise DamagedError("a block of points has a wrong head")
        self._entries = [
            _ENTRY.unpack_from(view, _HEAD.size + i * _ENTRY.size) for i in range(count)
        ]
        self._at = [end]
        for length, _ in self._entries:
            self._at.append(self._at[-1] + length)
        if self._at[-1] != len(view):
            raise DamagedError("a block of points has a wrong length")
        self._view, self.rows = view, int(rows)

    def __len__(self) -> int:
        return len(self._entries)

    def _column(self, index: int) -> memoryview:
        if index >= len(self._entries):
            raise DamagedError("a block of points lacks a column")
        column = self._view[self._at[index] : self._at[index + 1]]
        if crc32(column) != self._entries[index][1]:
            raise DamagedError("a column of points has a wrong checksum")
        return column

    def check(self) -> None:
        """Raise where a checksum is wrong."""
        for index in range(len(self)):
            self._column(index)

    def matrix(self, first: int) -> Floats:
        """All columns from `first` on, one per row of the matrix."""
        return np.array([self.floats(index) for index in range(first, len(self))])

    def ints(self, index: int) -> Ints:
        return decode_ints(self._column(index), self.rows)

    def floats(self, index: int) -> Floats:
        return decode_floats(self._column(index), self.rows)


# -- integers


def encode_ints(values: Ints, *, dense: bool) -> bytes:
    if len(values) < 2:
        return bytes([RAW_I64]) + values.tobytes()
    bits = values.view(np.uint64)
    deltas = bits[1:] - bits[:-1]  # modulo 2**64, so that nothing overflows
    first, low = int(values[0]), int(deltas.view(np.int64).min())
    above = deltas - np.uint64(low & (2**64 - 1))
    top = int(above.max())
    if top == 0:
        return struct.pack("<Bqq", STRIDE, first, low)
    if not dense:
        width = next(w for w in (1, 2, 4, 8) if top < 1 << (8 * w))
        return struct.pack("<BqqB", DELTA, first, low, width) + above.astype(f"<u{width}").tobytes()
    plain = struct.pack("<BqqB", DENSE_DELTA, first, low, _width(top)) + _planes(above, _width(top))
    twice: npt.NDArray[np.uint64] = np.diff(above, prepend=np.uint64(0))
    low2 = int(twice.view(np.int64).min())
    rest = twice - np.uint64(low2 & (2**64 - 1))
    width = _width(int(rest.max()))
    second = struct.pack("<BqqqB", DENSE_DELTA2, first, low, low2, width) + _planes(rest, width)
    return min(plain, second, key=len)


def decode_ints(column: Buffer, rows: int) -> Ints:
    form = column[0] if len(column) else None
    if form == RAW_I64:
        return _from_bytes(column[1:], "<i8", rows).view(np.int64)
    if form == STRIDE:
        first, low = struct.unpack_from("<qq", column, 1)
        line = np.arange(rows, dtype=np.uint64) * np.uint64(low & (2**64 - 1)) + np.uint64(
            first & (2**64 - 1)
        )
        return line.view(np.int64)
    if form == DELTA:
        first, low, width = struct.unpack_from("<qqB", column, 1)
        return _add_up(
            first, low, _from_bytes(column[18:], f"<u{width}", rows - 1).astype(np.uint64)
        )
    if form == DENSE_DELTA:
        first, low, width = struct.unpack_from("<qqB", column, 1)
        return _add_up(first, low, _unplanes(column[18:], width, rows - 1))
    if form == DENSE_DELTA2:
        first, low, low2, width = struct.unpack_from("<qqqB", column, 1)
        above = np.cumsum(
            _unplanes(column[26:], width, rows - 1) + np.uint64(low2 & (2**64 - 1)), dtype=np.uint64
        )
        return _add_up(first, low, above)
    raise DamagedError(f"a column of integers has the unknown form {form}")


def _add_up(first: int, low: int, above: npt.NDArray[np.uint64]) -> Ints:
    out = np.empty(len(above) + 1, np.uint64)
    out[0] = first & (2**64 - 1)
    np.add(above, np.uint64(low & (2**64 - 1)), out=out[1:])
    return np.cumsum(out, out=out, dtype=np.uint64).view(np.int64)


# -- floats


def fits_float32(values: Floats) -> npt.NDArray[np.bool_]:
    """Per row of a matrix: is every value exactly a float32, bit for bit?"""
    head = values[:, :64]
    likely = _same_bits(head)
    if likely.any() and values.shape[1] > 64:
        likely[likely] = _same_bits(values[likely])
    return likely


def _same_bits(values: Floats) -> npt.NDArray[np.bool_]:
    with np.errstate(all="ignore"):
        back = values.astype(np.float32).astype(np.float64)
    same: npt.NDArray[np.bool_] = (
        back.view(np.int64) == np.ascontiguousarray(values).view(np.int64)
    ).all(axis=1)
    return same


def encode_float_rows(values: Floats) -> list[bytes]:
    """The light form of every row of a matrix (names × points)."""
    small = fits_float32(values)
    with np.errstate(all="ignore"):
        return [
            b"\x11" + row.astype("<f4").tobytes() if fits else b"\x10" + row.tobytes()
            for row, fits in zip(values, small.tolist(), strict=True)
        ]


def encode_floats(values: Floats) -> bytes:
    """The dense form of one column."""
    bits: npt.NDArray[np.uint64] | npt.NDArray[np.uint32] = values.view(np.uint64)
    if len(values) and bits.min() == bits.max():
        return bytes([CONSTANT]) + values[:1].tobytes()
    forms = (DENSE_F64, DENSE_F64_DELTA)
    if fits_float32(values.reshape(1, -1))[0]:
        with np.errstate(all="ignore"):
            bits = values.astype(np.float32).view(np.uint32)
        forms = (DENSE_F32, DENSE_F32_DELTA)
    plain = bytes([forms[0]]) + _planes(bits, bits.itemsize)
    delta = bytes([forms[1]]) + _planes(np.diff(bits, prepend=bits.dtype.type(0)), bits.itemsize)
    return min(plain, delta, key=len)


def decode_floats(column: Buffer, rows: int) -> Floats:
    form = column[0] if len(column) else None
    if form == RAW_F64:
        return _from_bytes(column[1:], "<f8", rows).view(np.float64)
    if form == RAW_F32:
        return _from_bytes(column[1:], "<f4", rows).astype(np.float64)
    if form == CONSTANT:
        return np.full(rows, _from_bytes(column[1:], "<f8", 1)[0])
    if form in (DENSE_F64, DENSE_F64_DELTA):
        bits = _unplanes(column[1:], 8, rows)
        return (np.cumsum(bits, dtype=np.uint64) if form == DENSE_F64_DELTA else bits).view(
            np.float64
        )
    if form in (DENSE_F32, DENSE_F32_DELTA):
        small = _unplanes32(column[1:], rows)
        small = np.cumsum(small, dtype=np.uint32) if form == DENSE_F32_DELTA else small
        return small.view(np.float32).astype(np.float64)
    raise DamagedError(f"a column of numbers has the unknown form {form}")


# -- bytes


def _width(top: int) -> int:
    """Bytes that hold every number up to `top`."""
    return max(1, (top.bit_length() + 7) // 8)


def _from_bytes(data: Buffer, dtype: str, count: int) -> npt.NDArray[np.generic]:
    size = np.dtype(dtype).itemsize
    if len(data) != count * size:
        raise DamagedError("a column of points has a wrong length")
    return np.frombuffer(data, dtype)


def _planes(values: npt.NDArray[np.uint64] | npt.NDArray[np.uint32], width: int) -> bytes:
    """The lowest `width` bytes of each value, byte 0 of all first; a plane is its length (0: as it
    is) and bytes.
    """
    matrix = (
        values.astype(values.dtype.newbyteorder("<"), copy=False)
        .view(np.uint8)
        .reshape(len(values), values.itemsize)
    )
    squeeze = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_content_size=True)
    parts = []
    for k in range(width):
        plane = matrix[:, k].tobytes()
        small = squeeze.compress(plane)
        if len(small) < PLANE_GAIN * len(plane):
            parts += [len(small).to_bytes(4, "little"), small]
        else:
            parts += [b"\0\0\0\0", plane]
    return b"".join(parts)


def _fill_planes(data: Buffer, matrix: Bytes, width: int) -> None:
    view, pos, rows = memoryview(data), 0, len(matrix)
    expand = zstandard.ZstdDecompressor()
    for k in range(width):
        length = int.from_bytes(view[pos : pos + 4], "little")
        pos += 4
        piece = view[pos : pos + (length or rows)]
        pos += len(piece)
        # the output is bounded by what the rows need, not by what the frame claims
        plane = expand.decompress(piece, max_output_size=rows) if length else piece
        if len(plane) != rows:
            raise DamagedError("a column of points has a wrong length")
        matrix[:, k] = np.frombuffer(plane, np.uint8)


def _unplanes(data: Buffer, width: int, rows: int) -> npt.NDArray[np.uint64]:
    matrix = np.zeros((rows, 8), np.uint8)
    _fill_planes(data, matrix, min(width, 8))
    return matrix.reshape(-1).view("<u8").astype(np.uint64, copy=False)


def _unplanes32(data: Buffer, rows: int) -> npt.NDArray[np.uint32]:
    matrix = np.empty((rows, 4), np.uint8)
    _fill_planes(data, matrix, 4)
    return matrix.reshape(-1).view("<u4").astype(np.uint32, copy=False)
