"""One moment's answer to "who serves this topic?" for all namespaces of a cluster.

A snapshot never changes: the next one is made from it by copying what a change touches, and readers
swap the whole. `jobs.adapters.following.delta_follower` brings the records. The answers are those
of Pulsar's extensible load manager (4.0.8).
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from lbcore.model.bundles import DIGESTS, Digest, HashFunction
from lbcore.model.names import Domain, locate_topic
from lbcore.route.addresses import BrokerAddress
from lbcore.route.bundles import BundleRoute, NamespaceRoutes, Unsound, placeholder_route

HashIndex: TypeAlias = tuple[Digest, tuple[int, ...], tuple[BundleRoute, ...]]


class LookupOutcome(str, Enum):
    """Outcome of a lookup; also the label of the lookups metric."""

    FOUND = "found"
    NAMESPACE_NOT_FOUND = "namespace_not_found"
    NO_OWNER = "no_owner"
    BROKER_UNKNOWN = "broker_unknown"
    LISTENER_UNKNOWN = "listener_unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer of a lookup.

    `route` is None only for NAMESPACE_NOT_FOUND; `address` is set for FOUND and LISTENER_UNKNOWN.
    """

    outcome: LookupOutcome
    route: BundleRoute | None = None
    address: BrokerAddress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePosition:
    """Position up to which the tables were followed; -1 and "" at first.

    table_version: of ownership_events. query_id, batch_id: of the job's last commit to it. Only
    table versions have an order: a job that lost its checkpoint counts batches from 0 under another
    query id.
    """

    table_version: int = -1
    query_id: str = ""
    batch_id: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupSnapshot:
    """Bundles, namespaces and brokers of one cluster at one moment.

    A namespace exists when the table `namespaces` has it. namespaces: those that exist, and others
    with live bundles. hash_indexes: for `lookup`, by the text before the last "/" of a topic's name
    ("persistent://tenant/ns"). names: sorted. unsound: fault of a namespace's bundles, by
    namespace. The last three have only namespaces that exist.
    """

    cluster: str
    position: TablePosition = field(default_factory=TablePosition)
    namespaces: Mapping[str, NamespaceRoutes] = field(default_factory=dict)
    brokers: Mapping[str, BrokerAddress] = field(default_factory=dict)
    hash_indexes: Mapping[str, HashIndex] = field(default_factory=dict, repr=False)
    names: tuple[str, ...] = field(default=(), repr=False)
    unsound: Mapping[str, Unsound] = field(default_factory=dict)

    def lookup(self, topic: str) -> BundleRoute | None:
        """Return the bundle of a topic, None = unknown namespace; O(log bundles).

        topic: a full name, of which only the part before the local name is checked, or a short one
        ("t", "tenant/ns/t"). Raises InvalidNameError.
        """
        try:
            digest, lowers, routes = self.hash_indexes[topic[: topic.rfind("/")]]
            return routes[bisect_right(lowers, digest(topic.encode())) - 1]
        except (KeyError, UnicodeEncodeError):
            return self._lookup_slowly(topic)

    def _lookup_slowly(self, topic: str) -> BundleRoute | None:
        namespace, full = locate_topic(topic)
        # every domain has the same index
        index = self.hash_indexes.get(f"{Domain.PERSISTENT.value}://{namespace}")
        if index is None:
            return None
        digest, lowers, routes = index
        # Half of a surrogate pair is hashed as "?", as Java does it.
        return routes[bisect_right(lowers, digest(full.encode("utf-8", "replace"))) - 1]

    def answer(self, topic: str, listener: str = "") -> Answer:
        """Return the answer to a client's lookup of the topic.

        listener: name of the advertised listener whose addresses the client wants, "" for none.
        Raises InvalidNameError as `lookup`.
        """
        route = self.lookup(topic)
        if route is None:
            return Answer(outcome=LookupOutcome.NAMESPACE_NOT_FOUND)
        if not route.broker:
            return Answer(outcome=LookupOutcome.NO_OWNER, route=route)
        address = self.brokers.get(route.broker)
        if address is None:
            return Answer(outcome=LookupOutcome.BROKER_UNKNOWN, route=route)
        if listener and listener not in address.listeners:
            return Answer(outcome=LookupOutcome.LISTENER_UNKNOWN, route=route, address=address)
        return Answer(outcome=LookupOutcome.FOUND, route=route, address=address)

    @property
    def bundle_count(self) -> int:
        """Number of live bundles of existing namespaces."""
        return sum(len(self.namespaces[name].live) for name in self.names)

    def at(self, position: TablePosition) -> "LookupSnapshot":
        """Return the same content at another position."""
        return replace(self, position=position)

    def with_brokers(self, brokers: Iterable[BrokerAddress]) -> "LookupSnapshot":
        """Return the same bundles with these brokers."""
        return replace(self, brokers={broker.broker: broker for broker in brokers})

    def with_namespaces(self, hashes: Mapping[str, HashFunction]) -> "LookupSnapshot":
        """Return the same bundles with exactly these namespaces and hash functions."""
        known = {**{name: NamespaceRoutes(namespace=name) for name in hashes}, **self.namespaces}
        return self.with_replaced(
            [found.with_hash(hashes.get(name)) for name, found in known.items()]
        )

    def with_routes(self, routes: Iterable[BundleRoute]) -> "LookupSnapshot":
        """Return the snapshot with each newer version of a bundle.

        Routes may come in any order, and repeatedly. O(namespaces) for the copy of the maps, and
        `NamespaceRoutes.fold` for each namespace touched.
        """
        touched: dict[str, list[BundleRoute]] = {}
        for route in routes:
            touched.setdefault(route.namespace, []).append(route)
        return self.with_replaced(
            [
                self.namespaces.get(name, NamespaceRoutes(namespace=name)).fold(newer)
                for name, newer in touched.items()
            ]
        )

    def with_replaced(self, found: Iterable[NamespaceRoutes]) -> "LookupSnapshot":
        """Return the snapshot with these namespaces; self if it has them already."""
        changed = [one for one in found if one is not self.namespaces.get(one.namespace)]
        if not changed:
            return self
        namespaces, hash_indexes = dict(self.namespaces), dict(self.hash_indexes)
        unsound = dict(self.unsound)
        for one in changed:
            namespaces[one.namespace] = one
            if one.hash_function is None and not one.live:
                del namespaces[one.namespace]
            unsound.pop(one.namespace, None)
            if one.hash_function is not None and one.unsound is not None:
                unsound[one.namespace] = one.unsound
            _set_hash_indexes(hash_indexes, one)
        return replace(
            self,
            namespaces=namespaces,
            hash_indexes=hash_indexes,
            unsound=unsound,
            names=self._names_after(changed),
        )

    def _names_after(self, changed: Sequence[NamespaceRoutes]) -> tuple[str, ...]:
        # pop takes the known names out of `exist`, so that the new ones are left there
        exist = {found.namespace: found.hash_function is not None for found in changed}
        kept = [name for name in self.names if exist.pop(name, True)]
        new = [name for name, is_there in exist.items() if is_there]
        if not new and len(kept) == len(self.names):
            return self.names
        return tuple(sorted([*kept, *new]))


def _set_hash_indexes(hash_indexes: dict[str, HashIndex], found: NamespaceRoutes) -> None:
    prefixes = [f"{domain.value}://{found.namespace}" for domain in Domain]
    if found.hash_function is None:
        for prefix in prefixes:
            hash_indexes.pop(prefix, None)
        return
    # without bundles yet, one route over the whole range, which nobody owns
    routes = found.live or (placeholder_route(found.namespace),)
    index = (DIGESTS[found.hash_function], tuple(route.lower for route in routes), routes)
    hash_indexes.update(dict.fromkeys(prefixes, index))


def find_regressions(old: LookupSnapshot, new: LookupSnapshot) -> list[str]:
    """Return bundles whose version in `new` is lower than in `old`, by name.

    A bundle without record in `new` has not gone back: its tombstone was removed.
    """
    gone_back: list[str] = []
    for name, before in old.namespaces.items():
        after = new.namespaces.get(name, NamespaceRoutes(namespace=name)).records
        gone_back += [
            bundle
            for bundle, route in before.records.items()
            if bundle in after and after[bundle].version_id < route.version_id
        ]
    return sorted(gone_back)
