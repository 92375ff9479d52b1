"""The shipper's decisions: what is sent, what answers mean, what is dropped, when it is over. Pure,
in made-up time.
"""

import pytest

from headway.agent.shim.machine import Tick
from headway.agent.ship.events import (
    Acked,
    Busy,
    Closed,
    Drop,
    Finish,
    Forget,
    Free,
    Grown,
    Held,
    Log,
    Pack,
    Packed,
    Piece,
    Refused,
    Reload,
    Remove,
    Retry,
    Seen,
    ShipperEvent,
    ShipperInstruction,
    TaskEnded,
)
from headway.agent.ship.machine import ShipperMachine, ShipperPlan
from headway.agent.ship.stream_state import Gap
from headway.model.limits import (
    BACKOFF_MAX_S,
    BATCH_BYTES_MAX,
    FLUSH_AT_END_S,
    KIB,
    MIB,
    PART_BYTES_MAX,
)
from headway.model.record import RAW, RECORDS
from tests.unit.sending_rig import Rig


def logs(said: list[ShipperInstruction]) -> list[str]:
    return [i.text for i in said if isinstance(i, Log)]


def test_what_grows_is_sent_and_what_is_acknowledged_is_not_sent_again() -> None:
    rig = Rig()
    rig(Grown("stdout-0", RAW, 10, bulk=True))
    assert rig.spans() == [("stdout-0", 0, 10)]
    rig.ack()
    assert not rig.out
    rig(Grown("stdout-0", RAW, 15, bulk=True))
    assert rig.spans() == [("stdout-0", 10, 5)]


def test_events_of_one_look_go_into_one_batch_facts_first() -> None:
    rig = Rig()
    rig(
        Seen(
            (
                Grown("stdout-0", RAW, 5, bulk=True),
                Grown("shim", RECORDS, 7),
                Grown("stderr-0", RAW, 1, bulk=True),
            )
        )
    )
    assert rig.spans()[0][0] == "shim"
    assert {stream for stream, _, _ in rig.spans()} == {"shim", "stdout-0", "stderr-0"}


def test_a_cursor_saves_what_was_acknowledged_before() -> None:
    rig = Rig()
    rig.server["stdout-0"] = 8
    rig(Grown("stdout-0", RAW, 10, bulk=True, acked=8))
    # asks first: a wrong cursor may point into the middle of a frame (F16)
    assert rig.spans() == [("stdout-0", 8, 0)]
    rig.ack()
    assert rig.spans() == [("stdout-0", 8, 2)]


def test_a_cursor_that_says_all_was_sent_is_not_believed_without_the_server() -> None:
    """F16: the server is asked with an empty part before anything may be removed."""
    rig = Rig()
    rig(Seen((Grown("shim", RECORDS, 0), Grown("a", RAW, 10, acked=10), Closed("a"))))
    assert rig.spans() == [("a", 10, 0)]
    rig.ack()
    assert rig.spans() == [("a", 0, 10)]
    rig(TaskEnded("shim", 0), Grown("shim", RECORDS, 5))
    rig.drain()
    assert rig.server == {"a": 10, "shim": 5} and rig.finish == Finish(True, ())


def test_a_server_that_was_away_is_asked_for_every_position() -> None:
    """F15: it may have come back with less."""
    rig = Rig()
    rig(Seen((Grown("a", RAW, 10), Grown("b", RAW, 10))))
    rig.ack()
    rig.server["a"] = 3
    rig(Grown("b", RAW, 20))
    rig.fail()
    rig(Tick(), after_s=60)
    rig.drain()
    rig.drain()
    assert rig.server == {"a": 10, "b": 20}


def test_output_is_given_back_by_the_servers_word_and_not_by_a_cursors() -> None:
    """F16: a stream that was closed gave back all that a garbage cursor called acknowledged."""
    rig = Rig(cap=8 * MIB)
    rig.server["stdout-0"] = 5 * MIB
    rig(Grown("stdout-0", RAW, 9 * MIB, bulk=True, acked=10**9), Closed("stdout-0"))
    assert not [i for i in rig.said if isinstance(i, Free)]
    rig.drain()
    assert rig.server["stdout-0"] == 9 * MIB and not rig.gaps
    assert [i for i in rig.said if isinstance(i, Free)]


