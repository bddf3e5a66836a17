"""Carried out: what a cycle has begun is carried out in thought, and the next reports show it.

Decides how a foreseen cycle is followed by the next: every broker answers at once, and what a
bundle takes with it is what the balancer itself expects (`plan.pending`). Part of `foresee`.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from lbcore.balancer.decisions.placing import make_snapshot, usable_brokers
from lbcore.balancer.state.ledger import NOBODY
from lbcore.balancer.state.work import Work
from lbcore.balancer.transitions import BrokerAnswer, take_answers
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.states import IN_FLIGHT
from lbcore.plan.pending import COLUMNS, move_of, placed_load, with_load
from lbcore.plan.snapshot import Floats, Snapshot
from lbcore.signals.usage import weighted_usage
from lbcore.wire.messages import Ack, AckOutcome, Position

_NOWHERE = Position(topic="", partition=0, offset=0, timestamp_ms=0)
_ROUNDS = 4
"""A split, its children closed and opened elsewhere, and one to see that nothing is left."""


def owners_of(work: Work) -> dict[str, str]:
    """Bundle → the live broker that has it once what is in flight has ended; "" = nobody."""
    names = usable_brokers(work)
    owners = work.ledger.prospective_brokers(names).tolist()
    return {
        bundle: names[owner] if owner != NOBODY else ""
        for bundle, owner in zip(work.ledger.names, owners, strict=True)
    }


def land(work: Work) -> None:
    """Every live broker answers what it was told, until nothing is under way."""
    for _ in range(_ROUNDS):
        answers = _answers(work)
        if not answers:
            return
        take_answers(work, answers)


def report_landed(work: Work, before: Mapping[str, str], now_ms: int) -> None:
    """Live brokers report at `now_ms`: the load of bundles that changed hands went with them.

    before: `owners_of` when the cycle began.
    """
    names = usable_brokers(work)
    snapshot, rows = make_snapshot(work, names)
    shown = with_load(snapshot.brokers, _shifted(work, snapshot, before))
    count = np.bincount(snapshot.bundles.owner + 1, minlength=len(names) + 1)[1:]
    topics = np.bincount(
        snapshot.bundles.owner + 1, weights=work.ledger.topics[rows], minlength=len(names) + 1
    )[1:]
    for at, name in enumerate(names):
        work.brokers[name] = replace(
            work.brokers[name],
            reported_ms=now_ms,
            percent=tuple(shown.percent[at].tolist()),
            traffic=tuple(shown.traffic[at].tolist()),
            weighted_max_ema=float(shown.weighted_max_ema[at]),
            throughput_ema=float(shown.throughput_ema[at]),
            bundle_count=int(count[at]),
            topic_count=int(topics[at]),
        )


def _answers(work: Work) -> list[BrokerAnswer]:
    """Return the live brokers' answers to the records in flight, by broker name."""
    found: dict[str, list[Ack]] = defaultdict(list)
    for row in work.ledger.rows_in(*IN_FLIGHT).tolist():
        record = work.ledger.record_at(row)
        broker, outcome = _answer(record)
        ack = Ack(bundle=record.bundle, version_id=record.version_id, outcome=outcome)
        found[broker].append(ack)
    return [
        BrokerAnswer(work.instance(broker), ack, _NOWHERE)
        for broker in usable_brokers(work)
        for ack in found.get(broker, ())
    ]


def _answer(record: OwnershipRecord) -> tuple[str, AckOutcome]:
    if record.state is State.ASSIGNING:
        return record.destination, AckOutcome.OPENED
    is_split = record.state is State.SPLITTING
    return record.source, AckOutcome.SPLIT if is_split else AckOutcome.CLOSED


def _shifted(work: Work, snapshot: Snapshot, before: Mapping[str, str]) -> Floats:
    """Return the load added to each broker's row, float64[n, 11].

    See `plan.pending`.
    """
    index = {name: at for at, name in enumerate(snapshot.brokers.names)}
    known = {**_parents(work, before), **before}
    usage = weighted_usage(snapshot.brokers.percent, work.config.signals)
    added = np.zeros((len(index), COLUMNS))
    gained: list[tuple[int, int]] = []
    owners = snapshot.bundles.owner.tolist()
    for row, (bundle, owner) in enumerate(zip(snapshot.bundles.names, owners, strict=True)):
        source = index.get(known.get(bundle, ""), NOBODY)
        if source == owner:
            continue
        if source == NOBODY:
            gained.append((row, owner))
        elif owner != NOBODY:
            move = move_of(snapshot, usage, (row, source, owner), work.now_ms)
            added[source] -= move.load
            added[owner] += move.at_destination()
    pairs = np.array(gained, dtype=np.int64).reshape(-1, 2)
    return added + placed_load(snapshot, pairs[:, 0], pairs[:, 1])


def _parents(work: Work, before: Mapping[str, str]) -> dict[str, str]:
    """The children of this cycle's splits → the broker that had their parent."""
    return {
        child: before.get(after.bundle, "")
        for _, after in work.transitions
        if after.state is State.SPLITTING
        for child in after.children
    }
