"""`hw best`: the best job by a metric, and which way was taken as better."""

from headway.model.errors import HeadwayError, UsageError
from headway.model.json_types import JsonObject
from headway.views.api.source import job_route
from headway.views.cli import compare, selection
from headway.views.cli.dispatch import Call
from headway.views.text import comparison, job_text
from headway.views.text import format as fmt
from headway.views.text.terminal import BOLD

_LABEL_CELLS = 12


def command(call: Call) -> int:
    names = call.get("metrics") or []
    if len(names) != 1:
        raise UsageError(
            "hw best decides by one metric" + (f", not {len(names)}" if names else ""),
            "for example: hw best -e EXPERIMENT -m val/acc",
        )
    compare.check(call)
    name = names[0]
    source = call.source()
    answer = compare.ask(call, source)
    wanted = answer["directions"].get(name)  # as asked, as the program defined it, or by its name
    if wanted is None:
        raise UsageError(
            f'the name "{name[:60]}" does not say whether the most or the least is best',
            "say --max or --min",
        )
    last = bool(call.get("final"))
    jobs = comparison.sort(answer, name, last=last)
    with_value = [
        job for job in jobs if comparison.value_of(job["metrics"].get(name), last=last) is not None
    ]
    if not with_value:
        raise HeadwayError(
            f'of {fmt.plural(len(jobs), "job")} none has a value of "{name[:60]}"',
            "hw compare with the same selection shows the metrics that they have",
        )
    failed = [job for job in with_value if job["state"] == "failed"]
    if selection.states_of(call) or call.words or len(failed) == len(with_value):
        failed = []  # they were asked for, or there is nothing else
    valued = [job for job in with_value if job not in failed]
    best = valued[0]
    found = best["metrics"][name]
    value = comparison.value_of(found, last=last)
    metric = {
        "name": name, "value": value, "direction": wanted, "of": len(valued),
        "step": None if last else found["step"],
        "guessed": compare.wanted(call) is None and name not in answer["defined"],
        "left_out": [job["id"] for job in failed],
    }  # fmt: skip
    if call.as_json:
        job: JsonObject = source.get(job_route(best["id"]))
        call.terminal.put_json({**job, "metric": metric})
        return 0
    _show(call, best, metric, answer, valued)
    if failed:
        first = failed[0]
        reached = comparison.value_of(first["metrics"][name], last=last)
        call.terminal.say(
            f"hw: {fmt.plural(len(failed), 'failed job')} not counted, the best of them "
            f"{first['id']} with {fmt.number(reached)}; --state succeeded,failed counts all"
        )
    return 0


def _show(
    call: Call, best: JsonObject, metric: JsonObject, answer: JsonObject,
    valued: list[JsonObject],
) -> None:  # fmt: skip
    out = call.terminal.out
    way = "the most is best" if metric["direction"] == "max" else "the least is best"
    how = "by its name" if metric["guessed"] else "as define_metric says"
    if compare.wanted(call) is not None:
        how = "as you said"
    name = metric["name"]
    at = "" if metric["step"] is None else f" at step {metric['step']}"
    lines = [out.style(out.safe(f"{best['id']}  {best['state']}"), BOLD)]
    said = f"{fmt.number(metric['value'])}{at}, of {fmt.plural(metric['of'], 'job')} ({way}, {how})"
    config = {key: best["config"].get(key) for key in answer["differs"] if key in best["config"]}
    facts = {
        name: said,
        "config": " ".join(
            f"{key}={comparison.config_text(value)}" for key, value in config.items()
        ),
    }
    if len(valued) > 1:
        second = valued[1]
        value = comparison.value_of(second["metrics"][name], last=bool(call.get("final")))
        facts["next"] = f"{second['id']} {fmt.number(value)}"
        facts["more"] = f"hw diff {fmt.suffix(best['id'])} {fmt.suffix(second['id'])}"
    cells = max(_LABEL_CELLS, max(len(label) for label in facts) + 2)
    lines += [
        job_text.fact(out.safe(label), out.safe(text), cells)
        for label, text in facts.items()
        if text
    ]
    out.write("\n".join(lines) + "\n")
