"""Tuning and many runs on the real Spark, in a process of its own: what came, as one line of JSON.

A process of its own, because a session's JVM stays as long as the process that started it; and
started with -c, because what executors call must not be in a module that is called __main__.
"""

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from jobs.adapters.delta.table_reader import TableReader
from jobs.console import CommandError
from jobs.operating import spark_runs
from jobs.operating.backtesting import Past, read_recorded
from jobs.operating.many_runs import ManyRuns, SideBySide
from jobs.operating.run_progress import RunProgress
from jobs.operating.tuning import Search, stretches, tune
from jobs.verbs.tune import as_json
from lbcore.config.tree import Config
from lbcore.sim.engine.rehearsal import Tell

QUICK = {
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}
_SEARCH = Search(base=Config(), given=("pipeline.trigger_ms=2000",), rounds=0, seeds=1)


class Interrupting(RunProgress):
    """Ctrl-C comes, once, when the first result is known."""

    is_done = False

    def tell(self, done: int, share: float) -> None:
        super().tell(done, share)
        if done and not self.is_done:
            self.is_done = True
            os.kill(os.getpid(), signal.SIGINT)


def first_ends(item: int, _tell: Tell) -> int:
    """Item 0 is done at once, the others never."""
    while item:
        time.sleep(0.05)
    return item


def dies(item: int, _tell: Tell) -> int:
    """The process that works on item 1 is gone."""
    if item == 1:
        os._exit(1)
    return item


def tell(tables: Path) -> None:
    """What comes in one session, two tasks at once, as one line of JSON."""
    pasts = stretches(read_recorded(TableReader(tables, "local")), 0, 600_000, 1)
    told: dict[str, Any] = {
        "here": as_json(tune(pasts, _SEARCH, partial(ManyRuns, workers=1))),
    }
    with spark_runs.spark_runs("local[2]", QUICK) as beside:
        told["there"] = as_json(tune(pasts, _SEARCH, beside))
        told["none"] = list(beside(dies).results([]))
        told["broken"] = _error(pasts, beside)
        told["died"] = _words(beside, [0, 1, 2])
        spark_runs.RunProgress = Interrupting  # type: ignore[misc, attr-defined]
        runs = beside(first_ends)
        told["cut"] = [list(runs.results([0, 1, 2, 3])), runs.is_cut]
    print(json.dumps(told))  # noqa: T201 (what the test reads)


def tell_of_cluster(tables: Path, master: str, package: Path) -> None:
    """The same search here and on a cluster's executors, as one line of JSON."""
    pasts = stretches(read_recorded(TableReader(tables, "local")), 0, 600_000, 1)
    settings = {**QUICK, "spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
    with spark_runs.spark_runs(master, settings, package) as beside:
        there = as_json(tune(pasts, _SEARCH, beside))
    here = as_json(tune(pasts, _SEARCH, partial(ManyRuns, workers=2)))
    print(json.dumps({"here": here, "there": there}))  # noqa: T201 (what the test reads)


def _error(pasts: Sequence[Past], beside: SideBySide) -> list[str]:
    """Of a search over two stretches; the second one's load is lost."""
    lost = replace(pasts[0], scenario=replace(pasts[0].scenario, recordings={}))
    try:
        tune([*pasts, lost], _SEARCH, beside)
    except CommandError as error:
        return [error.what, error.why, error.next_step]
    return []


def _words(beside: SideBySide, items: Sequence[int]) -> list[str]:
    try:
        list(beside(dies).results(items))
    except CommandError as error:
        return [error.what, error.why, error.next_step]
    return []
