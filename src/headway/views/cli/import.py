"""`hw import PATH…`: runs that other trackers kept become jobs. May be done again: nothing is doubled."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt

SKIPPED_SHOWN = 20


def command(call: Call) -> int:
    if not call.words:
        raise UsageError(
            "hw import needs the path of a folder or file", f"usage: {call.command.usage}"
        )
    paths = [Path(word).expanduser() for word in call.words]
    kind = call.get("from_tracker")
    source, results = call.source(), list[JsonObject]()
    for path in paths:
        if not path.exists():
            raise UsageError(
                f"there is no {path}",
                "give a folder or a file of W&B, MLflow or TensorBoard, or a CSV",
            )
        for run in _read(path, kind):
            from headway.views.importers.upload import upload

            if call.get("experiment"):
                run.experiment = call.get("experiment")
            run.tags += [tag for tag in call.get("tags") or [] if tag not in run.tags]
            done = upload(source, run)
            for name, place in run.artifacts:
                _put_artifact(call, name, place, run.skipped)
            skipped = run.skipped + done.skipped
            results.append({
                "id": done.id, "source": run.source, "name": run.name, "is_new": done.is_new, "points": done.points,
                "skipped": skipped,
            })  # fmt: skip
            if not call.as_json:
                _tell(call, results[-1])
    if call.as_json:
        call.terminal.put_json(results)
    elif len(results) > 1:
        new = sum(1 for result in results if result["is_new"])
        call.terminal.say(f"{len(results)} runs, {new} of them new")
    return 0


def _tell(call: Call, result: JsonObject) -> None:
    out = call.terminal
    out.put(result["id"])
    what = (
        f"{fmt.plural(result['points'], 'point')}"
        if result["is_new"]
        else "was here already; what is new was added"
    )
    out.say(out.err.safe(f"  {result['source']} {result['name']}: {what}"))
    for text in result["skipped"][:SKIPPED_SHOWN]:
        out.say(out.err.safe(f"  skipped  {text}"))
    if len(result["skipped"]) > SKIPPED_SHOWN:
        out.say(f"  skipped  and {len(result['skipped']) - SKIPPED_SHOWN} more; --json has all")


def _read(path: Path, kind: str | None) -> Iterator[Any]:
    """By the first reader that knows what this is, or by the one that was asked for."""
    from headway.views.importers.imported_run import NotThisKind

    for name, reader in _readers():
        if kind is not None and kind != name:
            continue
        try:
            yield from reader(path)
            return
        except NotThisKind as error:
            if str(error):
                raise UsageError(str(error), "hw import --help says what can be read") from None
    found = f"nothing of {kind}" if kind else "nothing of W&B, MLflow or TensorBoard, and no CSV"
    raise UsageError(
        f"{path} holds {found}",
        "give the folder wandb/, mlruns/ or the log folder, or a file in it",
    )


def _readers() -> list[tuple[str, Callable[[Path], Iterator[Any]]]]:
    from headway.views.importers.csv_files import read_csv
    from headway.views.importers.mlflow_files import read_mlflow
    from headway.views.importers.tensorboard_files import read_tensorboard
    from headway.views.importers.wandb_files import read_wandb

    return [
        ("wandb", read_wandb),
        ("mlflow", read_mlflow),
        ("csv", read_csv),
        ("tensorboard", read_tensorboard),
    ]


def _put_artifact(call: Call, name: str, place: str, skipped: list[str]) -> None:
    from headway.model.errors import HeadwayError
    from headway.views.cli.artifacts import put_path
    from headway.views.importers.source_files import is_inside

    def inside(path: Path) -> bool:
        """A link may not bring in a file that never was part of the run."""
        good = is_inside(path, Path(place))
        if not good:
            skipped.append(f"{path}: it is a link that leads out of the folder; not read")
        return good

    clean = "".join(char if char.isalnum() or char in "._-" else "-" for char in name)
    try:
        put_path(call.source(), Path(place), clean, "files", [], inside)
    except (HeadwayError, OSError) as error:
        skipped.append(f"{place}: {error}")
