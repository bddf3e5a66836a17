"""Tuning: which settings would have served what a run recorded best, and whether that is sure.

Decides what is tried (as it is set, each strategy, then half and double of each setting of the
best) and on what: stretches spread over the recorded time, each under several seeds, the same for
all. What is chosen is shown anew under seeds that it was not chosen by; only that counts. The same
input gives the same answer with any number of processes, and as tasks of Spark. Source: ours.
"""

import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from jobs.console import CommandError, MisuseError, first_line
from jobs.operating.backtesting import AS_SET, MINUTE_MS, Past, Recorded, make_past, the_end
from jobs.operating.durations import format_instant
from jobs.operating.many_runs import SideBySide
from jobs.operating.simulations import STRATEGIES, config_of, note_wrong
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.model.times import duration
from lbcore.plan.shed.registry import SHEDDERS
from lbcore.sim.engine.rehearsal import Tell, run_scenario
from lbcore.sim.judge.measures import measure_named
from lbcore.sim.judge.possible import beside_bound
from lbcore.sim.reports.tuning import (
    MOVE_PRICE,
    Gain,
    as_text,
    gain,
    imbalance_cost,
    is_tuned,
    move_cost,
    steps,
)
from lbcore.sim.scenario.model import Scenario

INTERVALS_MIN = 10
_MEASURED = ("floor_adjusted.mean", "floor_adjusted.p95", "moves", "thrash")
FIGURES = ("cost", *_MEASURED, "imbalance.mean", "bound.mean", "over_bound.mean")
"""Of a run, by name; `Trial.mean` has them."""
_TITLES = ("cost", "floor mean", "floor p95", "moves", "thrash", "imb mean", "bound", "over")
_WIDE = 60

_FIRST_SEED = 1

Cell = tuple[int, int]
"""A stretch's number, and a seed."""
_Ran = tuple["Task", dict[str, float]]
"""What was run, and its figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A candidate, by its assignments, on a cell: what is run by itself."""

    assignments: tuple[str, ...]
    cell: Cell

    def __str__(self) -> str:
        """As a message has it."""
        number, seed = self.cell
        return f"{' '.join(self.assignments) or AS_SET} on stretch {number + 1}, seed {seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is searched. price: points of a percent of the bundles in an hour.

    rounds: of steps from the best strategy's settings, 0 = strategies alone. given: assignments
    for all.
    """

    base: Config
    given: tuple[str, ...] = ()
    price: float = MOVE_PRICE
    rounds: int = 2
    seeds: int = 2

    def words(self, assignments: Sequence[str]) -> tuple[str, ...]:
        """A candidate's assignments with those for all, which stand."""
        return (*assignments, *self.given)


