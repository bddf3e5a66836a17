"""What could a forecast of load bring `ballast`? The experiment of docs/forecast.md.

    python -m tests.experiments.forecast [SCENARIO ...] [--hours 12] [--day-before]

Brokers report what a forecast says of the load in a while, in place of what it is now; everything
else is the production balancer, and what is judged is the true load. An *oracle* reads the truth of
the future: no forecast brings more. Without scenarios: drawn days, of waves and of daily jobs.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from jobs.console import note
from jobs.operating.many_runs import ManyRuns
from jobs.operating.simulations import config_of, load_scenarios
from lbcore.sim.engine.engine import Engine, Run
from lbcore.sim.engine.events import plan_happenings
from lbcore.sim.engine.rehearsal import Tell
from lbcore.sim.engine.traffic import Traffic
from lbcore.sim.judge.measures import floor_adjusted_of, measure_named
from lbcore.sim.judge.possible import BAR, what_was_possible
from lbcore.sim.load.load import Floats, LoadField
from lbcore.sim.load.recording import RecordedNamespace, Recording
from lbcore.sim.scenario.model import Scenario
from lbcore.sim.scenario.parse import parse_scenario

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
SETTINGS = (
    # three cycles a minute, and no more signs of life and looks for a change than they need
    "pipeline.trigger_ms=20000",
    "pipeline.decision_interval_ms=20000",
    "pipeline.shed_interval_ms=20000",
    "pipeline.split_interval_ms=20000",
    "pipeline.tick_interval_ms=5000",
    "agent.heartbeat_interval_ms=20000",
    "ownership.broker_timeout_ms=90000",
    "signals.report_check_ms=20000",
)
SEED = 7
DRAWN = ("waves", "office", "jobs")
_FORETOLD = [0, 1, 2, 3, 7]
"""Rates, throughputs and what follows from them; how many topics and clients there are is known."""

Loads: TypeAlias = Callable[[int], Floats]
"""A time → float64[topics, 8], the true load then."""
Forecast: TypeAlias = Callable[[Loads, int], Floats]
"""The loads, of which it may know what its name says, and now → what brokers report."""


def plain(loads: Loads, now_ms: int) -> Floats:
    """What is."""
    return loads(now_ms)


def oracle(lead_ms: int, loads: Loads, now_ms: int) -> Floats:
    """What will be."""
    return loads(now_ms + lead_ms)


def oracle_high(lead_ms: int, loads: Loads, now_ms: int) -> Floats:
    """What is or will be, whichever is more."""
    return np.maximum(loads(now_ms), loads(now_ms + lead_ms))


def oracle_mean(lead_ms: int, loads: Loads, now_ms: int) -> Floats:
    """The mean from now until then, minute by minute."""
    times = range(now_ms, now_ms + lead_ms + 1, MINUTE_MS)
    return np.mean([loads(at_ms) for at_ms in times], axis=0)


def seasonal(lead_ms: int, loads: Loads, now_ms: int) -> Floats:
    """Half what is, half what was a day before the time that is foretold."""
    return 0.5 * loads(now_ms) + 0.5 * loads(now_ms + lead_ms - DAY_MS)


def seasonal_change(lead_ms: int, loads: Loads, now_ms: int) -> Floats:
    """What is, and by what it changed a day before."""
    before_ms = now_ms - DAY_MS
    return np.maximum(0.0, loads(now_ms) + loads(before_ms + lead_ms) - loads(before_ms))


def holt(lead_ms: int, loads: Loads, now_ms: int) -> Floats:
    """Holt's linear trend (0.5, 0.1) over the last two hours, five minutes a step."""
    step_ms, level_part, trend_part = 5 * MINUTE_MS, 0.5, 0.1
    times = [at_ms for at_ms in range(now_ms - 2 * HOUR_MS, now_ms + 1, step_ms) if at_ms >= 0]
    level, trend = loads(times[0]), np.zeros_like(loads(times[0]))
    for at_ms in times[1:]:
        before = level
        level = level_part * loads(at_ms) + (1.0 - level_part) * (level + trend)
        trend = trend_part * (level - before) + (1.0 - trend_part) * trend
    return np.maximum(0.0, level + trend * (lead_ms / step_ms))


LEADS_MS = (MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS)
FORECASTS: Mapping[str, Forecast] = {
    "plain": plain,
    **{f"oracle {ms // MINUTE_MS} min": partial(oracle, ms) for ms in LEADS_MS},
    "oracle 5 min, higher": partial(oracle_high, LEADS_MS[1]),
    "oracle 15 min, mean": partial(oracle_mean, LEADS_MS[2]),
    "Holt 5 min": partial(holt, LEADS_MS[1]),
    "day before 5 min": partial(seasonal, LEADS_MS[1]),
    "day before 5 min, change": partial(seasonal_change, LEADS_MS[1]),
}
WITH_DAY_BEFORE = tuple(name for name in FORECASTS if name.startswith("day before"))


