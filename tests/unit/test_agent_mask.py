"""Masking of raw output: exact values always, also across two reads; shapes as far as possible;
equal length (Sec9).
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.agent.ship.mask import SHAPE_BYTES_MAX, Mask
from headway.wire.redact import SHAPES

VALUE = b"c4n4ry-Zq8vT1-do-not-store"
SHAPED = [
    b"AKIAABCDEFGHIJKLMNOP", b"ASIAABCDEFGHIJKLMNOP", b"ghp_" + b"a1" * 18, b"gho_" + b"Z" * 40,
    b"github_pat_" + b"x" * 30, b"glpat-" + b"q" * 24, b"hf_" + b"A1" * 17, b"sk-" + b"t" * 40,
    b"xoxb-1234567890-abcdef",
    b"pypi-" + b"w" * 60, b"eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
]  # fmt: skip


def masked(mask: Mask, pieces: list[bytes]) -> bytes:
    """What leaves when output comes in these reads: held bytes are joined with the next read."""
    out, rest = b"", b""
    for i, piece in enumerate(pieces):
        buffer = bytearray(rest + piece)
        ready = mask.apply(buffer, 0, len(buffer), final=i == len(pieces) - 1)
        raw = rest + piece
        out, rest = out + bytes(buffer[:ready]), raw[ready:]
    return out


def test_an_exact_value_is_masked_at_equal_length() -> None:
    text = b"key " + VALUE + b" and again:" + VALUE * 2 + b"\n"
    out = masked(Mask([VALUE]), [text])
    assert out == b"key " + b"*" * 26 + b" and again:" + b"*" * 52 + b"\n"


@pytest.mark.parametrize("cut", range(len(VALUE) + 1))
def test_a_value_that_is_cut_across_two_reads_is_found(cut: int) -> None:
    text = b"x" + VALUE + b"y\n"
    assert masked(Mask([VALUE]), [text[: cut + 1], text[cut + 1 :]]) == b"x" + b"*" * 26 + b"y\n"


@given(st.lists(st.integers(1, 9)), st.integers(0, 3))
def test_a_value_in_any_number_of_reads_is_found(cuts: list[int], lead: int) -> None:
    text, pieces = b"." * lead + VALUE + VALUE + b" tail\n", []
    for cut in cuts:
        pieces.append(text[:cut])
        text = text[cut:]
    out = masked(Mask([VALUE]), [*pieces, text])
    assert VALUE not in out and out == b"." * lead + b"*" * 52 + b" tail\n"


def test_a_tail_that_may_be_a_value_waits_until_the_writer_is_dead() -> None:
    mask = Mask([VALUE])
    buffer = bytearray(b"prompt " + VALUE[:5])
    assert mask.apply(buffer, 0, len(buffer)) == 7
    assert mask.apply(buffer, 0, len(buffer), patient=False) == 7, "patience is about shapes only"
    assert mask.apply(buffer, 0, len(buffer), final=True) == len(buffer)


def test_values_that_overlap_are_both_covered() -> None:
    mask = Mask([b"abcdefgh12", b"gh12345678"])
    assert masked(mask, [b"<abcdefgh12345678>"]) == b"<" + b"*" * 16 + b">"


def test_values_below_the_limit_are_left_alone() -> None:
    assert masked(Mask([b"short"]), [b"short text\n"]) == b"short text\n"


def test_lines_stay_lines_in_a_value_of_several_lines() -> None:
    assert (
        masked(Mask([b"first line\nsecond"]), [b"(first line\nsecond)"]) == b"(**********\n******)"
    )


@pytest.mark.parametrize("secret", SHAPED)
def test_known_shapes_are_masked(secret: bytes) -> None:
    assert masked(Mask(), [b"token=" + secret + b"\n"]) == b"token=" + b"*" * len(secret) + b"\n"


@pytest.mark.parametrize("secret", SHAPED)
@pytest.mark.parametrize("cut", [2, 3, 5, 12])
def test_a_shape_that_is_cut_across_two_reads_is_found(secret: bytes, cut: int) -> None:
    assert (
        masked(Mask(), [b"a " + secret[:cut], secret[cut:] + b"\n"])
        == b"a " + b"*" * len(secret) + b"\n"
    )


def test_what_stands_behind_a_literal_is_masked() -> None:
    mask = Mask()
    assert masked(mask, [b"https://user:hunter22@host/x\n"]) == b"https://*************@host/x\n"
    assert (
        masked(mask, [b"Authorization: Bearer abcdefghijklmnop1\n"])
        == b"Authorization: Bearer " + b"*" * 17 + b"\n"
    )
    assert masked(mask, [b"?sig=" + b"A" * 40 + b"&x\n"]) == b"?sig=" + b"*" * 40 + b"&x\n"
    assert (
        masked(mask, [b"AccountKey=" + b"k" * 44 + b"==;\n"]) == b"AccountKey=" + b"*" * 46 + b";\n"
    )


def test_a_private_key_is_masked_as_a_whole_also_when_it_comes_in_parts() -> None:
    key = b"-----BEGIN RSA PRIVATE KEY-----\nMIIB\nAAAA\n-----END RSA PRIVATE KEY-----"
    for cut in (3, 12, 30, 40, 60):
        out = masked(Mask(), [b"k:\n" + key[:cut], key[cut:] + b"\n"])
        assert out == b"k:\n" + bytes(0x2A if b != 10 else 10 for b in key) + b"\n", cut


def test_a_tail_that_may_be_a_shape_leaves_when_patience_is_over() -> None:
    mask = Mask()
    buffer = bytearray(b"see ghp_abc")
    assert mask.apply(buffer, 0, len(buffer)) == 4
    assert mask.apply(buffer, 0, len(buffer), patient=False) == len(buffer)
    assert bytes(buffer) == b"see ghp_abc"


@pytest.mark.parametrize(
    "text",
    [
        b"loss 0.31 acc 0.9\n", b"hf_hub download\n", b"sk-learn\n", b"-----BEGIN CERTIFICATE-----\n", b"ask-me eyJ\n",
        b"http://localhost:4949/x\n", b"design= 3\n", b"xoxo love\n", b"bearer of news\n",
        b"50%|#####     | 5/10 it/s]",
    ],
)  # fmt: skip
def test_ordinary_text_leaves_at_once_and_unchanged(text: bytes) -> None:
    buffer = bytearray(text)
    ready = Mask([VALUE]).apply(buffer, 0, len(buffer), patient=b"CERT" not in text)
    assert (bytes(buffer), ready) == (text, len(text))


def test_a_long_line_without_an_end_never_waits_for_ever() -> None:
    """F37: what may become a shape is waited for only within its greatest length."""
    buffer = bytearray(b"ghp_" + b"a" * (4 * SHAPE_BYTES_MAX))
    assert Mask().apply(buffer, 0, len(buffer)) == len(buffer)


@given(st.binary(max_size=400), st.lists(st.integers(0, 400)))
def test_any_bytes_keep_their_length_and_differ_only_in_stars(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    out = masked(Mask([b"\0\0\0\0\0\0\0\0"]), [data[a:b] for a, b in pairwise(places)] or [data])
    assert len(out) == len(data)
    assert all(a == b or b == 0x2A for a, b in zip(data, out, strict=True))


def test_only_the_asked_range_is_looked_at_and_changed() -> None:
    buffer = bytearray(VALUE + b"|" + VALUE + b"|" + VALUE)
    ready = Mask([VALUE]).apply(buffer, 27, 54)
    assert ready == 54 and bytes(buffer) == VALUE + b"|" + b"*" * 26 + b"|" + VALUE


def test_every_shape_of_the_table_has_a_search_that_finds_its_literals() -> None:
    mask = Mask()
    for _, literals, _ in SHAPES:
        for literal in literals:
            data = bytearray(b"some text " + literal + b"@ and more")
            assert literal in [found for found, _ in mask._literals(data, 0, len(data))], literal


def test_counting_what_was_masked() -> None:
    mask = Mask([VALUE])
    masked(mask, [VALUE + b" " + VALUE + b"\n"])
    assert mask.count == 2


def test_plain_text_is_searched_in_few_passes() -> None:
    """The number of passes over the bytes is what makes it fast."""
    mask = Mask([VALUE])
    assert len(mask._triggers) + len(mask._plain) <= 8