@pytest.mark.parametrize("cursor", [0, 3, 100, 120, 10**9])
def test_a_wrong_cursor_costs_a_resend_and_nothing_else(cursor: int) -> None:
    """F16."""
    rig = Rig()
    rig.server["s"] = 50
    rig(Grown("s", RAW, 120, acked=cursor))
    rig.drain()
    assert rig.server["s"] == 120 and rig.machine.lag_bytes == 0


def test_a_batch_is_bounded_and_bulk_streams_take_turns() -> None:
    rig = Rig()
    rig(Seen(tuple(Grown(f"stdout-{i}", RAW, 64 * MIB, bulk=True) for i in range(4))))
    first = []
    for _ in range(4):
        assert sum(length for _, _, length in rig.spans()) <= BATCH_BYTES_MAX
        assert all(length <= PART_BYTES_MAX for _, _, length in rig.spans())
        first.append(rig.spans()[0][0])
        rig.ack()
    assert len(set(first)) > 1


def test_under_backlog_a_second_batch_is_packed_behind_the_first() -> None:
    rig = Rig()
    rig(Grown("stdout-0", RAW, 64 * MIB, bulk=True))
    assert [rig.spans(b) for b in rig.out] == [
        [("stdout-0", 0, 4 * MIB)],
        [("stdout-0", 4 * MIB, 4 * MIB)],
    ]
    rig.ack()
    assert len(rig.out) == 2


def test_without_backlog_the_second_batch_waits_for_the_answer() -> None:
    rig = Rig()
    rig(Grown("a", RAW, 10))
    rig(Grown("a", RAW, 20))
    assert len(rig.out) == 1
    rig.ack()
    assert rig.spans() == [("a", 10, 10)]


def test_a_lost_reply_leads_to_a_resend_that_changes_nothing() -> None:
    """F17, P4."""
    rig = Rig()
    rig(Grown("a", RAW, 10))
    rig.apply()
    rig.fail()
    rig(Tick(), after_s=60)
    assert rig.spans() == [("a", 0, 10)]
    rig.ack()
    assert rig.server == {"a": 10} and rig.machine.lag_bytes == 0


def test_a_failure_voids_the_batch_behind_it_too() -> None:
    rig = Rig()
    rig(Grown("a", RAW, 64 * MIB, bulk=True))
    said = rig.fail()
    assert Forget() in said
    rig(Tick(), after_s=60)
    assert rig.spans() == [("a", 0, 4 * MIB)]


def test_pauses_grow_with_jitter_and_end_with_the_first_success() -> None:
    rig, pauses = Rig(), []
    rig(Grown("a", RAW, 10))
    for _ in range(12):
        rig.fail()
        wake = rig.machine.wake_s(rig.now_s)
        assert wake is not None
        pauses.append(round(wake - rig.now_s, 6))
        assert not rig.out, "nothing is tried before its time"
        rig(Tick(), after_s=wake - rig.now_s)
    assert pauses == sorted(pauses) and pauses[-1] == pytest.approx(BACKOFF_MAX_S * 0.75)
    rig.ack()
    rig(Grown("a", RAW, 20))
    assert len(rig.out) == 1


def test_the_reason_is_told_once_and_the_recovery_too() -> None:
    rig = Rig()
    rig(Grown("a", RAW, 10))
    said = []
    for _ in range(5):
        said += rig.fail(reason="no server")
        said += rig(Tick(), after_s=60)
    assert logs(said) == ["data stays in the spool: no server"]
    assert logs(rig.ack()) == ["the server takes data again"]


def test_a_hint_that_the_server_is_back_ends_the_pause() -> None:
    rig = Rig()
    rig(Grown("a", RAW, 10))
    rig.fail()
    assert not rig.out
    rig(Retry())
    assert len(rig.out) == 1


def test_a_server_that_went_back_gets_again_what_is_still_held() -> None:
    """F15: a restored server asks for older bytes; those that were given back are told as a gap."""
    rig = Rig(cap=8 * MIB)
    rig(Grown("stdout-0", RAW, 8 * MIB, bulk=True))
    rig.drain()
    assert any(isinstance(i, Free) for i in rig.said)
    rig.server["stdout-0"] = 1000
    rig(Grown("stdout-0", RAW, 8 * MIB + 10, bulk=True))
    rig.drain()
    assert rig.server["stdout-0"] == 8 * MIB + 10
    first = rig.machine.entries["stdout-0"].first
    assert rig.gaps["stdout-0"][0][0] == 1000 and rig.gaps["stdout-0"][-1][1] <= first