class ForetoldTraffic:
    """What brokers measure: the traffic as a forecast has it, anew each minute."""

    def __init__(self, traffic: Traffic, forecast: Forecast, length_ms: int) -> None:
        """length_ms: of the recording, which begins again: so there is a day before the first."""
        self._traffic, self._forecast, self._length_ms = traffic, forecast, length_ms
        self.true = lru_cache(maxsize=64)(self._true_at)
        self._field = lru_cache(maxsize=2)(self._field_at)

    def step_at(self, now_ms: int) -> int:
        """The number of the minute."""
        return now_ms // MINUTE_MS

    def at(self, now_ms: int) -> LoadField:
        """The field that is measured."""
        return self._field(self.step_at(now_ms))

    def told(self, now_ms: int) -> Floats:
        """float64[topics, 8]: what is measured of each topic."""
        columns = self.true(now_ms).copy()
        columns[:, _FORETOLD] = self._forecast(self.true, now_ms)[:, _FORETOLD]
        return columns

    def _field_at(self, step: int) -> LoadField:
        columns = self.told(step * MINUTE_MS)
        sums = np.zeros((len(columns) + 1, columns.shape[1]))
        np.cumsum(columns, axis=0, out=sums[1:])
        return LoadField(self._traffic.layout, sums)

    def _true_at(self, at_ms: int) -> Floats:
        field = self._traffic.at(at_ms % self._length_ms)
        rows = np.arange(self._traffic.topics)
        return field.located(np.stack((rows, rows + 1), axis=1))


