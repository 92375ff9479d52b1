"""TensorBoard's event files: what was written is read, a torn tail waits, damage is passed over."""

import os
import struct
import time
from pathlib import Path

from headway.agent.observe.event_files import EventFiles
from headway.wire import tfevents
from headway.wire.tfevents import Scalars, event, first_event, read_records, record
from tests import streams


def name_now() -> str:
    """As TensorBoard names a file; one with an older time was not begun by this task."""
    return f"events.out.tfevents.{int(time.time())}"


def field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data


def tf2_event(step: int, tag: str, tensor: bytes, plugin: str | None = None) -> bytes:
    value = field(1, tag.encode())
    if plugin is not None:
        value += field(9, field(1, field(1, plugin.encode())))
    value += field(8, tensor)
    return b"\x09" + struct.pack("<d", 1.5) + b"\x10" + bytes([step]) + field(5, field(1, value))


def read_all(data: bytes) -> list[tuple[float, int, dict[str, float]]]:
    reader, view = Scalars(), memoryview(data)
    return [reader.read(view[begin:end]) for begin, end in read_records(data).spans]


def test_plain_scalars_are_read_back() -> None:
    data = record(first_event(1.0)) + record(event(2.5, 7, {"loss": 0.5, "a/b": -1.0}))
    assert read_all(data)[1] == (2.5, 7, {"loss": 0.5, "a/b": -1.0})


def test_tensors_of_one_number_are_scalars_and_the_plugin_is_remembered() -> None:
    content = b"\x08\x01" + field(2, b"") + field(4, struct.pack("<f", 0.25))
    listed = b"\x08\x01" + field(2, b"") + field(5, struct.pack("<f", 0.75))
    image = b"\x08\x07" + field(8, b"png")
    data = b"".join(
        map(record, (
            tf2_event(1, "loss", content, "scalars"), tf2_event(2, "loss", listed),
            tf2_event(3, "picture", image, "images"), tf2_event(4, "picture", content),
        ))
    )  # fmt: skip
    assert [values for _, _, values in read_all(data)] == [{"loss": 0.25}, {"loss": 0.75}, {}, {}]


def test_a_torn_tail_waits_for_the_rest() -> None:
    whole = record(event(1.0, 1, {"x": 1.0}))
    for cut in range(1, len(whole)):
        found = read_records(whole + whole[:cut])
        assert found.end == len(whole) and len(found.spans) == 1 and not found.damaged


def test_a_wrong_checksum_costs_one_record() -> None:
    rows = [bytearray(record(event(1.0, step, {"x": float(step)}))) for step in range(3)]
    rows[1][20] ^= 1
    found = read_records(b"".join(rows))
    assert len(found.spans) == 2 and found.damaged == 1 and found.end == sum(map(len, rows))


def test_bytes_that_are_no_event_file_are_passed_over() -> None:
    found = read_records(os.urandom(4096))
    assert found.spans == [] and found.damaged == 1 and found.end == 4096


class Rig:
    """A task's folder, and event files that this very process holds open."""

    def __init__(self, root: Path) -> None:
        self.spool, self.cwd = root / "spool", root / "work"
        self.spool.mkdir(mode=0o700)
        self.cwd.mkdir()
        (self.spool / "task.json").write_text("{}")
        self.said: list[str] = []
        self.files = self.watch()

    def watch(self) -> EventFiles:
        pids = {os.getpid(): 0}
        return EventFiles(str(self.spool), str(self.cwd), lambda: pids, self.said.append)

    def points(self) -> list[tuple[str, int, float]]:
        return [(p.name, p.step, p.value) for p in streams.points(self.spool)]


def test_files_are_read_as_they_grow_and_a_second_folder_has_its_name_in_front(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    (rig.cwd / "train").mkdir()
    (rig.cwd / "val").mkdir()
    with (rig.cwd / "train" / name_now()).open("wb", buffering=0) as file:
        file.write(record(first_event(1.0)) + record(event(1.0, 1, {"loss": 1.0})))
        rig.files.look(10.0)
        more = record(event(2.0, 2, {"loss": 0.5}))
        file.write(more[:9])
        rig.files.look(20.0)
        assert rig.points() == [("loss", 1, 1.0)]
        file.write(more[9:])
    name = f"{name_now()}.host.{os.getpid()}.1"  # opened and closed between two looks
    (rig.cwd / "val" / name).write_bytes(record(event(3.0, 2, {"loss": 0.25})))
    rig.files.look(30.0, last=True)
    assert rig.points() == [("loss", 1, 1.0), ("loss", 2, 0.5), ("val/loss", 2, 0.25)]


def test_files_of_other_programs_and_outside_the_folder_are_left_alone(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    (rig.cwd / f"{name_now()}.host.1.0").write_bytes(record(event(1.0, 1, {"x": 1.0})))
    with (tmp_path / name_now()).open("wb", buffering=0) as file:
        file.write(record(event(1.0, 1, {"y": 1.0})))
        rig.files.look(10.0)
    rig.files.look(20.0, last=True)
    assert rig.points() == []


def test_a_shipper_that_takes_over_doubles_nothing(tmp_path: Path) -> None:
    """Killed just before the points are appended, or just after."""
    rig = Rig(tmp_path)
    with (rig.cwd / name_now()).open("wb", buffering=0) as file:
        for step in range(6):
            file.write(record(event(1.0, step, {"loss": float(step)})))
            watch = rig.watch()
            if step % 2:
                watch._save = lambda writing: (_ for _ in ()).throw(OSError(28, "full"))  # type: ignore[method-assign]
            watch.look(10.0)
            watch.close()
    rig.watch().look(10.0, last=True)
    assert sorted(rig.points()) == [("loss", step, float(step)) for step in range(6)]


def test_the_written_points_count_when_only_the_note_of_them_was_kept(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with (rig.cwd / name_now()).open("wb", buffering=0) as file:
        file.write(record(event(1.0, 1, {"loss": 1.0})))
        rig.files.look(10.0)
        rig.files.close()
        rig.watch().look(10.0)  # the note says what was about to be written, and it was
    assert rig.points() == [("loss", 1, 1.0)]


def test_of_a_file_that_is_older_than_the_task_only_what_comes_is_read(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    old = rig.cwd / "events.out.tfevents.1600000000.host"
    old.write_bytes(record(event(1.0, 1, {"loss": 1.0})))
    with old.open("ab", buffering=0) as file:
        rig.files.look(10.0)
        file.write(record(event(1.0, 2, {"loss": 2.0})))
        rig.files.look(20.0)
    assert rig.points() == [("loss", 2, 2.0)]


def test_the_writers_and_the_readers_checksum_is_tensorboards() -> None:
    # RFC 3720: 32 bytes of zeros have the CRC-32C 0x8A9136AA
    crc = 0x8A9136AA
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    assert tfevents.masked_crc(bytes(32)) == masked
