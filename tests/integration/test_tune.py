"""Tuning on tables that the job's own sink has written: a run that nobody balanced."""

import json
from functools import partial
from pathlib import Path

import pytest

from jobs.adapters.delta.table_reader import TableReader
from jobs.cli import main
from jobs.console import MisuseError
from jobs.operating.backtesting import AS_SET, Past, Recorded, read_recorded
from jobs.operating.many_runs import ManyRuns
from jobs.operating.tuning import Search, lines, stretches, tune, verdict
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.sim.load.recording import COLUMNS

QUICK = ("pipeline.trigger_ms=2000",)
BLUNT = ["shedding.avg_low_threshold=900", "shedding.avg_high_threshold=950"]


@pytest.fixture(scope="module")
def pasts(recorded_tables: Path) -> list[Past]:
    return stretches(read_recorded(TableReader(recorded_tables, "local")), 0, 600_000, 1)


@pytest.mark.long
def test_what_never_moves_anything_is_replaced_and_the_gain_shown_anew(pasts: list[Past]) -> None:
    base = parse_assignments(Config(), BLUNT)
    search = Search(base=base, given=QUICK, rounds=0, seeds=3)
    tuned = tune(pasts, search, partial(ManyRuns, workers=2))
    assert tuned.best is not None
    assert tuned.best.name != AS_SET
    assert tuned.shown is not None
    assert tuned.shown.is_real
    assert verdict(tuned).startswith("better: ")
    present = next(one for one in tuned.trials if one.name == AS_SET)
    assert present.mean("moves", tuned.cells) == 0.0
    assert len(present.cells) == 6
    costs = [sum(one.costs(tuned.cells)) for one in tuned.trials]
    assert costs == sorted(costs)
    bounds = {one.mean("bound.mean", tuned.cells) for one in tuned.trials}
    assert len(bounds) == 1  # the load is the same for all, and nobody split
    for one in tuned.trials:
        over = one.mean("over_bound.mean", tuned.cells)
        assert 1.0 <= over <= one.mean("imbalance.mean", tuned.cells)
    best, bound = tuned.best.mean("over_bound.mean", tuned.cells), bounds.pop()
    assert best < present.mean("over_bound.mean", tuned.cells)
    told = next(line for line in lines(pasts, tuned, search, 3) if line.startswith("imbalance: "))
    assert told.endswith(f"{best - 1.0:.0%} over the bound (nobody is below {bound:.2f})")


def test_what_is_set_for_all_stands_in_each_candidate() -> None:
    search = Search(base=Config(), given=("shedding.avg_low_hits=3",))
    config = parse_assignments(search.base, search.words(("shedding.avg_low_hits=8",)))
    assert config.shedding.avg_low_hits == 3


def test_stretches_are_spread_over_the_time_and_too_short_ones_refused() -> None:
    minutes = range(1, 101)
    rows = [
        {
            "broker": broker,
            "minute_ms": minute * 60_000,
            "bundles": [f"t/n/{half}"],
            "topics": [1],
            "percent": [float(minute), 0.0, 0.0, 0.0, 0.0],
            **{key: [10.0 * minute] for key in COLUMNS},
        }
        for minute in minutes
        for broker, half in (("a", "0x00000000_0x80000000"), ("b", "0x80000000_0xffffffff"))
    ]
    recorded = Recorded(place=Path("a file"), rows=rows)

    def found(longest: int, wanted: int) -> list[tuple[int, int]]:
        times = [
            p.recording.times_ms // 60_000 for p in stretches(recorded, 0, longest * 60_000, wanted)
        ]
        return [(int(one[0]), int(one[-1])) for one in times]

    assert found(20, 3) == [(1, 20), (41, 60), (81, 100)]
    assert found(20, 1) == [(81, 100)]
    assert found(500, 1) == [(1, 100)]
    assert found(500, 2) == [(1, 50), (51, 100)]
    with pytest.raises(MisuseError, match="stretches of 5 min are too short"):
        found(5, 3)


@pytest.mark.long
def test_nothing_is_better_where_nothing_may_move(pasts: list[Past]) -> None:
    search = Search(base=Config(), given=(*QUICK, "shedding.is_shedding=false"), rounds=1, seeds=1)
    tuned = tune(pasts, search, partial(ManyRuns, workers=1))
    assert tuned.best is None
    assert "keep it" in verdict(tuned)


@pytest.mark.long
def test_verb_answers_the_same_with_any_number_of_processes_and_writes_an_overlay(
    recorded_tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = []
    for workers in ("1", "2"):
        overlay = tmp_path / f"{workers}.toml"
        words = ["--stretches", "1", "--seeds", "3", "--rounds", "1", "--workers", workers]
        words += ["--set", *QUICK, "--move-price", "0", "--out", str(overlay)]
        assert main(["tune", "--tables", str(recorded_tables), *words, "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]
    assert len(answers[0]["trials"]) > 7
    if answers[0]["is_better"]:
        assert "Written by `ballast tune`" in overlay.read_text()
    else:
        assert not overlay.exists()