def run_foretold(scenario: Scenario, forecast: Forecast) -> Run:
    """A run whose brokers report what is foretold."""
    engine = Engine(scenario, config_of(scenario, "ballast", SETTINGS))
    plan_happenings(engine)
    traffic = ForetoldTraffic(engine.traffic, forecast, _length_ms(scenario))
    for node in engine.nodes.values():
        around = replace(node._around, traffic=traffic)  # noqa: SLF001 nothing else measures
        node._around = around  # noqa: SLF001 as above
    return engine.run()


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A forecast on a scenario, both by name."""

    scenario: str
    forecast: str


def figures_of(scenarios: Mapping[str, Scenario], trial: Trial, tell: Tell) -> dict[str, Any]:
    """Minutes above the bar, and moves; for `plain`, whose fault the minutes were."""
    del tell
    scenario = scenarios[trial.scenario]
    done = run_foretold(scenario, FORECASTS[trial.forecast])
    values = [floor_adjusted_of(sample) for sample in done.recorder.samples]
    above = sum(value is not None and value > BAR for value in values)
    found = {
        "scenario": trial.scenario,
        "forecast": trial.forecast,
        "above_min": above * scenario.sample_ms // MINUTE_MS,
        "floor_p95": round(measure_named(done, "floor_adjusted.p95") or 0.0, 3),
        "moves": len(done.recorder.moves),
    }
    if trial.forecast == "plain":
        possible = what_was_possible(done)
        for name in ("above_ms", "nobody_ms", "unforeseen_ms", "avoidable_ms"):
            found[f"plain_{name}"] = getattr(possible, name)
    return found


def error_of(scenario: Scenario, forecast: Forecast) -> float:
    """By how much a forecast is wrong of bundles in five minutes, as a part of all load."""
    traffic = ForetoldTraffic(Traffic(scenario), forecast, _length_ms(scenario))
    wrong = whole = 0.0
    for now_ms in range(0, scenario.run_ms, LEADS_MS[1]):
        told, true = traffic.told(now_ms), traffic.true(now_ms + LEADS_MS[1])
        wrong += float(np.abs(told - true)[:, :2].sum())
        whole += float(true[:, :2].sum())
    return wrong / whole


def with_day_before(scenario: Scenario) -> Scenario:
    """Begun a day later: what was a day before comes last in its recording, which is a circle."""
    return replace(
        scenario,
        recordings={name: _begun_later(one) for name, one in scenario.recordings.items()},
    )


def _begun_later(recording: Recording) -> Recording:
    first = recording.interval_at(DAY_MS)
    return replace(
        recording,
        namespaces={
            name: replace(space, rates=np.roll(space.rates, -first, axis=0))
            for name, space in recording.namespaces.items()
        },
    )


def drawn(name: str, days: int = 3) -> Scenario:
    """Days that repeat but for noise: 96 bundles on 8 brokers, a value a minute.

    waves: each bundle swings by four fifths around its own mean, with the hour of its peak.
    office: each carries five times as much for eight hours, begun at a full hour, within 20
    minutes. jobs: a third of them do for half an hour, at a time of their own, to the minute.
    """
    rng = np.random.default_rng(SEED)
    bundles, minutes = 96, days * 1_440
    at = np.arange(minutes)[:, np.newaxis]
    base = rng.lognormal(0.0, 0.6, bundles)
    hour = rng.integers(0, 24, bundles) * 60
    if name == "waves":
        rates = base * (1.0 + 0.8 * np.sin(2.0 * np.pi * (at - hour) / 1_440.0))
    elif name == "office":
        since = (at - hour) % 1_440
        rates = base * (1.0 + 4.0 * np.clip(np.minimum(since, 500 - since) / 20.0, 0.0, 1.0))
    else:
        begins = rng.integers(0, 1_440, bundles)
        is_on = ((at - begins) % 1_440 < 30) & (np.arange(bundles) % 3 == 0)
        rates = base * np.where(is_on, 5.0, 1.0)
    rates = rates * rng.normal(1.0, 0.05, (minutes, bundles)).clip(0.5, 1.5)
    text = f"title {name}\nbrokers 8\nnamespace t/n bundles={bundles} topics=1\nown t/n all all\n"
    text += "load t/n replay 45% file=drawn\nrun 1d sample=1m\n"
    scenario = parse_scenario(text)
    edges = np.array(scenario.namespaces[0].edges, dtype=np.int64)
    space = RecordedNamespace(
        edges=edges,
        rates=np.stack([rates / 2, rates / 2, rates * 0, rates * 0], axis=2) * 100.0,
        topics=np.ones(bundles, dtype=np.int64),
    )
    recording = Recording(
        times_ms=np.arange(minutes, dtype=np.int64) * MINUTE_MS, namespaces={"t/n": space}
    )
    return replace(scenario, recordings={scenario.loads[0].recording: recording})


def _given(args: argparse.Namespace) -> dict[str, Scenario]:
    if not args.scenarios:
        names = args.only.split(",") if args.only else DRAWN
        return {name: with_day_before(drawn(name)) for name in names}
    found = {one.path.stem: one.scenario for one in load_scenarios(args.scenarios)}
    return {name: with_day_before(one) if args.day_before else one for name, one in found.items()}


def _length_ms(scenario: Scenario) -> int:
    """Of its recording."""
    return max(one.length_ms for one in scenario.recordings.values())


def _shortened(scenario: Scenario, hours: float) -> Scenario:
    """So long at most, and over before an oracle would look beyond the recording's end."""
    length_ms = _length_ms(scenario) - max(LEADS_MS)
    run_ms = min(scenario.run_ms, length_ms, round(hours * HOUR_MS) or scenario.run_ms)
    return replace(scenario, run_ms=run_ms, expectations=())


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Scenario by scenario: minutes and moves of each forecast, and against plain."""
    lines = []
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        own = [row for row in rows if row["scenario"] == scenario]
        base = own[0]
        minutes = {
            name: base[f"plain_{name}_ms"] // MINUTE_MS
            for name in ("above", "nobody", "unforeseen", "avoidable")
        }
        lines.append(f"{scenario}: {minutes} (of imbalance, not floor-adjusted)")
        for row in own:
            change = row["above_min"] / base["above_min"] - 1.0 if base["above_min"] else 0.0
            lines.append(
                f"  {row['forecast']:26}{row['above_min']:6} min {change:+7.0%}"
                f"{row['moves']:7} moves {row['moves'] - base['moves']:+5}"
                f"{row['floor_p95']:9.2f} floor p95"
            )
    return "\n".join(lines)


def main() -> int:
    """Run all, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenarios", nargs="*", help="that replay a recording; none: drawn days")
    parser.add_argument("--hours", type=float, default=0.0, help="of each at most; default all")
    parser.add_argument(
        "--day-before", action="store_true", help="begin a day later, so that there is one before"
    )
    parser.add_argument("--only", default="", help="these drawn days, and no others: waves,jobs")
    parser.add_argument("--forecasts", default="", metavar="A;B", help="these, and plain")
    parser.add_argument("--errors", action="store_true", help="how wrong forecasts are, no runs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, help="file for the figures as JSON")
    args = parser.parse_args()
    scenarios = {name: _shortened(one, args.hours) for name, one in _given(args).items()}
    knows_day = args.day_before or not args.scenarios
    wanted = {"plain", *(args.forecasts.split(";") if args.forecasts else FORECASTS)}
    if not knows_day:
        wanted -= set(WITH_DAY_BEFORE)
    names = [name for name in FORECASTS if name in wanted]
    if args.errors:
        for name, scenario in scenarios.items():
            found = {one: f"{error_of(scenario, FORECASTS[one]):.1%}" for one in names}
            sys.stdout.write(f"{name}: {found}\n")
        return 0
    trials = [Trial(scenario=one, forecast=name) for one in scenarios for name in names]
    runs: ManyRuns[dict[str, Any]] = ManyRuns(partial(figures_of, scenarios), args.workers)
    rows = []
    for row in runs.results(trials):
        rows.append(row)
        note(json.dumps(row))
    sys.stdout.write(f"{table(rows)}\n")
    if args.output is not None:
        args.output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
