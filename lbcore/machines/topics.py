"""Topics: which of the brokers' reports on the topics of their bundles count.

Decides that a report counts when it is the bundle's present holder's, and newer than its last; and
how much is kept at most. Part of `balancer`, after the loads. Source: ours.
"""

from collections.abc import Sequence

import numpy as np

from lbcore.machines.instances import NOBODY
from lbcore.machines.topic_book import BundleTopics, TopicBook
from lbcore.machines.work import Work
from lbcore.model.hashing import HashFunction, hash_topics
from lbcore.model.names import FULL_UPPER, format_partition, parse_bundle
from lbcore.plan.snapshot import Ints
from lbcore.wire.messages import TopicLoad


def take_topics(work: Work, messages: Sequence[TopicLoad]) -> None:
    """Take in reports on topics, in the order of the log; counted as taken, or by reason."""
    if not messages:
        return
    holders = work.ledger.holders()
    bundles = dict(work.topics.bundles)
    room = work.config.pipeline.topics_kept_max - work.topics.count
    for message in messages:
        reason = _reason_not_to_take(work, message, bundles.get(message.bundle), holders)
        if not reason:
            before = bundles.pop(message.bundle, None)
            room += 0 if before is None else len(before.hashes)
            taken = _taken(work, message)
            if len(taken.hashes) <= room:
                bundles[message.bundle] = taken
                room -= len(taken.hashes)
            else:
                reason = "full"
        work.counts[f"topics:{reason or 'taken'}"] += 1
    work.topics = TopicBook(bundles=bundles)


def created_hashes(work: Work, namespace: str) -> Ints:
    """The hashes of the topics that were created here, each partition's, ascending. O(topics)."""
    names = [
        full
        for topic in work.catalogue.topics_of(namespace)
        for full in _served(topic, work.catalogue.topics[topic])
    ]
    function = HashFunction(work.namespaces[namespace].hash)
    return np.unique(hash_topics(function, names))


def _served(topic: str, partitions: int) -> list[str]:
    return [format_partition(topic, at) for at in range(partitions)] if partitions else [topic]


def _reason_not_to_take(
    work: Work, message: TopicLoad, known: BundleTopics | None, holders: Ints
) -> str:
    row = work.ledger.index.get(message.bundle)
    if row is None:
        return "unknown_bundle"
    made = message.envelope
    start = work.ledger.instances.find(made.broker, made.incarnation)
    if start == NOBODY or holders[row] != start:
        return "foreign_bundle"
    is_next = known is None or known.sender != (made.broker, made.incarnation)
    if is_next or known is None or made.seq > known.seq:
        return ""
    return "late"


def _taken(work: Work, message: TopicLoad) -> BundleTopics:
    """The report's topics that are in the bundle's range, in the order of their hashes."""
    namespace, lower, upper = parse_bundle(message.bundle)
    function = HashFunction(work.namespaces[namespace].hash)
    hashes = hash_topics(function, message.topics)
    inside = (hashes >= lower) & ((hashes < upper) | (upper == FULL_UPPER))
    rows = np.flatnonzero(inside)
    rows = rows[np.argsort(hashes[rows], kind="stable")]
    traffic = message.traffic[rows]
    return BundleTopics(
        sender=(message.envelope.broker, message.envelope.incarnation),
        seq=message.envelope.seq,
        hashes=hashes[rows].astype("<u4"),
        msg_rate=(traffic[:, 0] + traffic[:, 1]).astype("<f4"),
        throughput=(traffic[:, 2] + traffic[:, 3]).astype("<f4"),
    )
