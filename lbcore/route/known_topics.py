"""Which topics exist by name: those that were created here.

Decides which names a namespace lists, and where each topic lies; that a topic which nobody knows
may be created by its first producer is Pulsar's rule of auto-creation, so an unknown one is no
error. Brokers report topics by hash to the balancer alone, which counts them. Feeds the admin
service. Source: ours; what counts as one topic is Pulsar 4.0.8's PersistentTopicsBase and
NamespaceService.getListOfPersistentTopics.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lbcore.model.hashing import HashFunction
from lbcore.model.names import (
    FULL_UPPER,
    Domain,
    InvalidNameError,
    format_partition,
    parse_topic,
    strip_partition,
)
from lbcore.route.bundles import BundleRoute
from lbcore.route.snapshot import DIGESTS


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopics:
    """One namespace's topics.

    partitioned: full name of each partitioned topic → number of partitions. single: full names of
    all others.
    """

    partitioned: Mapping[str, int] = field(default_factory=dict)
    single: frozenset[str] = frozenset()

    @staticmethod
    def of(created: Mapping[str, int]) -> "KnownTopics":
        """created: full name → partitions, 0 = not partitioned."""
        partitioned = {name: count for name, count in created.items() if count}
        plain = (name for name, count in created.items() if not count)
        return KnownTopics(partitioned=partitioned, single=frozenset(plain))

    @property
    def created(self) -> frozenset[str]:
        """The full names as they were made: a partitioned topic is one."""
        return self.single.union(self.partitioned)

    def names(self, domain: Domain | None = None) -> list[str]:
        """Every topic that a broker can serve, each partition by itself, sorted."""
        partitions = {
            format_partition(name, number)
            for name, count in self.partitioned.items()
            for number in range(count)
        }
        return sorted(name for name in self.single | partitions if is_of(name, domain))

    def partitions_of(self, topic: str) -> int:
        """The number of partitions; 0 for a topic that isn't partitioned, or isn't known."""
        return self.partitioned.get(topic, 0)

    def exists(self, topic: str) -> bool:
        """Whether a name is one of `names`, or a partitioned topic's. O(1)."""
        if topic in self.single or topic in self.partitioned:
            return True
        parent = strip_partition(topic)
        if parent == topic:
            return False
        return int(topic.rpartition("-")[2]) < self.partitioned.get(parent, 0)


def is_of(topic: str, domain: Domain | None) -> bool:
    """Whether a full name is of a domain; of any when it is None."""
    return domain is None or topic.startswith(f"{domain.value}://")


def positions(topics: Iterable[str], function: HashFunction) -> dict[str, int]:
    """Each topic's hash."""
    digest = DIGESTS[function]
    return {topic: digest(topic.encode("utf-8", "replace")) for topic in topics}


def counts(
    topics: Iterable[str], live: Sequence[BundleRoute], function: HashFunction
) -> dict[str, int]:
    """The number of topics of each bundle that has any. live: ascending, covers the space."""
    lowers = [route.lower for route in live]
    places = positions(topics, function).values()
    return dict(Counter(live[bisect_right(lowers, at) - 1].bundle for at in places))


def in_bundle(hashes: Mapping[str, int], route: BundleRoute) -> dict[str, int]:
    """Those of the topics that lie in a bundle."""
    last = route.upper if route.upper == FULL_UPPER else route.upper - 1
    return {topic: at for topic, at in hashes.items() if route.lower <= at <= last}


def chosen(hashes: Mapping[str, int], asked: Sequence[str]) -> dict[str, int]:
    """Those of the topics that were asked for, a partitioned one by its partitions; all for none.

    A name that is no topic's chooses nothing.
    """
    if not asked:
        return dict(hashes)
    wanted = {full for name in asked if (full := _full(name))}
    return {t: at for t, at in hashes.items() if t in wanted or strip_partition(t) in wanted}


def _full(name: str) -> str:
    try:
        return parse_topic(name).full
    except InvalidNameError:
        return ""
