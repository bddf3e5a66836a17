"""Splits: what the children of a split inherit, and where they go once they exist.

Decides each child's part of its parent's load, by its topics where they are known. Where children
go was decided with the split, by the same placement as for everything; it is carried out in the
batch in which the split is acknowledged. Part of `replies` and of the split command. Pulsar 4.0.8
unloads children afterwards and lets lookups place them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lbcore.balancer.decisions.carrying_out import reason_to_stand_still, reason_to_stay
from lbcore.balancer.decisions.placing import usable_brokers
from lbcore.balancer.intake.eligible_brokers import is_open, unsteady
from lbcore.balancer.intake.topics import created_topics
from lbcore.balancer.state.work import Work
from lbcore.balancer.tasks.deletions import is_deleting
from lbcore.balancer.tasks.waiting import wait_also
from lbcore.model.names import FULL_UPPER, parse_bundle
from lbcore.ownership.changes import Transition
from lbcore.ownership.protocol import transfer
from lbcore.ownership.records import Cause, OwnershipRecord
from lbcore.plan.phases.assign import topic_shares
from lbcore.plan.split.algorithms import TopicLoads
from lbcore.signals.arrays import with_rows
from lbcore.signals.averages import BundleAverages, inherited_averages


def cuts_of(children: Sequence[str]) -> tuple[int, ...]:
    """The boundaries between children, ascending."""
    return tuple(parse_bundle(child)[1] for child in sorted(children))[1:]


def without_topics(topics: TopicLoads | None, children: Sequence[str]) -> tuple[str, ...]:
    """The children in whose range no topic is known, in name order."""
    counts = _counts(topics, children)
    return tuple(name for name, n in zip(sorted(children), counts, strict=True) if not n)


def finish_split(work: Work, before: OwnershipRecord) -> None:
    """Finish a split that its owner has acknowledged. before: the Splitting record."""
    parent, children = before.bundle, sorted(before.children)
    topics = work.topics.loads_of(parent)
    shares = topic_shares(topics, cuts_of(children)).tolist()
    counts = None if topics is None else _counts(topics, children)
    _inherit_load(work, parent, dict(zip(children, shares, strict=True)), counts)
    work.topics = work.topics.divided(parent, children)
    _inherit_grace(work, parent, children)
    _place(work, before)


def known_topics(work: Work, bundle: str) -> TopicLoads | None:
    """Return the known topics of a bundle; None = nothing known.

    Reported by its owner, or created here. Created topics that nobody has reported have no load. Of
    very many, some stand for all.
    """
    reported = work.topics.loads_of(bundle)
    namespace, lower, upper = parse_bundle(bundle)
    created = created_topics(work, namespace).hashes
    last = upper if upper == FULL_UPPER else upper - 1
    created = created[(created >= lower) & (created <= last)]
    if reported is None:
        reported = TopicLoads(hashes=created[:0], msg_rate=np.zeros(0), throughput=np.zeros(0))
        if not len(created):
            return None
    more = np.setdiff1d(created, reported.hashes)
    return TopicLoads(
        hashes=np.concatenate([reported.hashes, more]),
        msg_rate=np.concatenate([reported.msg_rate, np.zeros(len(more))]),
        throughput=np.concatenate([reported.throughput, np.zeros(len(more))]),
    )


def _counts(topics: TopicLoads | None, children: Sequence[str]) -> list[int]:
    """The number of known topics of each child, in name order."""
    if topics is None:
        return [0] * len(children)
    child = np.searchsorted(np.array(cuts_of(children)), topics.hashes, side="right")
    counts: list[int] = np.bincount(child, minlength=len(children)).tolist()
    return counts


def _inherit_load(
    work: Work, parent: str, shares: Mapping[str, float], topics: Sequence[int] | None
) -> None:
    """Give the children what is known of their parent: load, and when it was moved last.

    shares: child → its part of the parent's traffic, in name order; topics: how many each has,
    None = by its part.
    """
    ledger = work.ledger
    rows = np.array([ledger.index[child] for child in shares], dtype=np.int64)
    parents = np.full(len(rows), ledger.index[parent], dtype=np.int64)
    part = np.array(list(shares.values()), dtype=np.float64)
    new = inherited_averages(ledger.averages(), parents, part)
    counted = new.topics if topics is None else np.array(topics, dtype=np.int64)
    sessions = np.floor(ledger.sessions[parents] * part).astype(np.int64)
    averages = BundleAverages(
        short=with_rows(ledger.short, rows, new.short),
        short_count=with_rows(ledger.short_count, rows, new.short_count),
        long=with_rows(ledger.long, rows, new.long),
        long_count=with_rows(ledger.long_count, rows, new.long_count),
        topics=with_rows(ledger.topics, rows, counted),
    )
    ledger.keep_load(averages, with_rows(ledger.sessions, rows, sessions), rows)
    ledger.note_moved(rows.tolist(), int(ledger.moved_ms[parents[0]]))


def _inherit_grace(work: Work, parent: str, children: Sequence[str]) -> None:
    """A parent that was moved a moment ago rests; so do its children."""
    unloaded = dict(work.plan.unloaded_ms)
    since_ms = unloaded.pop(parent, None)
    if since_ms is not None:
        unloaded |= dict.fromkeys(children, since_ms)
        work.plan = replace(work.plan, unloaded_ms=unloaded)


def _place(work: Work, before: OwnershipRecord) -> None:
    """Send the children on their way that are to live elsewhere, if that broker can take them.

    Where balancing stands still, or the namespace is paused, only those do whose split a command
    asked for. A command is told which children stayed where they were to leave.
    """
    is_gone = is_deleting(work, before.bundle.rpartition("/")[0])
    if is_gone or before.bundle in work.rules.pins:
        return
    if not before.command_id and _is_held_back(work, before.bundle):
        return
    closed = unsteady(work)
    usable = {n for n in usable_brokers(work) if is_open(work, n) and n not in closed}
    origin = work.origin(Cause.SPLIT, before.decision_id, before.command_id)
    moving: dict[str, str] = {}
    stayed: dict[str, str] = {}
    for child, broker in sorted(before.children.items()):
        record = work.ledger.record(child)
        if record is None or broker in ("", record.destination):
            continue
        answer = transfer(record, work.instance(broker), origin) if broker in usable else None
        if isinstance(answer, Transition):
            work.apply(answer)
            moving[child] = record.destination
        else:
            stayed[child] = broker
    wait_also(work, before.command_id, moving)
    waiting = work.waiting.get(before.command_id)
    if waiting is not None and stayed:
        told = replace(waiting, result={**waiting.result, "stayed": stayed})
        work.waiting[before.command_id] = told


def _is_held_back(work: Work, bundle: str) -> bool:
    """Return whether rules keep what a cycle decided for a bundle from being carried out now."""
    stands_still, _ = reason_to_stand_still(work)
    return bool(stands_still or reason_to_stay(work, bundle, is_split=True))