def test_a_refused_stream_is_set_aside_and_the_others_go_on() -> None:
    """P11."""
    rig = Rig()
    rig(Seen((Grown("bad", RECORDS, 10), Grown("good", RECORDS, 10))))
    acks = rig.apply()
    said = rig(Acked(rig.out.pop(0).number, {"good": acks["good"]}, {"bad": "version 9"}))
    assert logs(said) == ["stream bad is set aside: version 9"]
    rig(Seen((Grown("bad", RECORDS, 20), Grown("good", RECORDS, 20))))
    assert rig.spans() == [("good", 10, 10)]


def test_a_stream_that_cannot_be_read_is_set_aside() -> None:
    """B30."""
    rig = Rig()
    assert logs(rig(Seen((Grown("x", RECORDS, 0), Refused("x", "it is a pipe"))))) == [
        "stream x is set aside: it is a pipe"
    ]
    assert not rig.out


def test_a_batch_called_damaged_is_taken_apart_until_the_culprit_is_found() -> None:
    rig = Rig()
    rig(Seen(tuple(Grown(name, RECORDS, 10) for name in ("a", "b", "c"))))
    for _ in range(40):
        if not rig.out:
            rig(Tick(), after_s=60)
            continue
        if any(stream == "b" for stream, _, _ in rig.spans()):
            rig.fail(400, "damaged")
        else:
            rig.ack()
    assert rig.server == {"a": 10, "c": 10}
    assert rig.machine.entries["b"].refused == "damaged"


def test_a_batch_that_is_too_large_is_made_smaller() -> None:
    rig = Rig()
    rig(Seen(tuple(Grown(f"s{i}", RAW, 4 * MIB, bulk=True) for i in range(4))))
    rig.fail(413, "too large")
    rig(Tick(), after_s=60)
    assert sum(length for _, _, length in rig.spans()) <= 4 * MIB


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_token_that_is_not_accepted_is_read_again_and_sending_goes_on(status: int) -> None:
    """F40."""
    rig = Rig()
    rig(Grown("a", RAW, 10))
    assert Reload() in rig.fail(status, "token")
    rig(Tick(), after_s=60)
    rig.ack()
    assert rig.server["a"] == 10


def test_a_server_that_never_moves_on_is_not_asked_without_pause() -> None:
    rig = Rig()
    rig(Grown("a", RAW, 10))
    for _ in range(20):
        if rig.out:
            number = rig.out.pop(0).number
            rig(Acked(number, {"a": 0}))
        rig(Tick(), after_s=0.001)
    assert len([i for i in rig.said if isinstance(i, Pack)]) < 5


def test_an_answer_that_leaves_out_a_stream_is_not_taken_for_success() -> None:
    rig = Rig()
    rig(Grown("a", RAW, 10))
    rig(Acked(rig.out.pop(0).number, {}))
    assert rig.machine.positions() == {"a": 0} and rig.machine.lag_bytes == 10


def test_answers_for_batches_that_are_void_change_nothing() -> None:
    rig = Rig()
    rig(Grown("a", RAW, 10))
    number = rig.out[0].number
    rig.fail()
    rig(Acked(number, {"a": 10}))
    rig(Packed(number, (Piece("a", 0, 10),)))
    assert rig.machine.positions() == {"a": 0}


def test_held_bytes_wait_for_growth_or_their_time() -> None:
    machine = ShipperMachine(ShipperPlan())
    (pack,) = machine.handle(Grown("a", RAW, 10), 0.0)
    assert isinstance(pack, Pack)
    assert machine.handle(Packed(pack.number, (), (Held("a", 2.0),)), 0.0) == []
    assert machine.handle(Tick(), 1.0) == [] and machine.wake_s(1.0) == 2.0
    assert isinstance(machine.handle(Tick(), 2.0)[0], Pack)


# -- room


def test_a_closed_segment_is_removed_when_the_server_has_it() -> None:
    rig = Rig()
    rig(Grown("metrics-0-1-abcdef.0", RECORDS, 100, bulk=True, whole=True))
    rig.ack()
    assert Remove("metrics-0-1-abcdef.0") not in rig.said
    rig(Closed("metrics-0-1-abcdef.0"))
    assert Remove("metrics-0-1-abcdef.0") in rig.said and rig.machine.used == 0


