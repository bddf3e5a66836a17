"""Virtual ownership: the cluster as it would be had a shadow acted, for its next plan.

Decides where bundles would be, and what of a broker's reported load would be another's. A bundle's
load is what its real broker reports of it, now; it counts for the virtual one from the first report
on that either would have made after the move, as a real move shows. Bundles that are where they
really are cost nothing, and the snapshot's columns are shared. Source: ours; what a bundle takes
along is `plan.pending`'s rule.

Worked: A reports 90 points, of which b is 30; the shadow has b on B, which reports 10. It plans on
A 60 and B 40, as soon as both have reported again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from lbcore.balancer.state.instances import NOBODY
from lbcore.balancer.state.ledger import STATE_CODE, Ledger
from lbcore.balancer.state.shadows import Elsewhere, Shadow
from lbcore.balancer.state.work import Work
from lbcore.model.names import parse_bundle
from lbcore.ownership.records import State
from lbcore.plan.pending import (
    COLUMNS,
    SCALED,
    load_shares,
    placed_load,
    reported_load,
    with_load,
)
from lbcore.plan.snapshot import Bools, BrokerTable, Floats, Ints, Snapshot

_AT_REST = STATE_CODE[State.OWNED]
_OPENING = STATE_CODE[State.ASSIGNING]
_DELETED = STATE_CODE[State.DELETED]
_SPLITTING = STATE_CODE[State.SPLITTING]
_LEAVING = (STATE_CODE[State.RELEASING], _SPLITTING)
_MOVING = (STATE_CODE[State.ASSIGNING], STATE_CODE[State.RELEASING])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """The k bundles that are elsewhere. ledger, snapshot: their rows.

    broker: where they would be, holder: where they are, indices of brokers, -1 = nowhere. left_ms,
    come_ms: after which reports of the one and of the other show it. moved_ms: see `Elsewhere`.
    """

    ledger: Ints
    snapshot: Ints
    broker: Ints
    holder: Ints
    left_ms: Ints
    come_ms: Ints
    moved_ms: Ints


def reconciled(work: Work, shadow: Shadow, snapshot: Snapshot) -> Shadow:
    """The shadow with what the real cluster has overtaken let go. O(elsewhere).

    A bundle is where it really is when it has come to rest where the shadow has it, or when the
    shadow's broker is gone; children of a split are where their parent was.
    """
    if not shadow.elsewhere:
        return shadow
    usable = set(snapshot.brokers.names)
    found: dict[str, Elsewhere] = {}
    for name, one in shadow.elsewhere.items():
        if one.broker not in usable:
            continue
        row = work.ledger.index.get(name)
        if row is None or work.ledger.state[row] == _DELETED:
            found |= dict.fromkeys(_children(work.ledger, name), one)
        elif not _has_arrived(work.ledger, row, one.broker):
            found[name] = one
    return shadow if found == shadow.elsewhere else shadow.with_elsewhere(found)


def virtual_snapshot(work: Work, shadow: Shadow, snapshot: Snapshot, rows: Ints) -> Snapshot:
    """What the shadow would plan on. rows: the ledger's, of the snapshot. O(brokers + elsewhere).

    Bundles that are under way and would be elsewhere are at rest there.
    """
    away = _rows(work, shadow.elsewhere, snapshot, rows)
    if not len(away.ledger):
        return snapshot
    state = work.ledger.state[away.ledger]
    owner, can_move = snapshot.bundles.owner.copy(), snapshot.bundles.can_move.copy()
    owner[away.snapshot] = away.broker
    can_move[away.snapshot] = state != _SPLITTING
    bundles = replace(snapshot.bundles, owner=owner, can_move=can_move)
    if bundles.moved_ms is not None:
        moved_ms = bundles.moved_ms.copy()
        moved_ms[away.snapshot] = away.moved_ms
        bundles = replace(bundles, moved_ms=moved_ms)
    return replace(
        snapshot,
        brokers=_shifted(snapshot, away, state),
        bundles=bundles,
        in_flight=snapshot.in_flight - int(np.isin(state, _MOVING).sum()),
    )


def _has_arrived(ledger: Ledger, row: int, broker: str) -> bool:
    """Whether the bundle is at rest on that broker."""
    is_at_rest = ledger.state[row] == _AT_REST
    return bool(is_at_rest) and ledger.instances.of(int(ledger.destination[row]))[0] == broker


def _children(ledger: Ledger, gone: str) -> list[str]:
    """The bundles that have the range of one that is no more."""
    namespace, lower, upper = parse_bundle(gone)
    names = [ledger.names[row] for row in ledger.live_rows(namespace)]
    ranges = ((name, *parse_bundle(name)[1:]) for name in names)
    return [name for name, low, high in ranges if lower <= low and high <= upper]


def _rows(work: Work, elsewhere: Mapping[str, Elsewhere], snapshot: Snapshot, rows: Ints) -> _Rows:
    index = {name: at for at, name in enumerate(snapshot.brokers.names)}
    known = [
        (work.ledger.index[name], index[one.broker], one.since_ms, one.moved_ms)
        for name, one in elsewhere.items()
        if name in work.ledger.index and one.broker in index
    ]
    of, broker, since_ms, moved_ms = np.array(known, dtype=np.int64).reshape(-1, 4).T
    at = np.minimum(np.searchsorted(rows, of), max(0, len(rows) - 1))
    is_shown = rows[at] == of if len(rows) else np.zeros(0, dtype=np.bool_)
    ledger, since_ms, moved_ms = of[is_shown], since_ms[is_shown], moved_ms[is_shown]
    left_ms = np.maximum(since_ms, work.ledger.at_ms[ledger])
    return _Rows(
        ledger=ledger,
        snapshot=at[is_shown],
        broker=broker[is_shown],
        holder=_holders(work.ledger, ledger, index),
        left_ms=left_ms,
        come_ms=np.where(moved_ms == since_ms, since_ms, left_ms),  # it moved, or has stayed
        moved_ms=moved_ms,
    )


def _holders(ledger: Ledger, rows: Ints, index: Mapping[str, int]) -> Ints:
    """Who has these bundles open or shall open them, as brokers' indices, -1 = nobody live."""
    is_leaving = np.isin(ledger.state[rows], _LEAVING)
    instance = np.where(is_leaving, ledger.source[rows], ledger.destination[rows])
    brokers = [index.get(one.broker, NOBODY) for one in ledger.instances.rows]
    return np.array([*brokers, NOBODY], dtype=np.int64)[instance]


