"""Scenarios from files, the configuration of a run, and many runs in processes.

Settings of a run are layered: the defaults (or Pulsar's), the scenario's own lines, the
strategy, the command line. Results of many runs come in order, and do not depend on how many run at
a time; Ctrl-C keeps those that are done.
"""

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

from jobs.adapters.delta.recordings import read_recording
from jobs.adapters.processes.paths import shipped
from jobs.adapters.processes.settings import require_loaded, with_custom_strategies
from jobs.atomic_file import read_text_file
from jobs.console import CommandError, MisuseError, cause_message, note
from jobs.parser import argument, whole_number
from lbcore.config.load import parse_assignments
from lbcore.config.placement import LEAST_LONG_TERM_MESSAGE_RATE
from lbcore.config.pulsar_keys import from_pulsar_keys
from lbcore.config.tree import Config
from lbcore.config.values import ConfigError
from lbcore.model.names import did_you_mean
from lbcore.model.times import duration
from lbcore.plan.registry import SHEDDERS
from lbcore.plan.shed.custom import custom_shedding
from lbcore.plan.strategy import Shedding
from lbcore.sim.engine.engine import Run
from lbcore.sim.load.recording import Recording
from lbcore.sim.scenario.model import Scenario
from lbcore.sim.scenario.parse import parse_scenario
from lbcore.sim.scenario.tokens import ScenarioError
from lbcore.validation.check import require_suitable

Result = TypeVar("Result")

_SAID_EACH_S = 10.0
_POLL_S = 0.25
_SHARE_MIN = 0.005
_SECONDS_MAX = 120.0


WORKERS_OPTION = argument(
    "--workers",
    type=whole_number,
    default=os.cpu_count() or 1,
    metavar="N",
    help="processes side by side; the answer is the same with any number",
)
"""Number of processes of `ManyRuns`."""