def test_acknowledged_output_is_given_back_in_large_pieces() -> None:
    rig = Rig()
    rig(Grown("stdout-0", RAW, 200 * MIB + 5, bulk=True))
    rig.drain()
    freed = [i for i in rig.said if isinstance(i, Free)]
    assert freed and all(
        i.length >= 64 * MIB and i.offset % 4096 == 0 == i.length % 4096 for i in freed
    )
    assert rig.machine.used == 200 * MIB + 5 - sum(i.length for i in freed)


def test_over_the_limit_the_oldest_output_goes_and_is_told_exactly() -> None:
    """F10, P5, P7."""
    rig = Rig(cap=1 * MIB)
    rig(Grown("facts-0-1-abcdef", RECORDS, 10_000))
    rig.fail()
    for size in range(100, 5000, 100):
        rig(Grown("stdout-0", RAW, size * KIB, bulk=True))
        assert rig.machine.used <= 1 * MIB
    assert set(rig.dropped) == {"stdout-0"}
    rig(Tick(), after_s=60)
    rig.drain()
    assert rig.server == {"stdout-0": 4900 * KIB, "facts-0-1-abcdef": 10_000}
    assert rig.gaps["stdout-0"] == sorted(rig.dropped["stdout-0"])


def test_over_the_limit_closed_segments_go_as_a_whole_and_open_ones_stay() -> None:
    rig = Rig(cap=1 * MIB)
    rig(Grown("facts-0-1-abcdef", RECORDS, 10))
    rig.fail()
    for i in range(5):
        rig(Grown(f"metrics-0-1-abcdef.{i}", RECORDS, 400 * KIB, bulk=True, whole=True))
        if i:
            rig(Closed(f"metrics-0-1-abcdef.{i - 1}"))
    assert sorted(rig.dropped) == [f"metrics-0-1-abcdef.{i}" for i in range(3)]
    rig(Tick(), after_s=60)
    rig.drain()
    assert rig.gaps["metrics-0-1-abcdef.0"] == [(0, 400 * KIB)]
    assert Remove("metrics-0-1-abcdef.0") in rig.said


def test_a_drop_of_records_ends_where_the_server_may_be() -> None:
    """P5: a reply may have been lost, and the counts of a gap must be right in both cases."""
    name = "metrics-0-1-abcdef.0"
    rig = Rig(cap=1 * MIB)
    rig(Grown(name, RECORDS, 300 * KIB, bulk=True, whole=True))
    rig.apply()
    rig.fail()
    rig(Grown(name, RECORDS, 2 * MIB, bulk=True, whole=True), Closed(name))
    assert rig.dropped[name] == [(0, 300 * KIB), (300 * KIB, 2 * MIB)]
    assert [i.whole for i in rig.said if isinstance(i, Drop)] == [False, True]
    rig(Tick(), after_s=60)
    rig.drain()
    assert rig.gaps[name] == [(300 * KIB, 2 * MIB)]


def test_a_segment_that_has_lost_its_head_is_dropped_to_its_end() -> None:
    """Its schemas are declared at its head: the rest alone could not be read."""
    name = "metrics-0-1-abcdef.0"
    rig = Rig(cap=1 * MIB)
    rig(Grown(name, RECORDS, 300 * KIB, bulk=True, whole=True))
    rig.fail()
    rig(Grown(name, RECORDS, 1200 * KIB, bulk=True, whole=True), Closed(name))
    assert rig.dropped[name] == [(0, 300 * KIB), (300 * KIB, 1200 * KIB)]
    rig = Rig(cap=1 * MIB)
    rig(
        Seen(
            (
                Grown(name, RECORDS, 500, bulk=True, whole=True, gaps=(Gap(0, 200, "full", 1, 1),)),
                Closed(name),
            )
        )
    )
    assert rig.dropped[name] == [(200, 500)], "a shipper before us was killed in between"


def test_what_is_under_way_is_never_dropped() -> None:
    rig = Rig(cap=64 * KIB)
    rig(Grown("stdout-0", RAW, 60 * KIB, bulk=True))
    (span,) = rig.spans()
    rig(Grown("stdout-0", RAW, 900 * KIB, bulk=True))
    assert all(start >= span[1] + span[2] for start, _ in rig.dropped["stdout-0"])
    rig.drain()
    assert rig.server["stdout-0"] == 900 * KIB


