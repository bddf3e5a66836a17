"""The backtests that a cluster's tables keep: adding one, and what the newest found.

Decides the id of a run and what it is of; rows and order are `lbcore.explain.kept_backtests`'s.
Source: ours.
"""

import time
from collections.abc import Iterable, Sequence
from uuid import uuid4

from jobs.adapters.delta.appending import append_rows
from jobs.adapters.delta.table_reader import Row
from jobs.operating.backtesting import Past, bundles_of
from jobs.operating.stack_words import Whereabouts
from lbcore.explain.kept_backtests import KeptRun, to_rows
from lbcore.model.backtest_tables import BACKTESTS
from lbcore.sim.judge.possible import BAR


def keep(
    where: Whereabouts, past: Past, rows: Iterable[Row], settings: Sequence[str], at_ms: int
) -> str:
    """Add a run to the tables; its id. settings: of --set. Raises CommandError."""
    begin_ms = int(past.recording.times_ms[0])
    run = KeptRun(
        run_id=f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(at_ms / 1_000))}-{uuid4().hex[:12]}",
        from_ms=begin_ms,
        until_ms=begin_ms + past.recording.length_ms,
        brokers=len(past.scenario.brokers),
        bundles=bundles_of(past),
        seed=past.scenario.seed,
        settings=settings,
        bar=BAR,
        at_ms=at_ms,
    )
    append_rows(where.tables, BACKTESTS, to_rows(where.cluster, run, rows))
    return run.run_id