class ManyRuns(Generic[Result]):
    """Items worked on by several processes. is_cut: whether Ctrl-C ended it early."""

    def __init__(self, work: Callable[[Any], Result], workers: int, what: str = "runs") -> None:
        """work: what is done with an item. workers: from 1; with one it is this process.

        Work runs in other processes: it is a function of a module, or a partial of one, and items
        and results are values.
        """
        self._work, self._workers, self._what = work, workers, what
        self.is_cut = False

    def results(self, items: Sequence[Any], weights: Sequence[float] = ()) -> Iterator[Result]:
        """Yield the result of each item, in their order, as soon as it is known.

        weights: duration of each in proportion to the others; none: all the same. Raises
        CommandError if somebody else ended a process.
        """
        workers = min(self._workers, len(items))
        try:
            if workers > 1:
                with self._until_interrupted():
                    yield from self._beside(items, list(weights) or [1.0] * len(items), workers)
            else:
                yield from map(self._work, items)
        except KeyboardInterrupt:
            self.is_cut = True
        except BrokenProcessPool:
            raise CommandError(
                "a process that ran a simulation was ended from outside",
                why="most often there was not enough memory for all of them",
                next_step="run fewer side by side with --workers",
            ) from None
        if self.is_cut:
            note("stopped: what follows is what was known by then")

    def _beside(
        self, items: Sequence[Any], weights: Sequence[float], workers: int
    ) -> Iterator[Result]:
        before = set(multiprocessing.active_children())
        ignore = (signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
        with ProcessPoolExecutor(workers, initializer=signal.signal, initargs=ignore) as pool:
            futures = [pool.submit(self._work, item) for item in items]
            try:
                yield from self._awaited(futures, weights)
            finally:
                # none is cancelled: the pool, which ends with its processes, would trip over it
                if not all(future.done() for future in futures):
                    for process in set(multiprocessing.active_children()) - before:
                        process.terminate()

    def _awaited(
        self, futures: Sequence["Future[Result]"], weights: Sequence[float]
    ) -> Iterator[Result]:
        """Yield results in order, with progress; after a cut those that are done."""
        began_s = said_s = time.monotonic()
        for future in futures:
            while not (self.is_cut or wait([future], timeout=_POLL_S).done):
                now_s = time.monotonic()
                if now_s - said_s >= _SAID_EACH_S:
                    note(progress_message(futures, weights, self._what, now_s - began_s))
                    said_s = now_s
            if not self.is_cut or future.done():
                yield future.result()

    @contextmanager
    def _until_interrupted(self) -> Iterator[None]:
        """Let Ctrl-C end the waiting, in the main thread; the next one is as usual.

        An exception from anywhere would leave the pool with work that it waits for.
        """

        def interrupted(_number: int, _frame: FrameType | None) -> None:
            self.is_cut = True
            signal.signal(signal.SIGINT, before)

        try:
            before = signal.signal(signal.SIGINT, interrupted)
        except ValueError:  # not the main thread: nobody interrupts it
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def progress_message(
    futures: Sequence["Future[Any]"], weights: Sequence[float], what: str, passed_s: float
) -> str:
    """Return progress, such as 12 of 44 runs, 31%, about 4 min left.

    The rest is estimated from the weights and the time of what is done.
    """
    done = [max(1.0, one) for future, one in zip(futures, weights, strict=True) if future.done()]
    share = sum(done) / sum(max(1.0, one) for one in weights)
    words = f"{len(done)} of {len(futures)} {what}, {share:.0%}"
    if share < _SHARE_MIN:
        return words
    left_s = passed_s * (1.0 - share) / share
    rounded_s = round(left_s) if left_s < _SECONDS_MAX else 60 * round(left_s / 60.0)
    return f"{words}, about {duration(rounded_s * 1_000)} left"


SUFFIX = ".scenario"
_BROKERS_OF_A_BATCH, _BUNDLES_OF_A_BROKER = 10, 50
"""A batch alone costs as much as ten brokers in it, and a broker as much as 50 bundles."""
PULSAR_PREFIX = "pulsar-"
_EXTENSIBLE = (
    "shedding.strategy=transfer",
    "placement.strategy=least_resource_usage_with_weight",
    "filters.pipeline=extensible",
    "signals.history_weight=0",
)
"""Its brokers average every 5 s what they measure, report it or not, and begin anew whenever a
bundle comes or goes; an average over reports, minutes apart, would be far slower than that."""


def settings_with(shedder: Shedding) -> tuple[str, ...]:
    """Return the settings of a shedding strategy: it, and a suitable placement."""
    placement = shedder.name if shedder.plans_destinations else LEAST_LONG_TERM_MESSAGE_RATE
    return f"shedding.strategy={shedder.name}", f"placement.strategy={placement}"


STRATEGIES: dict[str, tuple[str, ...]] = {
    **{shedder.name: settings_with(shedder) for shedder in SHEDDERS},
    "none": ("shedding.is_shedding=false",),
}
"""Name → settings. With pulsar- before it: under Pulsar 4.0.8's defaults, not ours."""

RECOMMENDED: dict[str, tuple[str, ...]] = {
    "extensible": _EXTENSIBLE,
    "extensible-0.1": (*_EXTENSIBLE, "transfer.target_std=0.1"),
    "extensible-1m": (*_EXTENSIBLE, "signals.report_max_interval_ms=60000"),
    "avg-documents": (*STRATEGIES["avg"], "shedding.max_unload_fraction=0.5"),
    "multi-hit": (
        *STRATEGIES["threshold"],
        "shedding.multi_hit=true",
    ),
}
"""Under Pulsar 4.0.8's defaults, with what documents recommend: the extensible load manager, also
with the target deviation of its performance tests, and with a report a minute at least;
AvgShedder's page; the counters with two thresholds proposed for ThresholdShedder before it."""

CONTESTANTS = (
    "ballast",
    "avg",
    "threshold",
    "uniform",
    "transfer",
    "none",
    "pulsar-threshold",
    "extensible",
    "extensible-0.1",
    "avg-documents",
    "multi-hit",
)
"""The strategies that a backtest runs when none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A scenario, the file that it is in, and that file's text."""

    path: Path
    content: str
    scenario: Scenario


def load_scenarios(paths: Iterable[str]) -> list[Loaded]:
    """The scenarios of files and folders, each once, in name order within a folder.

    conf/... that is not there is what came with Ballast.
    Raises MisuseError, which names file and line.
    """
    found = dict.fromkeys(path for given in paths for path in _files(shipped(Path(given))))
    return list(map(_load, found))


def config_of(
    scenario: Scenario, strategy: str, assignments: Sequence[str], ours: Config | None = None
) -> Config:
    """Return the config of a scenario. strategy: a name, "" = as the scenario says.

    ours: the base configuration where it isn't Pulsar's defaults, None = Ballast's.

    Raises MisuseError.
    """
    is_pulsar = scenario.is_pulsar or strategy.startswith(PULSAR_PREFIX) or strategy in RECOMMENDED
    base = from_pulsar_keys({})[0] if is_pulsar else ours or Config()
    try:
        config = parse_assignments(base, scenario.settings)
        config = with_custom_strategies(config, [strategy.removeprefix(PULSAR_PREFIX)])
        config = parse_assignments(config, _settings_of(strategy, config))
        config = with_custom_strategies(parse_assignments(config, assignments))
        return require_suitable(require_loaded(config))
    except ConfigError as error:
        raise MisuseError(
            f"the settings of {scenario.title or 'the scenario'} can't be used",
            why="; ".join(map(str, error.problems)),
            next_step="correct them; `ballast config show` lists every setting with its range",
        ) from None


def note_wrong(done: Run) -> Run:
    """Return the run, after a note on each kind of fault of a custom strategy in it."""
    wrong = Counter((one.reason, one.wrong) for one in done.recorder.decisions if one.wrong)
    for (reason, words), count in sorted(wrong.items()):
        note(f"the strategy decided nothing in {count} cycles ({reason}): {words}")
    return done


def weight_of(scenario: Scenario, config: Config) -> float:
    """Return the relative duration of a run: batches times participants."""
    batches = scenario.run_ms / config.pipeline.trigger_ms
    bundles = sum(space.bundles for space in scenario.namespaces)
    return batches * (_BROKERS_OF_A_BATCH + len(scenario.brokers) + bundles / _BUNDLES_OF_A_BROKER)


def _settings_of(strategy: str, config: Config) -> tuple[str, ...]:
    if not strategy:
        return ()
    if strategy in RECOMMENDED:
        return RECOMMENDED[strategy]
    name = strategy.removeprefix(PULSAR_PREFIX)
    if name in config.own:
        return settings_with(custom_shedding(config.own[name]))
    if name not in STRATEGIES:
        raise MisuseError(
            f"there is no strategy {strategy!r} to simulate",
            why=f"there are {', '.join(STRATEGIES)}, each also as {PULSAR_PREFIX}NAME; and "
            f"{', '.join(RECOMMENDED)}; and of your own: {', '.join(config.own) or 'none'}",
            next_step=did_you_mean(strategy, [*STRATEGIES, *RECOMMENDED, *config.own])
            + "take one of them, name yours as package.module:NAME, or set settings with --set",
        )
    return STRATEGIES[name]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob(f"*{SUFFIX}"))
    if not found:
        raise MisuseError(
            f"{path} has no scenarios",
            why=f"no file in it ends with {SUFFIX}",
            next_step="name a file, or a folder that has some",
        )
    return found