def test_drops_of_an_earlier_shipper_are_told_by_the_next_one() -> None:
    rig = Rig()
    rig(Grown("stdout-0", RAW, 100, bulk=True, gaps=(Gap(20, 60, "full", 1, 2),)))
    assert rig.spans() == [("stdout-0", 0, 20), ("stdout-0", 20, 40), ("stdout-0", 60, 40)]
    assert rig.out[0].spans[1].gap == Gap(20, 60, "full", 1, 2)
    assert rig.machine.used == 60


def test_room_is_counted_right_when_a_stream_is_first_seen_empty_and_then_whole() -> None:
    rig = Rig(cap=100_000)
    gaps = tuple(Gap(i * 4096, (i + 1) * 4096, "full") for i in range(10))
    rig(
        Seen(
            (
                Grown("stdout-0", RAW, 0, bulk=True, gaps=gaps),
                Grown("stdout-0", RAW, 120_000, bulk=True),
            )
        )
    )
    assert rig.machine.used == 120_000 - 40_960 and not rig.dropped


# -- the end


def end(rig: Rig, *others: ShipperEvent) -> None:
    rig(Seen((*others, TaskEnded("shim", 100), Grown("shim", RECORDS, 150))))


def test_the_end_goes_with_or_after_everything_else() -> None:
    rig = Rig()
    rig(Grown("shim", RECORDS, 100))
    rig.ack()
    rig(Grown("stdout-0", RAW, 40 * MIB, bulk=True))
    end(rig)
    while rig.out:
        batch = rig.out[0]
        last = [span for span in batch.spans if span.last]
        if last:
            assert (
                rig.server.get("stdout-0", 0)
                + sum(s.length for s in batch.spans if s.stream == "stdout-0")
                == 40 * MIB
            )
        rig.ack()
    assert rig.finish == Finish(True, ())


def test_a_short_task_goes_in_one_batch_with_its_end() -> None:
    rig = Rig()
    rig(
        Seen(
            (
                Grown("shim", RECORDS, 0),
                Grown("stdout-0", RAW, 5, bulk=True),
                TaskEnded("shim", 100),
                Grown("shim", RECORDS, 150),
            )
        )
    )
    assert [s.stream for s in rig.out[0].spans] == ["shim", "stdout-0", "shim"]
    assert [s.last for s in rig.out[0].spans] == [False, False, True]
    rig.ack()
    assert rig.finish == Finish(True, ())


def test_it_is_not_over_while_something_will_still_write() -> None:
    rig = Rig()
    rig(Busy(True), Grown("shim", RECORDS, 100))
    rig.ack()
    end(rig)
    rig.ack()
    assert rig.finish is None
    rig(Grown("shipper-1-abcdef", RECORDS, 10), Busy(False))
    rig.ack()
    assert rig.finish == Finish(True, ())


def test_a_server_that_stays_away_is_waited_for_and_then_left() -> None:
    """F21: the spool stays."""
    rig = Rig()
    rig(Grown("shim", RECORDS, 100))
    end(rig)
    begun_s = rig.now_s
    while rig.finish is None:
        if rig.out:
            rig.fail()
        wake = rig.machine.wake_s(rig.now_s)
        assert wake is not None
        rig(Tick(), after_s=max(0.0, wake - rig.now_s))
    assert rig.finish == Finish(False, ()) and rig.now_s - begun_s == pytest.approx(FLUSH_AT_END_S)


def test_a_long_backlog_is_sent_to_its_end_as_long_as_it_moves() -> None:
    rig = Rig()
    rig(Grown("shim", RECORDS, 100), Grown("stdout-0", RAW, 400 * MIB, bulk=True))
    end(rig)
    while rig.out:
        rig.now_s += FLUSH_AT_END_S / 2
        rig.ack()
    assert rig.finish == Finish(True, ())


def test_a_refused_stream_does_not_keep_the_task_from_ending() -> None:
    rig = Rig()
    rig(Grown("shim", RECORDS, 100), Refused("shim", ""))
    rig = Rig()
    rig(Seen((Grown("shim", RECORDS, 100), Grown("x", RECORDS, 5), Refused("x", "bad"))))
    rig.ack()
    end(rig)
    rig.ack()
    assert rig.finish == Finish(True, ("x",))
