"""The catalogue: tenants and topics that somebody has made, which no bundle's record can tell.

Decides nothing; handlers of commands change it, and nothing in balancing reads it. Kept by the
balancer because it alone writes, and in the tables `tenants` and `topics`. Source: ours; the fields
are those of Pulsar 4.0.8's TenantInfo and PartitionedTopicMetadata.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbcore import packing
from lbcore.balancer.state.effects import to_json
from lbcore.model.names import namespace_of_topic

MAX_TOPICS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A tenant: who administers it, and the clusters it may have namespaces in."""

    admin_roles: tuple[str, ...] = ()
    allowed_clusters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """All of a cluster's.

    tenants: by name. topics: full name → number of partitions, 0 = not partitioned. What is derived
    from them is made when it is asked for, once, because a long list rarely changes.
    """

    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    _blobs: list[bytes] = field(default_factory=list, init=False, compare=False, repr=False)

    @property
    def blob(self) -> bytes:
        """Itself packed; equal catalogues give equal bytes."""
        if not self._blobs:
            plain = {
                "tenants": {
                    name: [list(tenant.admin_roles), list(tenant.allowed_clusters)]
                    for name, tenant in sorted(self.tenants.items())
                },
                "topics": dict(sorted(self.topics.items())),
            }
            self._blobs.append(packing.pack(plain, {}))
        return self._blobs[0]

    @staticmethod
    def unpack(blob: bytes | None) -> "Catalogue":
        """The inverse of `blob`; a state from before there was a catalogue has an empty one."""
        if blob is None:
            return Catalogue()
        plain, _ = packing.unpack(blob)
        return Catalogue(
            tenants={
                name: Tenant(admin_roles=tuple(roles), allowed_clusters=tuple(clusters))
                for name, (roles, clusters) in plain["tenants"].items()
            },
            topics=plain["topics"],
        )

    @staticmethod
    def from_rows(
        tenants: Iterable[Mapping[str, Any]], topics: Iterable[Mapping[str, Any]]
    ) -> "Catalogue":
        """The catalogue that the rows of `tenants` and `topics` hold."""
        return Catalogue(
            tenants={
                row["tenant"]: Tenant(
                    admin_roles=tuple(json.loads(row["admin_roles"])),
                    allowed_clusters=tuple(json.loads(row["allowed_clusters"])),
                )
                for row in tenants
                if not row["is_deleted"]
            },
            topics={row["topic"]: row["partitions"] for row in topics if not row["is_deleted"]},
        )

    def topics_of(self, namespace: str) -> list[str]:
        """The full names of a namespace's topics, sorted. O(topics)."""
        return sorted(name for name in self.topics if namespace_of_topic(name) == namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopics:
    """Topics that were created and may not be reported yet.

    hashes: ascending, of some of them; stands_for: of how many topics each is one.
    """

    hashes: NDArray[np.int64]
    stands_for: int


class OpenCatalogue:
    """A catalogue while one batch changes it: each change costs O(1), the first copies a list."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._before = catalogue
        self.tenants = catalogue.tenants
        self.topics = catalogue.topics
        self._by_namespace: dict[str, dict[str, int]] | None = None

    def close(self) -> Catalogue:
        """The catalogue as it is now; the same one when nothing has changed."""
        if self.tenants is self._before.tenants and self.topics is self._before.topics:
            return self._before
        return Catalogue(tenants=self.tenants, topics=self.topics)

    def copy(self) -> "OpenCatalogue":
        """Another one that is as this one is now, and that nothing done to this one changes."""
        other = OpenCatalogue(self._before)
        if self.tenants is not self._before.tenants:
            other.tenants = dict(self.tenants)
        if self.topics is not self._before.topics:
            other.topics = dict(self.topics)
        return other

    def set_tenant(self, name: str, tenant: Tenant | None) -> None:
        """Keep a tenant as given, or (None) no longer."""
        if self.tenants is self._before.tenants:
            self.tenants = dict(self.tenants)
        _set(self.tenants, name, tenant)

    def set_topic(self, name: str, partitions: int | None) -> None:
        """Keep a topic with so many partitions, or (None) no longer."""
        if self.topics is self._before.topics:
            self.topics = dict(self.topics)
        _set(self.topics, name, partitions)
        if self._by_namespace is not None:
            space = self._by_namespace.setdefault(namespace_of_topic(name), {})
            _set(space, name, partitions)

    def topics_of(self, namespace: str) -> Mapping[str, int]:
        """A namespace's topics, in no order. O(1), but for the first call, which is O(topics)."""
        if self._by_namespace is None:
            self._by_namespace = {}
            for name, partitions in self.topics.items():
                space = self._by_namespace.setdefault(namespace_of_topic(name), {})
                space[name] = partitions
        return self._by_namespace.get(namespace, {})


def _set(of: Any, name: str, value: Any) -> None:
    if value is None:
        of.pop(name, None)
    else:
        of[name] = value


def tenant_row(name: str, tenant: Tenant | None) -> dict[str, Any]:
    """A tenant, or that there is none any more, as a row of `tenants`."""
    kept = tenant or Tenant()
    return {
        "tenant": name,
        "admin_roles": to_json(list(kept.admin_roles)),
        "allowed_clusters": to_json(list(kept.allowed_clusters)),
        "is_deleted": tenant is None,
    }


def topic_row(name: str, partitions: int | None) -> dict[str, Any]:
    """A topic, or that there is none any more, as a row of `topics`."""
    return {
        "namespace": namespace_of_topic(name),
        "topic": name,
        "partitions": partitions or 0,
        "is_deleted": partitions is None,
    }
