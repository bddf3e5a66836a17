"""The topics of simulated brokers: which lie in a bundle, what they carry, what is read of them.

topics: full name → msg/s in, and as much out, of 1,000 bytes each; hashed with crc32.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from lbcore.agent.reporting import TopicsRead
from lbcore.model.bundles import Bundle

Topics = Mapping[str, float]
_PER_MESSAGE = np.array([1.0, 1.0, 1_000.0, 1_000.0])


def topics_in(topics: Topics, bundle: str) -> tuple[str, ...]:
    """Those of the topics that lie in a bundle, sorted."""
    whole = Bundle.parse(bundle)
    return tuple(name for name in sorted(topics) if whole.includes_topic(name))


def rate_of(topics: Topics, bundle: str) -> float:
    """What those of a bundle carry together, in msg/s one way."""
    return sum(topics[name] for name in topics_in(topics, bundle))


def read_topics(topics: Topics, bundles: Iterable[str]) -> list[TopicsRead]:
    """What a broker's agent is told of each bundle that has any."""
    found = []
    for bundle in sorted(bundles) if topics else ():
        names = topics_in(topics, bundle)
        rates = np.array([topics[name] for name in names])
        if names:
            traffic = rates[:, np.newaxis] * _PER_MESSAGE
            found.append(TopicsRead(bundle=bundle, topics=names, traffic=traffic))
    return found
