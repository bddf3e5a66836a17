"""Topics known by name: those that were created here.

By Pulsar's auto-creation the first producer may create a topic, so an unknown one is no error.
Brokers report topics by hash to the balancer alone, which counts them. Source for what counts as
one topic: Pulsar 4.0.8's PersistentTopicsBase and NamespaceService.getListOfPersistentTopics.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, groupby

from lbcore.model.names import (
    Domain,
    InvalidNameError,
    format_partition,
    parse_topic,
    range_end,
    strip_partition,
)
from lbcore.route.bundles import BundleRoute


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopics:
    """One namespace's topics.

    partitioned: full name of each partitioned topic → number of partitions. single: full names of
    all others. in_order: the common prefix of a topic's names, and the topic, sorted.
    """

    partitioned: Mapping[str, int] = field(default_factory=dict)
    single: frozenset[str] = frozenset()
    in_order: Sequence[tuple[str, str]] = ()

    @staticmethod
    def of(created: Mapping[str, int]) -> "KnownTopics":
        """created: full name → partitions, 0 = not partitioned. O(topics log topics)."""
        partitioned = {name: count for name, count in created.items() if count}
        single = frozenset(name for name, count in created.items() if not count)
        begins = ((format_partition(name, "") if name in partitioned else name) for name in created)
        in_order = sorted(zip(begins, created, strict=True))
        return KnownTopics(partitioned=partitioned, single=single, in_order=in_order)

    @property
    def created(self) -> Iterator[str]:
        """Return the full names as created, sorted; a partitioned topic is one."""
        return (topic for _, topic in self.in_order)

    def names(self, domain: Domain | None = None) -> Iterator[str]:
        """Return every topic that a broker can serve, sorted, each partition by itself.

        A step is O(1), or O(topics whose names begin as another's partitions).
        """
        return (name for name, _ in groupby(self._all_names(domain)))

    def _all_names(self, domain: Domain | None) -> Iterator[str]:
        at, last = 0, len(self.in_order)
        while at < last:
            begin, topic = self.in_order[at]
            at += 1
            if not is_in_domain(topic, domain):
                continue
            within = []
            while (
                topic in self.partitioned and at < last and self.in_order[at][0].startswith(begin)
            ):
                within.append(self.in_order[at][1])
                at += 1
            if within:  # names such as those of the partitions, in between them
                yield from merge(*(self._names_of(one) for one in (topic, *within)))
            else:
                yield from self._names_of(topic)

    def _names_of(self, topic: str) -> Iterator[str]:
        parts = (format_partition(topic, n) for n in in_text_order(self.partitioned.get(topic, 0)))
        return chain((topic,) if topic in self.single else (), parts)

    def partitions_of(self, topic: str) -> int:
        """The number of partitions; 0 for a topic that isn't partitioned, or isn't known."""
        return self.partitioned.get(topic, 0)

    def is_served(self, topic: str) -> bool:
        """True if the name is one of `names`. O(1)."""
        if topic in self.single:
            return True
        parent = strip_partition(topic)
        return parent != topic and int(topic.rpartition("-")[2]) < self.partitioned.get(parent, 0)

    def exists(self, topic: str) -> bool:
        """True if the name is one of `names`, or a partitioned topic's. O(1)."""
        return topic in self.partitioned or self.is_served(topic)


def in_text_order(count: int) -> Iterator[int]:
    """The numbers below a count, sorted as texts: 0, 1, 10, 11, 2, ... for 12."""
    if count:
        yield 0
    number = 1
    for _ in range(count - 1):
        yield number
        if number * 10 < count:
            number *= 10
            continue
        while number % 10 == 9 or number + 1 >= count:  # noqa: PLR2004 (the last digit)
            number //= 10
        number += 1


def is_in_domain(topic: str, domain: Domain | None) -> bool:
    """True if a full name is in the domain; None = any domain."""
    return domain is None or topic.startswith(f"{domain.value}://")


def is_in_range(at: int, route: BundleRoute) -> bool:
    """True if the hash is in the bundle's range."""
    return route.lower <= at < range_end(route.upper)


def is_requested(topic: str, wanted: frozenset[str]) -> bool:
    """True if a topic or its partitioned topic is among the `requested_names`."""
    return topic in wanted or strip_partition(topic) in wanted


def requested_names(names: Iterable[str]) -> frozenset[str]:
    """Return the full names of the requested topics; none for an invalid name."""
    full = set()
    for name in names:
        with suppress(InvalidNameError):
            full.add(parse_topic(name).full)
    return frozenset(full)