def _shifted(snapshot: Snapshot, away: _Rows, state: Ints) -> BrokerTable:
    """The brokers with the load and the counts of those bundles where they would be."""
    brokers, bundles = snapshot.brokers, snapshot.bundles
    count, reported_ms = len(brokers.names), brokers.updated_at_ms
    is_other = away.holder != away.broker
    has_source = is_other & (away.holder >= 0)
    has_left = has_source & (state != _OPENING) & (reported_ms[away.holder] > away.left_ms)
    has_come = is_other & (reported_ms[away.broker] > away.come_ms)
    gone, come = _lines(snapshot, away)
    added = np.zeros((count, COLUMNS))
    np.subtract.at(added, away.holder[has_left], gone[has_left])
    np.add.at(added, away.broker[has_come & has_source], come[has_come & has_source])
    is_new = has_come & ~has_source
    added += placed_load(snapshot, away.snapshot[is_new], away.broker[is_new])
    topics = bundles.topics[away.snapshot]
    return replace(
        with_load(brokers, added),
        bundle_count=_counted(
            brokers.bundle_count, away, (has_left, has_come), np.ones_like(topics)
        ),
        topic_count=_counted(brokers.topic_count, away, (has_left, has_come), topics),
    )


def _lines(snapshot: Snapshot, away: _Rows) -> tuple[Floats, Floats]:
    """What each bundle is of its holder's load, and on the scale of its virtual broker."""
    brokers, volume = snapshot.brokers, snapshot.bundles.short[away.snapshot]
    shares = load_shares(volume, brokers.traffic[away.holder])[:, np.newaxis]
    gone = reported_load(brokers)[away.holder] * shares
    gone[:, SCALED : SCALED + volume.shape[1]] = volume
    come = gone.copy()
    scale = brokers.capacity[away.holder] / brokers.capacity[away.broker]
    come[:, :SCALED] *= scale[:, np.newaxis]
    return gone, come


def _counted(counts: Ints, away: _Rows, shown: tuple[Bools, Bools], of_each: Ints) -> Ints:
    """A broker's counts with what left it and what came; never below 0."""
    found, (has_left, has_come) = counts.copy(), shown
    np.subtract.at(found, away.holder[has_left], of_each[has_left])
    np.add.at(found, away.broker[has_come], of_each[has_come])
    kept: Ints = np.maximum(found, 0)
    return kept
