"""Proof that a refactoring changes no decision: records effects, and compares them later.

`python -m tests.oracle record FOLDER` before a change, `check FOLDER` after it. A case is a
scenario with a strategy and a seed, a seeded story of the virtual job, or a file of conformance
vectors. Its recording has the rows of each committed batch, and the report with the trace's hash.
`check` prints the first difference of each case that differs, and exits 1. The real Kafka, Spark
and Delta are not part of it: tests/integration/test_job.py replays their log.

`--size small` takes a minute of two cores, `usual` about six, `whole` runs every scenario with
every strategy. `--only TEXT` selects cases by name. `--ignore TEXT` leaves out each key of rows
that begins so, wherever it stands: for changes that are meant.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any
from unittest import mock

from jobs.operating.simulations import STRATEGIES, config_of, load_scenarios
from lbcore.balancer.effects import Effect
from lbcore.sim.engine.job import Job, UncommittedBatch
from lbcore.sim.engine.scenario_run import run_scenario
from lbcore.sim.reports.report import judge_all, render
from tests.conformance.runner import difference, read_cases
from tests.support.worlds.stories import tell

ROOT = Path(__file__).parents[1]
SCENARIOS = ROOT / "conf" / "scenarios"
VECTORS = ROOT / "tests" / "conformance" / "cases"
SHORT = ("g05", "g10", "g11", "g12", "g14", "g16", "g17", "g20", "g23")
"""Scenarios of less than three seconds."""
STORY_STEPS = 8
IGNORED = ("config_version",)
IGNORED_TABLES = ("settings_in_force",)
"""A removed setting changes these, and they decide nothing."""
SIZES: dict[str, tuple[Sequence[str], int]] = {
    "small": ((), 4),
    "usual": (("avg", "ballast"), 20),
    "whole": (tuple(STRATEGIES), 60),
}
"""Strategies beside the scenario's own, and the number of stories."""
SHOWN = 400


def case_names(size: str) -> list[str]:
    """The cases of a size; long ones first, so that all cores end together."""
    strategies, stories = SIZES[size]
    names = []
    for path in sorted(SCENARIOS.rglob("*.scenario")):
        is_short = path.name.startswith(SHORT)
        if size == "whole" or is_short or (size == "usual" and path.parent == SCENARIOS):
            others = strategies if size == "whole" or is_short else ()
            seeds = (0, 1) if size == "whole" else (0,)
            name = path.relative_to(SCENARIOS)
            names += [f"scenario|{name}|{one}|{seed}" for one in ("", *others) for seed in seeds]
    names += [f"story|{seed}|{restarts}" for seed in range(stories) for restarts in (0, 1)]
    return [
        *names,
        *(f"vectors|{p.relative_to(VECTORS)}" for p in sorted(VECTORS.rglob("*.jsonl"))),
    ]


def lines_of(case: str, ignored: Sequence[str]) -> list[str]:
    """What a case comes to, as lines of JSON."""
    kind, *words = case.split("|")
    found: list[str] = []
    with _recorded(found, ignored):
        {"scenario": _scenario, "story": _story, "vectors": _vectors}[kind](found, *words)
    return found


def _scenario(found: list[str], name: str, strategy: str, seed: str) -> None:
    (loaded,) = load_scenarios([str(SCENARIOS / name)])
    scenario = replace(loaded.scenario, seed=loaded.scenario.seed + int(seed))
    run = run_scenario(scenario, config_of(scenario, strategy, ()))
    found.append(json.dumps({"report": render(run, judge_all(run))}))


def _story(_found: list[str], seed: str, restarts: str) -> None:
    tell(int(seed), STORY_STEPS, restarts_often=restarts == "1")


def _vectors(found: list[str], name: str) -> None:
    found += [json.dumps([case["id"], difference(case)]) for case in read_cases(VECTORS / name)]


