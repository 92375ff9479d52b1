"""Batches: exact round trip; anything else is refused with a reason and costs no memory (F13, B30)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.errors import DamagedError
from headway.wire import batch
from headway.wire.batch import Part, TaskKey

KEY = TaskKey("6f0d9f0e-0000-4000-8000-000000000000", 1, "worker-0")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["stdout-0", "shim", "metrics-0-1-ab.2"]), st.binary(max_size=200)
        ),
        max_size=8,
    )
)
def test_a_batch_comes_back_exactly(rows: list[tuple[str, bytes]]) -> None:
    parts = [Part(stream, "raw", i * 10, data) for i, (stream, data) in enumerate(rows)]
    task, sent_ns, found = batch.decode(batch.encode(KEY, parts, 17))
    assert (task, sent_ns) == (KEY, 17)
    assert [(p.stream, p.kind, p.offset, bytes(p.data)) for p in found] == [
        (p.stream, p.kind, p.offset, p.data) for p in parts
    ]


def test_every_flipped_byte_in_the_data_is_refused() -> None:
    body = bytearray(batch.encode(KEY, [Part("stdout-0", "raw", 0, b"hello world")], 1))
    for position in range(len(body) - 11, len(body)):
        broken = bytearray(body)
        broken[position] ^= 1
        with pytest.raises(DamagedError, match="checksum"):
            batch.decode(bytes(broken))


@given(st.data())
def test_a_cut_batch_is_refused(data: st.DataObject) -> None:
    body = batch.encode(
        KEY, [Part("stdout-0", "raw", 0, b"hello"), Part("shim", "records", 3, b"abc")], 1
    )
    with pytest.raises(DamagedError):
        batch.decode(body[: data.draw(st.integers(0, len(body) - 1))])


@pytest.mark.parametrize(
    "change",
    [
        {"stream": "../../etc/passwd"}, {"stream": "a/b"}, {"stream": ""}, {"stream": "x" * 97}, {"stream": "A"},
        {"stream": 3}, {"offset": -1}, {"offset": 2**63}, {"offset": True}, {"offset": 1.5}, {"length": -1},
        {"length": 10**30},
        {"kind": "pickle"}, {"crc": "x"},
    ],
)  # fmt: skip
def test_a_part_with_a_bad_field_is_refused(change: dict[str, object]) -> None:
    row = {"stream": "stdout-0", "kind": "raw", "offset": 0, "length": 0, "crc": 0} | change
    header = json.dumps(
        {"task": {"uuid": "u", "attempt": 1, "task": "t"}, "sent_ns": 1, "parts": [row]}
    ).encode()
    with pytest.raises(DamagedError):
        batch.decode(batch.MAGIC + len(header).to_bytes(4, "little") + header)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"task":{"uuid":"u","attempt":1,"task":"t"},"sent_ns":1,"parts":3}',
    ],
)
def test_a_header_that_is_not_one_is_refused(header: bytes) -> None:
    with pytest.raises(DamagedError):
        batch.decode(batch.MAGIC + len(header).to_bytes(4, "little") + header)
