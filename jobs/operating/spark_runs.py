"""Many runs side by side, as tasks of Spark: what `ManyRuns` does, on many machines.

Decides how work gets to the executors and results come back: each item is a task, what all share
is broadcast, and each result arrives with the end of its task, so that Ctrl-C keeps what is known.
What a run comes to does not depend on where it ran. Executors of a cluster get code and packages
from what `make package` made, which must be of the code that runs here. Source: ours.
"""

import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from py4j.protocol import Py4JError
from pyspark import Accumulator, AccumulatorParam, Broadcast, SparkContext
from pyspark.errors import PySparkException

from jobs.adapters.processes.java import use_java_home
from jobs.adapters.processes.own_folder import own_folder
from jobs.adapters.spark.fatal_errors import java_line
from jobs.adapters.spark.stream import spark_session
from jobs.console import CommandError, note
from jobs.operating.many_runs import LOOKED_EACH_S, STOPPED, SideBySide, until_interrupted
from jobs.operating.run_progress import RunProgress
from lbcore.sim.engine.rehearsal import Tell, tell_nobody

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "dist" / "spark"
_CODE = ("lbcore", "jobs/operating", "jobs/adapters")
"""What runs on executors."""
_LOST = re.compile(r"Task (\d+)\.?\d* in stage")
_ARCHIVE = "ballast"

_Known: TypeAlias = tuple[int, Any]
"""An item's place, and what it came to: a result, or a CommandError."""


@contextmanager
def spark_runs(
    master: str, settings: Mapping[str, str], package: Path = PACKAGE
) -> Iterator[SideBySide]:
    """Who works on items while Spark is there. package: what a cluster's executors get.

    Raises CommandError when Spark does not start, or the package is not of this code.
    """
    ours = {
        "spark.app.name": "ballast runs",
        # who is given up ends at once; two seconds later it may have come to its own end, and
        # complains that nobody reads it
        "spark.python.task.killTimeout": "0s",
    }
    if not master.startswith("local"):
        ours |= _shipped(package)
        os.environ.setdefault("PYSPARK_PYTHON", "python3")
    use_java_home()
    interrupted = signal.getsignal(signal.SIGINT)
    try:
        session = spark_session(
            (), master=master, local_dir=own_folder("ballast-runs"), settings={**ours, **settings}
        )
    except (Py4JError, PySparkException) as cause:
        raise CommandError(
            f"Spark could not be started with master {master}",
            why=java_line(cause),
            next_step="correct --master (local[2], spark://HOST:7077); without it, runs are"
            " processes of this machine",
        ) from None
    try:
        session.sparkContext.setLogLevel("OFF")  # what went wrong is told here, once
        # Spark's own answer to Ctrl-C is a stack trace
        signal.signal(signal.SIGINT, interrupted)
        yield partial(SparkRuns, context=session.sparkContext)
    finally:
        session.stop()


def _shipped(package: Path) -> dict[str, str]:
    """Settings by which executors get packages and code. Raises CommandError."""
    files = [path for folder in _CODE for path in sorted((ROOT / folder).rglob("*.py"))]
    for path in files:
        name = path.relative_to(ROOT)
        packaged = package / "python" / name
        if not packaged.is_file() or packaged.read_bytes() != path.read_bytes():
            raise CommandError(
                f"executors would not run the code that runs here: {name}",
                why=f"{packaged} is not there, or is another",
                next_step="make package, then start this again",
            )
    return {
        "spark.archives": f"{package / 'python.tar.gz'}#{_ARCHIVE}",
        "spark.executorEnv.PYTHONPATH": f"{_ARCHIVE}:{package / 'python'}",
    }


class SparkRuns:
    """Items worked on by Spark, a task each. is_cut: whether Ctrl-C ended it early."""

    def __init__(
        self, work: Callable[[Any, Tell], Any], context: SparkContext, what: str = "runs"
    ) -> None:
        """work: as `ManyRuns` has it; a CommandError that it raises ends all."""
        self._work, self._context, self._what = work, context, what
        self.is_cut = False

    def results(self, items: Sequence[Any]) -> Iterator[Any]:
        """What each item came to, in their order, when all are done or Ctrl-C has come.

        Raises CommandError: the first that a task has raised, or which item Spark gave up.
        """
        if not items:
            return
        found: Accumulator[list[_Known]] = self._context.accumulator([], _Gathered())
        shared = self._context.broadcast(self._work)
        tasks = self._context.parallelize(list(enumerate(items)), len(items))
        work = partial(_carry_out, shared, found)
        with until_interrupted(self._cut), ThreadPoolExecutor(1) as pool:
            self._wait(pool.submit(tasks.foreach, work), found, items)
        shared.destroy()
        known = dict(found.value)
        yield from (known[at] for at in sorted(known) if known[at] is not None)
        if self.is_cut:
            note(STOPPED)

    def _wait(
        self, job: Future[None], found: "Accumulator[list[_Known]]", items: Sequence[Any]
    ) -> None:
        """Until Spark is done; it is told to stop when there is no use in going on."""
        progress = RunProgress(self._what, len(items))
        while not job.done():
            wait([job], timeout=LOOKED_EACH_S)
            done = len(found.value)
            progress.tell(done, done / len(items))
            if self.is_cut or _first_error(found.value):
                self._context.cancelAllJobs()
        progress.clear()
        error = _first_error(found.value)
        if error is not None:
            raise error
        wrong = job.exception()
        if wrong is not None and not self.is_cut:
            raise _given_up(wrong, items) from None

    def _cut(self) -> None:
        self.is_cut = True


class _Gathered(AccumulatorParam[list[_Known]]):
    """Results on their way: each comes with the end of its task, once."""

    def zero(self, value: list[_Known]) -> list[_Known]:  # noqa: ARG002 Spark's own signature
        return []

    def addInPlace(self, value1: list[_Known], value2: list[_Known]) -> list[_Known]:  # noqa: N802 as Spark has it
        value1 += value2
        return value1


def _carry_out(
    shared: "Broadcast[Callable[[Any, Tell], Any]]",
    found: "Accumulator[list[_Known]]",
    numbered: tuple[int, Any],
) -> None:
    """A task: on an executor."""
    at, item = numbered
    try:
        result = shared.value(item, tell_nobody)
    except CommandError as error:  # a value: what fails by itself is not to be tried again
        result = error
    found.add([(at, result)])


def _first_error(known: Sequence[_Known]) -> CommandError | None:
    return min(
        ((at, one) for at, one in known if isinstance(one, CommandError)),
        default=(0, None),
        key=lambda pair: pair[0],
    )[1]


def _given_up(wrong: BaseException, items: Sequence[Any]) -> CommandError:
    """Spark gave a task up: its executor was lost, again and again."""
    words = str(wrong)
    lost = _LOST.search(words)
    which = f"the run of {items[int(lost[1])]}" if lost else "a run"
    return CommandError(
        f"Spark could not carry out {which}",
        why=java_line(wrong),
        next_step="most often an executor had not enough memory: give it more with --spark"
        " spark.executor.memory=2g, or run fewer at once with --spark spark.executor.cores=1",
    )
