"""Partitions: which bundles hold how many of which partitioned topics, as plans see it.

Decides nothing; joins what topic reports told with the ledger's rows. Used by `placing`. Source:
ours.
"""

import numpy as np

from lbcore.balancer.state.ledger import Ledger
from lbcore.balancer.state.topic_book import TopicBook
from lbcore.plan.snapshot import MARK_BITS, NO_PARTITIONS, Ints, Partitions


def partitions_of(topics: TopicBook, ledger: Ledger, rows: Ints) -> Partitions:
    """What is known of partitioned topics in these rows of the ledger, which are ascending.

    O(partitions), and O(topics) of what reports have changed since it was asked last.
    """
    known = topics.partitions()
    if not known.bundles:
        return NO_PARTITIONS
    at = np.array([ledger.index.get(bundle, -1) for bundle in known.bundles], dtype=np.int64)
    place = np.searchsorted(rows, at)
    is_there = (at >= 0) & (np.append(rows, -1)[place] == at)
    _, namespace = ledger.namespaces()
    pairs = namespace[at[is_there]] << MARK_BITS | known.marks[is_there]
    topics_known, topic = np.unique(pairs, return_inverse=True)
    return Partitions(
        rows=place[is_there], topic=topic, count=known.counts[is_there], keys=topics_known
    )