def _load(path: Path) -> Loaded:
    """Read a scenario with its recordings, whose paths are relative to its folder."""
    try:
        content = read_text_file(path)
    except (OSError, ValueError) as cause:
        raise MisuseError(
            f"{path} can't be read",
            why=cause_message(cause),
            next_step="correct the path or its rights",
        ) from None
    try:
        scenario = parse_scenario(content)
    except ScenarioError as error:
        raise MisuseError(
            f"{path}, line {error.line}: {error.what}",
            why=f"expected {error.expected}",
            next_step=error.next_step,
        ) from None
    recordings: dict[str, Recording] = {}
    for load in scenario.loads:
        if not load.file:
            continue
        found = read_recording(path.parent / load.file, load.cluster)
        recordings[load.recording] = found
        if (load.of or load.namespace) not in found.namespaces:
            raise MisuseError(
                f"{path}, line {load.line}: {load.file} has no load of {load.of or load.namespace}",
                why=f"it has {', '.join(sorted(found.namespaces))}",
                next_step="say whose load it is: of=NAMESPACE",
            )
    scenario = replace(scenario, recordings=recordings) if recordings else scenario
    return Loaded(path=path, content=content, scenario=scenario)


def write_text(path: Path, text: str) -> None:
    """Write a file. Raises CommandError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as cause:
        raise CommandError(
            f"{path} can't be written",
            why=cause_message(cause),
            next_step="correct the path or its rights",
        ) from None
