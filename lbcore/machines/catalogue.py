"""The catalogue: tenants and topics that somebody has made, which no bundle's record can tell.

Decides nothing; handlers of commands change it, and nothing in balancing reads it. Kept by the
balancer because it alone writes, and in the tables `tenants` and `topics`. Source: ours; the fields
are those of Pulsar 4.0.8's TenantInfo and PartitionedTopicMetadata.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lbcore import packing
from lbcore.machines.effects import to_json
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

    tenants: by name. topics: full name → number of partitions, 0 = not partitioned. blob: itself
    packed, made once, because a long list changes rarely and is packed in every batch.
    """

    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    blob: bytes = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        plain = {
            "tenants": {
                name: [list(tenant.admin_roles), list(tenant.allowed_clusters)]
                for name, tenant in sorted(self.tenants.items())
            },
            "topics": dict(sorted(self.topics.items())),
        }
        object.__setattr__(self, "blob", packing.pack(plain, {}))

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

    def with_tenant(self, name: str, tenant: Tenant | None) -> "Catalogue":
        """With a tenant as given, or without it."""
        return Catalogue(tenants=_with(self.tenants, name, tenant), topics=self.topics)

    def with_topics(self, partitions: Mapping[str, int | None]) -> "Catalogue":
        """With some topics as given, or (None) without them."""
        topics = dict(self.topics)
        for name, count in partitions.items():
            if count is None:
                topics.pop(name, None)
            else:
                topics[name] = count
        return Catalogue(tenants=self.tenants, topics=topics)

    def topics_of(self, namespace: str) -> list[str]:
        """The full names of a namespace's topics, sorted. O(topics)."""
        return sorted(name for name in self.topics if namespace_of_topic(name) == namespace)


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


def _with(known: Mapping[str, Tenant], name: str, value: Tenant | None) -> dict[str, Tenant]:
    left = {key: kept for key, kept in known.items() if key != name}
    return left if value is None else {**left, name: value}