@contextmanager
def _recorded(found: list[str], ignored: Sequence[str]) -> Iterator[None]:
    """Append a line for each kind of effect of each batch that is committed meanwhile."""
    commit = Job._commit  # noqa: SLF001 the one place where every virtual job commits

    def recorded(job: Job, batch: UncommittedBatch) -> None:
        found.extend(
            _line(batch.now_ms, effect, ignored)
            for effect in batch.effects
            if effect.kind not in IGNORED_TABLES
        )
        commit(job, batch)

    with mock.patch.object(Job, "_commit", recorded):
        yield


def _line(now_ms: int, effect: Effect, ignored: Sequence[str]) -> str:
    rows = [_without(row, ignored) for row in effect.rows]
    return json.dumps([now_ms, effect.kind, rows], default=repr, sort_keys=True)


def _without(value: Any, ignored: Sequence[str]) -> Any:
    if isinstance(value, str) and value.startswith("{"):
        try:
            return _without(json.loads(value), ignored)
        except ValueError:
            return value
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if not str(k).startswith(tuple(ignored))}
        return {str(key): _without(inner, ignored) for key, inner in kept.items()}
    if isinstance(value, list | tuple):
        return [_without(inner, ignored) for inner in value]
    return value


def record(folder: Path, ignored: Sequence[str], case: str) -> str:
    """Write a case's recording; says how many lines it has."""
    lines = lines_of(case, ignored)
    with gzip.open(_file(folder, case), "wt", compresslevel=1) as file:
        file.writelines(f"{line}\n" for line in lines)
    return f"recorded {case}: {len(lines)} lines"


def check(folder: Path, ignored: Sequence[str], case: str) -> str:
    """Say where a case first differs from its recording; "" = nowhere."""
    if not _file(folder, case).exists():
        return f"{case} is not recorded in {folder}"
    found = lines_of(case, ignored)
    with gzip.open(_file(folder, case), "rt") as file:
        recorded = (json.loads(line) for line in file)
        expected = [_again(line, ignored) for line in recorded if not _is_ignored(line)]
        for number, (old, new) in enumerate(zip_longest(expected, found, fillvalue=""), start=1):
            if old != new:
                return f"{case} differs in line {number}:\n{_shown(old, new)}"
    return ""


def _is_ignored(line: Any) -> bool:
    return isinstance(line, list) and line[1] in IGNORED_TABLES


def _again(line: Any, ignored: Sequence[str]) -> str:
    """A recorded line without what is ignored now."""
    return json.dumps(_without(line, ignored), sort_keys=True)


def _shown(old: str, new: str) -> str:
    """Both lines around the first character that differs."""
    pairs = enumerate(zip_longest(old, new))
    at = next((number for number, (one, other) in pairs if one != other), 0)
    begin = max(0, at - SHOWN // 2)
    parts = [line[:60] + " ... " + line[begin : at + SHOWN // 2] for line in (old, new)]
    return f"  expected {parts[0]}\n  found    {parts[1]}"


def _file(folder: Path, case: str) -> Path:
    return folder / (case.replace("/", "_").replace("|", " ") + ".jsonl.gz")


def main(arguments: Sequence[str]) -> int:
    """Record or check; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("record", "check"))
    parser.add_argument("folder", type=Path, help="the recordings, outside of the repository")
    parser.add_argument("--size", choices=tuple(SIZES), default="usual")
    parser.add_argument("--only", default="", help="part of a case's name")
    parser.add_argument("--ignore", action="append", default=[], help="beginning of a row's key")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args(arguments)
    args.folder.mkdir(parents=True, exist_ok=True)
    cases = [name for name in case_names(args.size) if args.only in name]
    do = record if args.mode == "record" else check
    work: Callable[[str], str] = partial(do, args.folder, (*IGNORED, *args.ignore))
    differences = 0
    with ProcessPoolExecutor(args.processes) as pool:
        for said in filter(None, pool.map(work, cases)):
            differences += args.mode == "check"
            sys.stdout.write(f"{said}\n")
    sys.stdout.write(f"{len(cases)} cases, {differences} differ\n")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
