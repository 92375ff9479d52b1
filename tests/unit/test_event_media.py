"""Images, histograms and texts of TensorBoard event files, as TF1, PyTorch and TF2 write them."""

import json
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from headway.agent.observe.event_files import EventFiles
from headway.wire import frame, tfevents

pytest.importorskip("tensorboard")
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.histogram_pb2 import HistogramProto
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def metadata(plugin: str) -> Any:
    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin))


def events() -> bytes:
    histogram = HistogramProto(
        min=-1, max=2, num=6, bucket_limit=[-1.0, 0.0, 1.0, 2.0, 1.7e308], bucket=[0, 1, 2, 3, 0]
    )
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=3)])
    strings = TensorProto(dtype=7, tensor_shape=shape, string_val=[b"4", b"4", PNG])
    rows = struct.pack("<6d", 0.0, 1.0, 5.0, 1.0, 2.0, 7.0)
    values = [
        Summary.Value(tag="old/image", image=Summary.Image(height=4, width=4, encoded_image_string=PNG)),
        Summary.Value(tag="old/weights", histo=histogram),
        Summary.Value(tag="new/image", metadata=metadata("images"), tensor=strings),
        Summary.Value(
            tag="new/weights", metadata=metadata("histograms"),
            tensor=TensorProto(dtype=2, tensor_content=rows),
        ),
        Summary.Value(
            tag="note/text_summary", metadata=metadata("text"),
            tensor=TensorProto(dtype=7, string_val=[b"# words"]),
        ),
        Summary.Value(tag="loss", simple_value=0.5),
    ]  # fmt: skip
    parts = [Event(wall_time=1.7e9, file_version="brain.Event:2")]
    parts += [Event(wall_time=1.7e9, step=7, summary=Summary(value=[value])) for value in values]
    return b"".join(tfevents.record(part.SerializeToString()) for part in parts)


def media(spool: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(spool.glob("media-*")):
        for number, payload in frame.frames(path.read_bytes()):
            if number == frame.FACT:
                found.append(json.loads(bytes(payload)))
    return found


def test_what_is_no_scalar_becomes_media_with_the_same_key_when_read_again(tmp_path: Path) -> None:
    spool, cwd = tmp_path / "spool", tmp_path / "work"
    spool.mkdir()
    cwd.mkdir()
    (spool / "task.json").write_text("{}")
    said: list[str] = []
    (cwd / f"events.out.tfevents.{int(time.time())}.host.4321.0").write_bytes(events())

    def read() -> None:
        EventFiles(str(spool), str(cwd), lambda: {4321: 0}, said.append).look(0.0, last=True)

    read()
    found = media(spool)
    assert [(one["name"], one["kind"], one["step"]) for one in found] == [
        ("old/image", "image", 7), ("old/weights", "histogram", 7), ("new/image", "image", 7),
        ("new/weights", "histogram", 7), ("note/text_summary", "text", 7),
    ], said  # fmt: skip
    import base64

    data = [base64.b64decode(one["base64"]) for one in found]
    assert data[0] == data[2] == PNG and data[4] == b"# words"
    assert json.loads(data[1]) == {"counts": [1, 2, 3], "edges": [-1, 0, 1, 2]}
    assert json.loads(data[3]) == {"counts": [5, 7], "edges": [0, 1, 2]}
    (spool / ".tfevents").unlink()
    read()
    again = media(spool)
    assert len(again) == 10 and len({one["key"] for one in again}) == 5


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_damaged_media_cost_nothing_else(cut: int) -> None:
    reader = tfevents.Scalars(with_media=True)
    data = events()
    kept = []
    for begin, end in tfevents.read_records(data).spans:
        torn = memoryview(data)[begin : max(begin, end - cut)]
        try:
            kept.append(reader.read(torn))
        except (ValueError, ArithmeticError, LookupError):
            continue
        except Exception as error:
            raise AssertionError(f"a reader of files of others may not raise {error!r}") from error
