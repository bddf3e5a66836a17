"""Watching: the cluster's clock and who is dead, from a batch's arrivals.

Decides nothing by itself: `ownership.liveness` judges. Runs in `balancer` after the reports are
in. Source: ours.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lbcore.machines.group_update import TICK, GroupUpdate
from lbcore.machines.work import Work
from lbcore.ownership.liveness import Rows


def watch_brokers(work: Work, updates: Sequence[GroupUpdate]) -> None:
    """Advance the clocks, judge, and note in the book who is silent."""
    rows = _rows(updates)
    if len(rows.partition):
        ownership = work.config.ownership
        watched = work.liveness.observe(rows, ownership.clock_step_max_ms)
        work.liveness = watched.judge(ownership.broker_timeout_ms)
        ticks = rows.timestamp_ms[rows.broker == TICK]
        work.tick_ms = max([work.tick_ms, *ticks.tolist()])
    dead = work.liveness.dead
    for name in sorted(work.brokers):
        entry = work.brokers[name]
        if entry.is_silent != (name in dead):
            work.brokers[name] = replace(entry, is_silent=name in dead)
            work.counts["died" if name in dead else "returned"] += 1


def _rows(updates: Sequence[GroupUpdate]) -> Rows:
    names: list[str] = []
    columns: list[list[NDArray[np.int64]]] = [[], [], [], []]
    for update in updates:
        arrivals = update.arrivals
        shift = np.where(arrivals.broker == TICK, 0, len(names))
        names += update.brokers
        columns[0].append(arrivals.partition)
        columns[1].append(arrivals.offset)
        columns[2].append(arrivals.timestamp_ms)
        columns[3].append(arrivals.broker + shift)
    empty = np.empty(0, dtype=np.int64)
    partition, offset, timestamp_ms, broker = (np.concatenate([empty, *c]) for c in columns)
    return Rows(
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        broker=broker,
        brokers=names,
    )
