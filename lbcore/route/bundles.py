"""The records of one namespace's bundles as a lookup needs them: ranges in order, one answer each.

Decides whom a client is sent to in each state, and whether the live bundles of a namespace are a
sound division of the hash space; not who shall own what. Stands under `route.snapshot`.
Source: Pulsar 4.0.8, ServiceUnitStateChannelImpl.getOwner; the soundness rules are ours.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from lbcore.model.hashing import HashFunction
from lbcore.model.names import FULL_LOWER, FULL_UPPER, format_bundle, format_range
from lbcore.ownership.records import State

DEAD_STATES = frozenset({State.INIT, State.DELETED})
"""States of bundles that are not (any more) part of their namespace."""


class Unsound(str, Enum):
    """Why bundles must not be answered from; also the label of the refusals metric."""

    GAP = "gap"
    OVERLAP = "overlap"
    OWNER_MISSING = "owner_missing"
    VERSION_WENT_BACK = "version_went_back"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRoute:
    """One bundle's record, cut down to what a lookup needs.

    lower, upper: hashes lower <= h < upper, and h = upper when that is 0xffffffff. `broker` is whom
    clients are sent to, "" when nobody for now.
    """

    bundle: str
    namespace: str
    lower: int
    upper: int
    state: State
    version_id: int
    source: str = ""
    destination: str = ""
    broker: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "broker", serving_broker(self))

    @property
    def range_text(self) -> str:
        """The range as Pulsar writes it, e.g. "0x00000000_0x40000000"."""
        return format_range(self.lower, self.upper)


def serving_broker(route: BundleRoute) -> str:
    """Whom a client is sent to: the owner, in a transition the coming one, "" for nobody.

    Owned, Assigning, Releasing → destination (a Releasing without one: nobody); Splitting → source;
    Init, Free, Deleted → nobody.
    """
    if route.state is State.SPLITTING:
        return route.source
    if route.state in (State.OWNED, State.ASSIGNING, State.RELEASING):
        return route.destination
    return ""


def unborn(namespace: str) -> BundleRoute:
    """The answer for a namespace whose bundles are not known yet: Init, version 0, all hashes."""
    return BundleRoute(
        bundle=format_bundle(namespace, FULL_LOWER, FULL_UPPER),
        namespace=namespace,
        lower=FULL_LOWER,
        upper=FULL_UPPER,
        state=State.INIT,
        version_id=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRoutes:
    """All records of a namespace's bundles, and the live ones ready to be searched.

    hash_function: None while the namespace is not known, or deleted: then nothing is answered.
    records: the highest version of each bundle seen, dead ones too, so that an older version that
    comes late is recognised. live: ascending, the states other than Init and Deleted; sound
    (disjoint, covering all hashes) unless `unsound` says why not. No live bundle at all is sound:
    the namespace is being made.
    """

    namespace: str
    hash_function: HashFunction | None = None
    records: Mapping[str, BundleRoute] = field(default_factory=dict)
    live: tuple[BundleRoute, ...] = ()
    unsound: Unsound | None = None

    def fold(self, routes: Iterable[BundleRoute]) -> "NamespaceRoutes":
        """These routes with each newer version taken over; self when there is none.

        In any order, any number of times: the highest version of a bundle wins.
        O(bundles log bundles) of the namespace.
        """
        newer: dict[str, BundleRoute] = {}
        for route in routes:
            known = newer.get(route.bundle) or self.records.get(route.bundle)
            if known is None or route.version_id > known.version_id:
                newer[route.bundle] = route
        if not newer:
            return self
        records = {**self.records, **newer}
        live = sorted(
            (route for route in records.values() if route.state not in DEAD_STATES),
            key=lambda route: (route.lower, route.upper),
        )
        return NamespaceRoutes(
            namespace=self.namespace,
            hash_function=self.hash_function,
            records=records,
            live=tuple(live),
            unsound=find_unsound(live),
        )

    def with_hash(self, function: HashFunction | None) -> "NamespaceRoutes":
        """The same bundles under a hash function, or under none."""
        if function is self.hash_function:
            return self
        return NamespaceRoutes(
            namespace=self.namespace,
            hash_function=function,
            records=self.records,
            live=self.live,
            unsound=self.unsound,
        )


def find_unsound(live: Iterable[BundleRoute]) -> Unsound | None:
    """What is wrong with the live bundles of a namespace (ascending), None when nothing is.

    They must divide the hash space without gap or overlap, and each that is owned or in a
    transition that has an owner must name it.
    """
    routes = tuple(live)
    if not routes:
        return None
    if routes[0].lower != FULL_LOWER or routes[-1].upper != FULL_UPPER:
        return Unsound.GAP
    for left, right in pairwise(routes):
        if left.upper != right.lower:
            return Unsound.OVERLAP if left.upper > right.lower else Unsound.GAP
    named = (State.OWNED, State.ASSIGNING, State.SPLITTING)
    if any(route.state in named and not route.broker for route in routes):
        return Unsound.OWNER_MISSING
    return None
