"""Topics: which of the brokers' reports on the topics of their bundles count.

Decides that a report counts when it is the bundle's present holder's, newer than its last, and says
something new; and how much is kept at most. Part of `balancer`, after the loads.
"""

from collections.abc import Sequence

import numpy as np

from lbcore.balancer.state.ledger import NOBODY
from lbcore.balancer.state.records import CreatedTopics
from lbcore.balancer.state.topic_book import BundleTopics, partition_mark, sender_of
from lbcore.balancer.state.work import Work
from lbcore.config.splitting import Splitting
from lbcore.model.hashing import HashFunction, hash_topics
from lbcore.model.names import FULL_UPPER, format_partition, parse_bundle
from lbcore.plan.snapshot import Ints
from lbcore.wire.messages import TopicLoad

WARM = 0.5
"""The part of a limit on rates from which each report of the same topics counts; below it, what is
known of their rates is near enough, and the state stays as it is."""

TAKEN_OR_NOT = ("taken", "unchanged", "late", "foreign_bundle", "unknown_bundle", "full")
"""Result of a report: it counts, or the reason why it does not."""

TOPICS_COUNTED = "topics:"
"""Prefix of a batch's count of each of them."""


HASHED_MAX = 16_384
"""Created topics of a namespace that are hashed, spread evenly over all: enough to cut between."""


def take_topics(work: Work, messages: Sequence[TopicLoad]) -> None:
    """Take in reports on topics, in the order of the log; counted as taken, or by reason."""
    if not messages:
        return
    holders = work.ledger.holders()
    fresh: dict[str, BundleTopics | None] = {}
    room = work.config.pipeline.topics_kept_max - work.topics.count
    for message in messages:
        known = fresh.get(message.bundle) or work.topics.topics_of(message.bundle)
        reason = _reason_not_to_take(work, message, known, holders)
        if not reason:
            topics = _topics(work, message)
            more = len(topics.hashes) - (0 if known is None else len(known.hashes))
            if known is not None and _is_known(known, topics, work.config.splitting):
                reason = "unchanged"
            elif more > room:
                reason = "full"
            else:
                fresh[message.bundle], room = topics, room - more
        work.counts[f"{TOPICS_COUNTED}{reason or 'taken'}"] += 1
    work.topics = work.topics.changed(fresh)


def _is_known(known: BundleTopics, topics: BundleTopics, config: Splitting) -> bool:
    """True if a report has no relevant news: same topics, no load near a limit."""
    is_warm = any(
        float(found.msg_rate.sum()) > WARM * config.max_msg_rate_per_s
        or float(found.throughput.sum()) > WARM * config.max_throughput_bytes_per_s
        for found in (known, topics)
    )
    is_same = np.array_equal(known.hashes, topics.hashes) and np.array_equal(known.of, topics.of)
    return not is_warm and is_same


def created_topics(work: Work, namespace: str) -> CreatedTopics:
    """The topics that were created here, each partition, as of the first question in this batch.

    O(topics of the namespace) once a batch, whatever the number of their partitions.
    """
    if namespace not in work.created:
        work.created[namespace] = _created(work, namespace)
    return work.created[namespace]


def _created(work: Work, namespace: str) -> CreatedTopics:
    topics = work.records.topics_of(namespace)
    names = sorted(topics)
    ends = np.cumsum([max(topics[name], 1) for name in names], dtype=np.int64)
    total = int(ends[-1]) if names else 0
    stands_for = max(-(-total // HASHED_MAX), 1)
    at = np.arange(0, total, stands_for)
    of = np.searchsorted(ends, at, side="right")
    left = zip(of.tolist(), (ends[of] - at - 1).tolist(), strict=True)
    served = [_served(names[row], topics[names[row]], number) for row, number in left]
    function = HashFunction(work.namespaces[namespace].hash)
    return CreatedTopics(hashes=np.unique(hash_topics(function, served)), stands_for=stands_for)


def _served(topic: str, partitions: int, number: int) -> str:
    return format_partition(topic, number) if partitions else topic


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
    is_same = known is not None and known.sender == sender_of(made.broker, made.incarnation)
    return "late" if is_same and known is not None and made.seq <= known.seq else ""


def _topics(work: Work, message: TopicLoad) -> BundleTopics:
    """The report's topics that are in the bundle's range, in the order of their hashes."""
    namespace, lower, upper = parse_bundle(message.bundle)
    function = HashFunction(work.namespaces[namespace].hash)
    hashes = hash_topics(function, message.topics)
    inside = (hashes >= lower) & ((hashes < upper) | (upper == FULL_UPPER))
    rows = np.flatnonzero(inside)
    rows = rows[np.argsort(hashes[rows], kind="stable")]
    traffic = message.traffic[rows]
    return BundleTopics(
        sender=sender_of(message.envelope.broker, message.envelope.incarnation),
        seq=message.envelope.seq,
        hashes=hashes[rows].astype("<u4"),
        msg_rate=(traffic[:, 0] + traffic[:, 1]).astype("<f4"),
        throughput=(traffic[:, 2] + traffic[:, 3]).astype("<f4"),
        of=np.array([partition_mark(message.topics[row]) for row in rows.tolist()], dtype="<u4"),
    )