@dataclass(slots=True)
class Trial:
    """A candidate: its name, its assignments, and what each cell came to."""

    name: str
    assignments: tuple[str, ...] = ()
    cells: dict[Cell, Mapping[str, float]] = field(default_factory=dict)

    def has(self, cells: Sequence[Cell]) -> bool:
        """Whether it was run on all of these."""
        return all(cell in self.cells for cell in cells)

    def costs(self, cells: Sequence[Cell]) -> list[float]:
        """In points, of these cells."""
        return [self.cells[cell]["cost"] for cell in cells]

    def total(self, cells: Sequence[Cell]) -> float:
        """The sum of the costs."""
        return sum(self.costs(cells))

    def mean(self, name: str, cells: Sequence[Cell]) -> float:
        """Of a figure, over these cells."""
        return sum(self.cells[cell][name] for cell in cells) / len(cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What was found. trials: by cost under the seeds of the search. best: None = as it is set.

    shown: the gain under other seeds; None when nothing was to be shown. is_cut: Ctrl-C ended it.
    """

    trials: Sequence[Trial]
    cells: Sequence[Cell]
    best: Trial | None
    shown: Gain | None
    is_cut: bool = False

    @property
    def is_better(self) -> bool:
        """Whether what was found is more than noise."""
        return self.shown is not None and self.shown.is_real


def stretches(recorded: Recorded, last_ms: int, longest_ms: int, wanted: int) -> list[Past]:
    """So many stretches of at most longest_ms, spread evenly over the time; one is its end.

    Fewer where they would have fewer than INTERVALS_MIN intervals. Raises CommandError when there
    is nothing to make one of, MisuseError when longest_ms is too short for that.
    """
    rows = the_end(recorded, last_ms)
    times = sorted({int(row["minute_ms"]) for row in rows})
    length_ms = times[-1] - times[0] + MINUTE_MS if times else 0
    fitting = max(1, min(wanted, len(times) // INTERVALS_MIN))
    each_ms = min(longest_ms, length_ms // fitting)
    if each_ms >= length_ms:
        return [make_past(recorded, last_ms, _FIRST_SEED)]
    found = []
    for number in range(1, fitting + 1):
        share = (number - 1) / (fitting - 1) if fitting > 1 else 1.0
        from_ms = times[0] + round(share * (length_ms - each_ms))
        part = [row for row in rows if from_ms <= row["minute_ms"] < from_ms + each_ms]
        if len({row["minute_ms"] for row in part}) >= INTERVALS_MIN:
            found.append(make_past(replace(recorded, rows=part), 0, _FIRST_SEED))
    if not found:
        step = duration(length_ms // len(times))
        raise MisuseError(
            f"stretches of {duration(each_ms)} are too short to be balanced again",
            why=f"load was recorded every {step}, and {INTERVALS_MIN} intervals are needed",
            next_step="give a longer --stretch, or fewer --stretches",
        )
    return found


def tune(pasts: Sequence[Past], search: Search, beside: SideBySide) -> Tuned:
    """Search, and show anew what was found. O(candidates × stretches × seeds) runs.

    Raises MisuseError for settings that can't be used at all, CommandError for a run that failed.
    """
    config_of(pasts[0].scenario, "", search.words(()), search.base)
    cells = _cells(pasts, range(_FIRST_SEED, _FIRST_SEED + search.seeds))
    runner = _Runner(pasts, search, beside)
    present = Trial(AS_SET)
    trials = [present, *runner.strategies()]
    runner.run(trials, cells)
    if not present.has(cells):
        return Tuned(trials=[], cells=cells, best=None, shown=None, is_cut=True)
    best = min(_whole(trials, cells), key=lambda one: one.total(cells))
    for _ in range(search.rounds):
        tried = runner.steps_from(best, {one.assignments for one in trials})
        runner.run(tried, cells)
        trials += tried
        done = _whole(tried, cells)
        next_best = min(done, key=lambda one: one.total(cells), default=best)
        if not gain(best.costs(cells), next_best.costs(cells)).is_real:
            break
        best = next_best
    found = None if best is present else best
    shown = None if found is None else _show(runner, present, found, search)
    ranked = sorted(_whole(trials, cells), key=lambda one: one.total(cells))
    return Tuned(trials=ranked, cells=cells, best=found, shown=shown, is_cut=runner.is_cut)


def _whole(trials: Sequence[Trial], cells: Sequence[Cell]) -> list[Trial]:
    return [one for one in trials if one.has(cells)]


def _cells(pasts: Sequence[Past], seeds: range) -> list[Cell]:
    return [(number, seed) for number in range(len(pasts)) for seed in seeds]


def _show(runner: "_Runner", present: Trial, found: Trial, search: Search) -> Gain | None:
    """The gain under as many seeds that the search has not seen."""
    first = _FIRST_SEED + search.seeds
    others = _cells(runner.pasts, range(first, first + search.seeds))
    runner.run([present, found], others)
    if not (present.has(others) and found.has(others)):
        return None
    return gain(present.costs(others), found.costs(others))


def _key(assignment: str) -> str:
    return assignment.partition("=")[0].strip()


class _Runner:
    """Runs candidates on cells, side by side."""

    def __init__(self, pasts: Sequence[Past], search: Search, beside: SideBySide) -> None:
        self.pasts, self._search, self._beside = pasts, search, beside
        self.is_cut = False

    def strategies(self) -> list[Trial]:
        """Each strategy with its defaults and the placement that suits it."""
        found = []
        for record in SHEDDERS:
            own = [one for one in record.entries() if is_tuned(one)]
            usual = tuple(f"{one.key}={as_text(one.default)}" for one in own)
            words = (*STRATEGIES[record.name], *usual)
            if self._can_be(words):
                found.append(Trial(record.name, words))
        return found

    def steps_from(self, best: Trial, tried: Collection[tuple[str, ...]]) -> list[Trial]:
        """The best with one setting of its strategy changed."""
        search = self._search
        config = parse_assignments(search.base, search.words(best.assignments))
        record = next((one for one in SHEDDERS if one.name == config.shedding.strategy), None)
        given, found = {_key(one) for one in search.given}, []
        for step in steps(config, record) if record else ():
            kept = tuple(one for one in best.assignments if _key(one) != _key(step))
            assignments = (*kept, step)
            is_new = assignments not in tried and _key(step) not in given
            if is_new and self._can_be(assignments):
                begin = "" if best.name == AS_SET else f"{best.name} "
                found.append(Trial(f"{begin}{step}", assignments))
        return found

    def _can_be(self, assignments: Sequence[str]) -> bool:
        """Whether the settings suit each other."""
        words = self._search.words(assignments)
        try:
            config_of(self.pasts[0].scenario, "", words, self._search.base)
        except MisuseError:
            return False
        return True

    def run(self, trials: Sequence[Trial], cells: Sequence[Cell]) -> None:
        """Fill in what is missing; nothing after Ctrl-C."""
        wanted = [Task(assignments=one.assignments, cell=cell) for one in trials for cell in cells]
        if self.is_cut or not wanted:
            return
        base = replace(self._search.base, own={})
        work = partial(_run_task, tuple(self.pasts), replace(self._search, base=base))
        runs = self._beside(work)
        by_settings = {one.assignments: one for one in trials}
        ran: _Ran
        for ran in runs.results(wanted):
            task, figures = ran
            by_settings[task.assignments].cells[task.cell] = figures
        self.is_cut = runs.is_cut


def _run_task(pasts: Sequence[Past], search: Search, task: Task, tell: Tell) -> _Ran | None:
    """The outermost step of a run, wherever that is: what goes wrong gets the candidate's name."""
    number, seed = task.cell
    scenario = replace(pasts[number].scenario, seed=seed)
    try:
        config = config_of(scenario, "", search.words(task.assignments), search.base)
        figures = _figures(scenario, config, search.price, tell)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        alone = "".join(f" --set {word}" for word in task.assignments)
        raise CommandError(
            f"the run of {task} failed",
            why=f"{type(error).__name__}: {first_line(error)} "
            f"({Path(place.filename).name}, line {place.lineno})",
            next_step=f"`ballast backtest --strategy as-set{alone}` runs it alone; nothing was set",
        ) from error
    return None if figures is None else (task, figures)


def _figures(
    scenario: Scenario, config: Config, price: float, tell: Tell
) -> dict[str, float] | None:
    """What a run came to; None: it was given up."""
    done = note_wrong(run_scenario(scenario, config, tell))
    if done.is_cut:
        return None
    measured = {name: measure_named(done, name) for name in _MEASURED}
    bundles = sum(space.bundles for space in scenario.namespaces)
    cost = imbalance_cost(measured["floor_adjusted.mean"]) + move_cost(
        measured["moves"] or 0.0, bundles, scenario.run_ms, price
    )
    beside = beside_bound(done)
    measured |= {
        "imbalance.mean": beside.imbalance,
        "bound.mean": beside.bound,
        "over_bound.mean": beside.over,
    }
    return {"cost": cost, **{name: value or 0.0 for name, value in measured.items()}}


def lines(pasts: Sequence[Past], tuned: Tuned, search: Search, shown: int) -> Iterator[str]:
    """For people: what was tried on what, the best first, and what to do."""
    first, last = pasts[0].history.intervals[0], pasts[-1].history.intervals[-1]
    each = duration(max(past.recording.length_ms for past in pasts))
    yield (
        f"{len(pasts)} stretches of {each} between {format_instant(first.at_ms)} and "
        f"{format_instant(last.at_ms)}, {search.seeds} seeds each"
    )
    yield (
        "cost: percent of the most loaded broker above what nobody can avoid, in the mean, and "
        f"{search.price:g} a percent of the bundles that moves in an hour"
    )
    yield (
        "bound: no assignment of whole bundles has a lower imbalance (imb, highest over mean); "
        "over: the imbalance over it"
    )
    yield f"{'':{_WIDE}}" + "".join(f"{title:>11}" for title in _TITLES)
    cells = tuned.cells
    present = next((one for one in tuned.trials if one.name == AS_SET), None)
    best = tuned.trials[:shown]
    for trial in best if present is None or present in best else [*best, present]:
        figures = [trial.mean(name, cells) for name in FIGURES]
        yield f"{trial.name:{_WIDE}}" + "".join(f"{one:>11.2f}" for one in figures)
    yield from _against_bound(tuned, present)
    yield verdict(tuned)


def _against_bound(tuned: Tuned, present: Trial | None) -> Iterator[str]:
    """What is set, what was found, and what nobody can beat, in a sentence."""
    if present is None:
        return
    said = [
        f"{one.mean('imbalance.mean', tuned.cells):.2f} {words}, "
        f"{one.mean('over_bound.mean', tuned.cells) - 1.0:.0%} over the bound"
        for one, words in ((present, "as set"), (tuned.best, "with what was found"))
        if one is not None
    ]
    bound = present.mean("bound.mean", tuned.cells)
    yield f"imbalance: {'; '.join(said)} (nobody is below {bound:.2f})"


def verdict(tuned: Tuned) -> str:
    """The answer in a sentence."""
    if tuned.is_cut:
        return "ended early: nothing follows from it"
    if tuned.best is None or tuned.shown is None:
        return "nothing that was tried is better than what is set: keep it"
    points, noise = tuned.shown.points, tuned.shown.noise
    of = f"{points:.2f} points cheaper than what is set, ± {noise:.2f}, under seeds that it was not"
    if not tuned.is_better:
        return f"noise: {tuned.best.name} is {of} chosen by. Keep what is set"
    return f"better: {tuned.best.name} is {of} chosen by; --out writes it as an overlay"
