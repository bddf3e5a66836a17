"""Late reports: moves of late that a broker's newest load does not show yet, for dry runs.

Decides whose load is from before its bundles came or went: the sum of what its bundles carry tells,
for it differs from what the broker reported by what they carry. The running balancer remembers
its own moves instead (`plan.pending`); that memory is in no table. Part of `foresee`. Source: ours.

Worked: a broker reported 100 msg/s, and owns bundles of 60 now; one of 40 left it a moment ago. 60
is 40 below 100, as it is when the report is from before the move: it is taken to carry 60.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lbcore.balancer.decisions.placing import make_snapshot, usable_brokers
from lbcore.balancer.state.instances import NOBODY
from lbcore.balancer.state.work import Work
from lbcore.plan.pending import COLUMNS, move_of, placed_load, with_load
from lbcore.plan.snapshot import RATE_IN, RATE_OUT, Bools, Floats, Snapshot
from lbcore.signals.usage import weighted_usage

_MOVES = frozenset({"transfer", "unload", "drain"})
_REPORTS = 2
"""Moves are looked at that are no older than so many of the longest intervals between reports."""


def count_moves(work: Work, decisions: Iterable[Mapping[str, Any]]) -> int:
    """Give live brokers the load of the bundles they have; how many moves were unseen. O(bundles).

    decisions: rows in any order. Only where planning counts its moves (`shedding.adjust_load`).
    """
    if not work.config.shedding.adjust_load:
        return 0
    snapshot, _ = make_snapshot(work, usable_brokers(work))
    moved = _moved(work, snapshot, decisions)
    is_late = _is_late(snapshot, moved)
    shown = with_load(snapshot.brokers, _added(work, snapshot, moved, is_late))
    for at in np.flatnonzero(is_late).tolist():
        name = snapshot.brokers.names[at]
        work.brokers[name] = replace(
            work.brokers[name],
            percent=tuple(shown.percent[at].tolist()),
            traffic=tuple(shown.traffic[at].tolist()),
            weighted_max_ema=float(shown.weighted_max_ema[at]),
            throughput_ema=float(shown.throughput_ema[at]),
        )
    return sum(bool(is_late[end]) for _, *ends in moved for end in ends[1:] if end != NOBODY)


def _moved(
    work: Work, snapshot: Snapshot, decisions: Iterable[Mapping[str, Any]]
) -> list[tuple[int, int, int]]:
    """Bundle row, who gave it (NOBODY: not live) and who has it, of moves of late."""
    since_ms = work.now_ms - _REPORTS * work.config.signals.report_max_interval_ms
    gave = {
        str(row["bundle"]): str(row["source"])
        for row in sorted(decisions, key=lambda row: int(row["at_ms"]))
        if row["kind"] in _MOVES and row["bundle"] and row["at_ms"] >= since_ms
    }
    index = {name: at for at, name in enumerate(snapshot.brokers.names)}
    owners = snapshot.bundles.owner.tolist()
    return [
        (row, index.get(gave[bundle], NOBODY), owner)
        for row, (bundle, owner) in enumerate(zip(snapshot.bundles.names, owners, strict=True))
        if bundle in gave and owner != NOBODY and index.get(gave[bundle], NOBODY) != owner
    ]


def _is_late(snapshot: Snapshot, moved: list[tuple[int, int, int]]) -> Bools:
    """bool[n]: whether a broker's load is nearer to what it was before the moves than after."""
    count = len(snapshot.brokers.names)
    rates = snapshot.bundles.short[:, [RATE_IN, RATE_OUT]].sum(axis=1)
    owner = snapshot.bundles.owner
    owned = np.bincount(owner + 1, weights=rates, minlength=count + 1)[1:]
    lacking = owned - snapshot.brokers.traffic[:, [RATE_IN, RATE_OUT]].sum(axis=1)
    net = np.zeros(count)
    for row, source, destination in moved:
        net[destination] += rates[row]
        if source != NOBODY:
            net[source] -= rates[row]
    is_late: Bools = np.abs(lacking - net) < np.abs(lacking)
    return is_late


def _added(
    work: Work,
    snapshot: Snapshot,
    moved: list[tuple[int, int, int]],
    is_late: Bools,
) -> Floats:
    """What is added to each broker's line, float64[n, 11]; see `plan.pending`."""
    usage = weighted_usage(snapshot.brokers.percent, work.config.signals)
    added = np.zeros((len(snapshot.brokers.names), COLUMNS))
    gained: list[tuple[int, int]] = []
    for row, source, destination in moved:
        if source == NOBODY:
            gained += [(row, destination)] if is_late[destination] else []
            continue
        move = move_of(snapshot, usage, (row, source, destination), work.now_ms)
        if is_late[source]:
            added[source] -= move.load
        if is_late[destination]:
            added[destination] += move.at_destination()
    pairs = np.array(gained, dtype=np.int64).reshape(-1, 2)
    return added + placed_load(snapshot, pairs[:, 0], pairs[:, 1])
