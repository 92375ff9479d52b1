"""Where a job goes: `-c NAME`, the remembered default, or the emptiest cluster (capability 51).
Called by `submission`.

The definition of the cluster goes with the job: the server does not read this project's
`headway.yaml`.
"""

from typing import TYPE_CHECKING

from headway.model.errors import RefusedError, UsageError
from headway.model.json_types import JsonMapping, JsonObject
from headway.views.api.source import Source
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt

if TYPE_CHECKING:
    from headway.settings.layers import Settings


def choose(
    source: Source, call: Call, settings: "Settings", name: str, spec: JsonMapping
) -> JsonObject:
    """`cluster` and `definition` of a JobSpec. `spec` is what the job asks for, so that it fits
    where it goes.
    """
    from headway.settings.clusters import AUTO, resolve

    if call.get("place"):  # `hw simulate` has chosen it
        return dict(call.get("place"))
    configured = settings.get("clusters")
    if name != AUTO:
        return {"cluster": name, "definition": resolve(name, configured)}
    found = survey(source, configured, spec)
    best = emptiest(found, on_gpus=bool(spec.get("processes")))
    err = call.terminal.err
    for line in _reasons(found, best):
        call.terminal.say(f"hw: {err.safe(line)}")
    if best is None:
        raise RefusedError(
            "-c auto: no cluster can take this job now", "hw clusters -v shows what each one has"
        )
    return {"cluster": best["name"], "definition": resolve(best["name"], configured)}


def unused_image(call: Call, spec: JsonMapping) -> list[str]:
    """A job file may name an image for some clusters and go to another, which is told; one that was
    typed is meant.
    """
    from headway.settings.clusters import LOCAL, TABLES

    engine, cluster = spec["definition"].get("engine", LOCAL), spec["cluster"]
    images = [spec.get("image"), *(role.get("image") for role in spec.get("roles") or [])]
    image = next(filter(None, images), None)
    if image is None or call.get("place") or "image" in TABLES[engine].options:
        return []
    if call.get("image"):
        raise UsageError(
            f"--image {image}: the cluster {cluster} ({engine}) runs no containers",
            "hw clusters lists those that do; one is named by -c, for example: {box: {engine: docker}}",
        )
    return [f"the image {image} is not used: the cluster {cluster} ({engine}) runs no containers"]


def survey(
    source: Source, configured: JsonMapping, spec: JsonMapping | None = None
) -> list[JsonObject]:
    """What the server finds out about every cluster; with `spec`, also whether such a job could run
    there.
    """
    from headway.settings.clusters import HERE

    asked = {**({} if HERE in configured else {HERE: {}}), **configured}
    found: list[JsonObject] = source.post(
        "/api/clusters", {"clusters": asked, "spec": dict(spec) if spec else None}, again=True
    )
    return found


def emptiest(found: list[JsonObject], *, on_gpus: bool = False) -> JsonObject | None:
    """Of those that fit: where the fewest wait, then where the largest part is free; the first of
    equals. `on_gpus`: it asks for GPUs, so a cluster that has them free goes before one without.
    """
    fitting = [row for row in found if row["error"] is None and row["refusal"] is None]

    def rank(row: JsonObject) -> tuple[bool, int, bool, float]:
        has_gpus = bool(row["total"].get("gpus")) and bool(row["fits_now"])
        return on_gpus and not has_gpus, row["waiting"], not row["fits_now"], -_free(row)

    return min(fitting, key=rank, default=None)


def _free(row: JsonMapping) -> float:
    """The free part of what is scarce: GPUs where there are some, else cores."""
    for kind in ("gpus", "cpus"):
        if row["total"].get(kind):
            return float(row["free"].get(kind) or 0) / float(row["total"][kind])
    return 0.0


def _reasons(found: list[JsonObject], best: JsonMapping | None) -> list[str]:
    lines = []
    for row in sorted(found, key=lambda row: row is not best):
        if row is best:
            lines.append(f"-c auto takes {row['name']}: {free_words(row)}, {waiting_words(row)}")
        elif row["error"] is not None or row["refusal"] is not None:
            lines.append(f"  not {row['name']}: {row['error'] or row['refusal']}")
        else:
            lines.append(
                f"  not {row['name']}: {free_words(row)}, {waiting_words(row)}; not emptier"
            )
    return lines


def free_words(row: JsonMapping) -> str:
    """`1 of 4 GPUs, 2 of 8 cores free`."""
    total, free = row["total"], row["free"]
    parts = [
        f"{max(0, free[kind])} of {total[kind]} {word}"
        for kind, word in (("gpus", "GPUs"), ("cpus", "cores"))
        if total.get(kind) and free.get(kind) is not None
    ]
    if total.get("memory_bytes") and free.get("memory_bytes") is not None:
        parts.append(f"{fmt.size(max(0, free['memory_bytes']))} memory")
    return f"{', '.join(parts)} free" if parts else "free room not known"


def waiting_words(row: JsonMapping) -> str:
    if not row["waiting"]:
        return "nothing waits"
    return "1 job waits" if row["waiting"] == 1 else f"{row['waiting']} jobs wait"
