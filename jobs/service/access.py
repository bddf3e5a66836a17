"""Who asks, and what they may: roles on clusters and tenants.

Decides whether a caller's grants are enough for a role on a tenant; where grants come from is
`tokens`' and `certificates'`. Source: ours; Pulsar's superuser is an admin of the whole cluster.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

ANY = "*"


class Role(IntEnum):
    """What one may do; each may also do what those before it may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A role on one cluster and one tenant; "*" stands for all of them."""

    role: Role
    cluster: str = ANY
    tenant: str = ANY

    def covers(self, role: Role, cluster: str, tenant: str) -> bool:
        """Whether this is enough; tenant "*" asks for the right over the whole cluster."""
        return self.role >= role and self.cluster in (ANY, cluster) and self.tenant in (ANY, tenant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: name, the address the connection comes from, and what was granted.

    expires_at_s: when the proof is one no more (seconds since 1970), None = never.
    """

    name: str
    address: str
    grants: tuple[Grant, ...] = field(default=())
    expires_at_s: float | None = None

    def may(self, role: Role, cluster: str, tenant: str = ANY) -> bool:
        """Whether one of the grants is enough."""
        return any(grant.covers(role, cluster, tenant) for grant in self.grants)


def parse_grant(text: str) -> Grant:
    """A grant written as "role:cluster/tenant", "role:cluster" or "role".

    Raises ValueError for what is none.
    """
    role, _, place = text.partition(":")
    cluster, _, tenant = place.partition("/")
    try:
        return Grant(role=Role[role.strip().upper()], cluster=cluster or ANY, tenant=tenant or ANY)
    except KeyError:
        known = ", ".join(one.name.lower() for one in Role)
        raise ValueError(f"{text!r} is no grant: it begins with one of {known}") from None


def parse_grants(lines: Iterable[str]) -> dict[str, tuple[Grant, ...]]:
    """Name → grants, from lines "NAME ROLE:CLUSTER/TENANT"; raises ValueError."""
    grants: dict[str, tuple[Grant, ...]] = {}
    for line in lines:
        name, _, text = line.strip().rpartition(" ")
        if not name.strip():
            raise ValueError(f"{line!r} names nobody: write 'NAME ROLE:CLUSTER/TENANT'")
        grants[name.strip()] = (*grants.get(name.strip(), ()), parse_grant(text))
    return grants


ANONYMOUS = "anonymous"


def anonymous(address: str) -> Caller:
    """Whoever asks a service without authentication: may everything."""
    return Caller(name=ANONYMOUS, address=address, grants=(Grant(role=Role.ADMIN),))
