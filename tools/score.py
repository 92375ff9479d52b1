"""How often the diagnosis is right: labelled logs, golden cases and provoked failures. Run by `make score`.

    python tools/score.py [--cases FOLDER] [--no-provoke] [--verbose]

A folder of cases holds one JSON file each: `{streams: [{name text}] label class evidence exit_code signal
first_rank}`; label `none` marks a log of a job that did not fail.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from headway.diagnose.causes import NEVER, cause_of  # noqa: E402
from headway.diagnose.evidence import Evidence  # noqa: E402
from headway.diagnose.reader import read_stream  # noqa: E402
from headway.diagnose.runner import Diagnosis, diagnose  # noqa: E402
from tests.diagnose_cases import Case, golden_cases  # noqa: E402
from tests.provoke.failures import FAILURES  # noqa: E402
from tests.provoke.run import is_possible, provoke  # noqa: E402

SURE = 0.8


@dataclass(slots=True)
class Score:
    name: str
    cases: int = 0
    failed_jobs: int = 0
    right: int = 0
    wrong_and_sure: int = 0
    unknown: int = 0
    sure: int = 0
    evidence_asked: int = 0
    evidence_right: int = 0
    rank_asked: int = 0
    rank_right: int = 0
    clean: int = 0
    clean_quiet: int = 0
    retry_refused: int = 0
    mistakes: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield f"{self.name}: {self.cases} cases"
        yield f"  root cause right         {_share(self.right, self.cases)}"
        yield f"  wrong and sure (>= {SURE})  {_share(self.wrong_and_sure, self.cases)}"
        yield f"  sure and right           {_share(self.sure - self.wrong_and_sure, self.sure)}"
        yield f"  unknown                  {_share(self.unknown, self.failed_jobs)}"
        yield f"  first evidence line      {_share(self.evidence_right, self.evidence_asked)}"
        yield f"  failing rank             {_share(self.rank_right, self.rank_asked)}"
        yield f"  clean logs left alone    {_share(self.clean_quiet, self.clean)}"
        yield f"  retry wrongly refused    {self.retry_refused}"


def _share(part: int, whole: int) -> str:
    return f"{part}/{whole} ({part / whole:.1%})" if whole else "-"


def json_cases(folder: Path) -> Iterator[Case]:
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        yield Case(
            path.stem,
            found["label"],
            found["exit_code"],
            found["signal"],
            found.get("first_rank"),
            found.get("evidence") or "",
            [(stream["name"], stream["text"]) for stream in found["streams"]],
        )


def provoked() -> Iterator[Case]:
    for failure in FAILURES:
        if not is_possible(failure):
            print(f"provoke/{failure.name} is left out: it needs {failure.needs}", file=sys.stderr)
            continue
        case = provoke(failure)
        if case is not None:
            yield case


def ask(case: Case) -> Diagnosis:
    streams = [read_stream(name, [text.encode()]) for name, text in case.streams]
    return diagnose(Evidence(streams=streams, exit_code=case.exit_code, signal=case.signal))


def count(name: str, cases: Iterable[Case]) -> Score:
    score = Score(name)
    for case in cases:
        score.cases += 1
        _count_one(score, case, ask(case))
    return score


def _count_one(score: Score, case: Case, found: Diagnosis) -> None:
    best = found.findings[0] if found.findings else None
    said = best.cause if best else "none"
    right = said == case.label
    score.right += right
    if best is not None and best.confidence >= SURE:
        score.sure += 1
        score.wrong_and_sure += not right
    if not right:
        sure = f" at {best.confidence:.2f}" if best else ""
        score.mistakes.append(f"{case.name}: {case.label}, said {said}{sure}")
    if case.label == "none":
        score.clean += 1
        score.clean_quiet += best is None
        return
    score.failed_jobs += 1
    score.unknown += best is None
    if case.evidence and best is not None:
        score.evidence_asked += 1
        shown = " ".join(str(best.evidence[0]["text"]).split())
        wanted = " ".join(case.evidence.split())
        fits = wanted in shown or shown in wanted
        score.evidence_right += fits
        if not fits and right:
            score.mistakes.append(
                f"{case.name}: the evidence is {wanted[:80]!r}, showed {shown[:80]!r}"
            )
    if case.rank is not None:
        score.rank_asked += 1
        fits = best is not None and best.rank == case.rank
        score.rank_right += fits
        if not fits:
            score.mistakes.append(
                f"{case.name}: rank {case.rank}, said {best.rank if best else None}"
            )
    if (
        best is not None
        and cause_of(best.cause).retry == NEVER
        and cause_of(case.label).retry != NEVER
    ):
        score.retry_refused += 1


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    reader.add_argument("--cases", type=Path, default=os.environ.get("FAILURES"))
    reader.add_argument("--no-provoke", action="store_true")
    reader.add_argument("--verbose", action="store_true")
    asked = reader.parse_args()
    scores = [count("golden logs", golden_cases())]
    if asked.cases and Path(asked.cases).is_dir():
        scores.append(count(f"labelled logs of {asked.cases}", json_cases(Path(asked.cases))))
    if not asked.no_provoke:
        scores.append(count("provoked failures", provoked()))
    for score in scores:
        print("\n".join(score.lines()))
        for mistake in score.mistakes:
            print(f"    {mistake}")
    return 0 if all(score.right >= 0.95 * score.cases for score in scores) else 1


if __name__ == "__main__":
    sys.exit(main())
