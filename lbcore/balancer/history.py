"""History: each broker's load once an interval, of a large cluster in several batches.

Decides which brokers' rows a batch writes. All rows of 500,000 bundles take ten seconds on their
way into the table, which no batch may; so each takes some brokers, in the order of their names.
Where it stands is remembered. Part of `balancer`. Source: ours.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from lbcore.balancer.state.instances import NOBODY
from lbcore.balancer.state.work import Work
from lbcore.model.tables import LOAD_HISTORY
from lbcore.plan.snapshot import Ints
from lbcore.signals.shown_load import usage_of

_WHOLE_MAX = 100_000
"""Bundles of which a batch writes all."""
_PARTS = 8
"""Of more, as large a part."""


def write_history(work: Work) -> None:
    """A row of `load_history` a broker and interval, of the newest load and averages.

    None of a silent broker: its load is not known. A batch with a cycle leaves them to the next
    one, so that the decisions need not wait for them, unless they are late: by a whole cycle those
    that come first, by half an interval the others. Once the interval is over, all that are left
    come at once, and none after another. O(bundles), in numpy; O(bundles written).
    """
    pipeline, times = work.config.pipeline, work.times
    interval_ms, late_ms = pipeline.load_history_interval_ms, pipeline.decision_interval_ms
    start_ms, after = times.history_ms, times.history_after
    if work.now_ms >= start_ms + 2 * interval_ms:
        after = ""  # what is left of it is as it was then, and nobody knows how
    if after:
        late_ms = max(late_ms, interval_ms // 2)
    else:
        start_ms = work.now_ms - work.now_ms % interval_ms
        if start_ms <= times.history_ms:
            return
    if times.cycle_ms == work.now_ms and work.now_ms < start_ms + late_ms:
        return
    rows_of = _rows_by_broker(work)
    left = sorted(
        name
        for name, entry in work.brokers.items()
        if name > after and entry.reported_ms and not entry.is_silent
    )
    names: Sequence[str] = left
    if len(work.ledger) > _WHOLE_MAX and work.now_ms < start_ms + interval_ms:
        names = _a_part(left, [len(rows_of[name]) for name in left], len(work.ledger))
    work.note(history_ms=start_ms, history_after=names[-1] if len(names) < len(left) else "")
    for name in names:
        work.add_row(LOAD_HISTORY.name, _history_row(work, name, start_ms, rows_of[name]))


def _a_part(names: Sequence[str], bundles: Sequence[int], all_bundles: int) -> Sequence[str]:
    """The first of the brokers, until there are enough bundles for a batch."""
    room = -(-all_bundles // _PARTS)
    enough = int(np.searchsorted(np.cumsum(bundles), room)) + 1
    return names[:enough]


def _rows_by_broker(work: Work) -> dict[str, Ints]:
    """Broker → rows of the ledger, ascending; none of a broker that has none."""
    instances, holders = work.ledger.instances, work.ledger.holders()
    order = np.argsort(holders, kind="stable")
    ids, starts = np.unique(holders[order], return_index=True)
    found: dict[str, Ints] = defaultdict(_no_rows)
    for instance, rows in zip(ids.tolist(), np.split(order, starts)[1:], strict=True):
        if instance != NOBODY:
            name = instances.of(instance)[0]
            found[name] = np.sort(np.concatenate([found[name], rows]))
    return found


def _no_rows() -> Ints:
    return np.zeros(0, dtype=np.int64)


def _history_row(work: Work, name: str, start_ms: int, rows: Ints) -> dict[str, Any]:
    entry, ledger = work.brokers[name], work.ledger
    short = ledger.short[rows]
    return {
        "broker": name,
        "minute_ms": start_ms,
        "score": entry.weighted_max_ema,
        "percent": list(entry.percent),
        "traffic": list(entry.traffic),
        "bundles": [ledger.names[row] for row in rows.tolist()],
        "msg_rate_in": short[:, 0].tolist(),
        "msg_rate_out": short[:, 1].tolist(),
        "msg_throughput_in": short[:, 2].tolist(),
        "msg_throughput_out": short[:, 3].tolist(),
        "topics": ledger.topics[rows].astype(float).tolist(),
        "sessions": ledger.sessions[rows].astype(float).tolist(),
        "reported_ms": entry.reported_ms,
        "usage": usage_of(entry.percent, work.config.signals),
    }
