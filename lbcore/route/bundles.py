"""Records of a namespace's bundles for lookups: sorted ranges, one answer each.

Names the broker that a lookup answers in each state, and checks that the live bundles divide the
hash space soundly; the rules of soundness are Ballast's. Source: Pulsar 4.0.8,
ServiceUnitStateChannelImpl.getOwner.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from operator import attrgetter

from lbcore.model.bundles import HashFunction
from lbcore.model.names import FULL_LOWER, FULL_UPPER, format_bundle, format_range
from lbcore.ownership.records import State
from lbcore.ownership.states import RESHAPING

DEAD_STATES = frozenset({State.INIT, State.DELETED})
"""States of bundles that are not, or no longer, part of their namespace."""

_TO_DESTINATION = (State.OWNED, State.ASSIGNING, State.RELEASING)
_OWNED_STATES = frozenset({State.OWNED, State.ASSIGNING}) | RESHAPING


class Unsound(str, Enum):
    """Fault of a namespace's bundles; also the label of the refusals metric.

    While there is one, the follower keeps the cluster's last sound snapshot.
    """

    GAP = "gap"
    OVERLAP = "overlap"
    OWNER_MISSING = "owner_missing"
    VERSION_WENT_BACK = "version_went_back"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRoute:
    """The columns of a bundle's record that a lookup needs.

    lower, upper: hashes lower <= h < upper, and h = upper when that is 0xffffffff. broker: the
    broker that a lookup answers, in a transition the coming one; "" = none for now. Owned,
    Assigning, Releasing → destination (a Releasing without one: nobody); Splitting, Merging →
    source; Init, Free, Deleted → nobody.
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
        state, broker = self.state, ""
        if state in _TO_DESTINATION:
            broker = self.destination
        elif state in RESHAPING:
            broker = self.source
        object.__setattr__(self, "broker", broker)

    @property
    def range_text(self) -> str:
        """The range as Pulsar writes it, e.g. "0x00000000_0x40000000"."""
        return format_range(self.lower, self.upper)


def placeholder_route(namespace: str) -> BundleRoute:
    """Return the answer for a namespace of unknown bundles: Init, version 0."""
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
    """All records of a namespace's bundles, and the live ones sorted for search.

    hash_function: None while the namespace is unknown or deleted, which answers no lookup. records:
    the highest version of each bundle, dead ones too, so that late older versions are recognised.
    live: ascending, in states other than Init and Deleted; sound (disjoint, covering all hashes)
    unless `unsound` says why not. No live bundle at all is sound: the namespace is being made.
    """

    namespace: str
    hash_function: HashFunction | None = None
    records: Mapping[str, BundleRoute] = field(default_factory=dict)
    live: tuple[BundleRoute, ...] = ()
    unsound: Unsound | None = None

    def fold(self, routes: Iterable[BundleRoute]) -> "NamespaceRoutes":
        """Return the routes with each newer version; self when there is none.

        In any order, repeatedly: the highest version of a bundle wins. O(bundles log bundles) of
        the namespace.
        """
        newer: dict[str, BundleRoute] = {}
        for route in routes:
            known = newer.get(route.bundle) or self.records.get(route.bundle)
            if known is None or route.version_id > known.version_id:
                newer[route.bundle] = route
        if not newer:
            return self
        records = {**self.records, **newer}
        # most changes are transitions, which leave the order alone
        if all(
            bundle in self.records
            and (self.records[bundle].state in DEAD_STATES) == (after.state in DEAD_STATES)
            for bundle, after in newer.items()
        ):
            live = [newer.get(route.bundle, route) for route in self.live]
        else:
            live = [route for route in records.values() if route.state not in DEAD_STATES]
            live.sort(key=attrgetter("lower", "upper"))
        unsound = find_unsound(live)
        return replace(self, records=records, live=tuple(live), unsound=unsound)

    def with_hash(self, function: HashFunction | None) -> "NamespaceRoutes":
        """Return the same bundles with this hash function, None = none."""
        return self if function is self.hash_function else replace(self, hash_function=function)


def find_unsound(live: Sequence[BundleRoute]) -> Unsound | None:
    """Return the fault of a namespace's live bundles (ascending), None = none.

    They must divide the hash space without gap or overlap, and a state with an owner must name it.
    """
    if not live:
        return None
    lowers = [route.lower for route in live]
    uppers = [route.upper for route in live]
    if lowers[0] != FULL_LOWER or uppers[-1] != FULL_UPPER:
        return Unsound.GAP
    if uppers[:-1] != lowers[1:]:
        left, right = next(
            ends for ends in zip(uppers[:-1], lowers[1:], strict=True) if ends[0] != ends[1]
        )
        return Unsound.OVERLAP if left > right else Unsound.GAP
    if any(not route.broker and route.state in _OWNED_STATES for route in live):
        return Unsound.OWNER_MISSING
    return None
