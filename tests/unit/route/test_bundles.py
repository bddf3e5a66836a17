"""One namespace's records: whom a lookup is sent to, and when they are sound."""

import pytest

from lbcore.model.hashing import HashFunction
from lbcore.model.names import parse_bundle
from lbcore.ownership.records import State
from lbcore.route.bundles import BundleRoute, NamespaceRoutes, Unsound, unborn

LOW, HIGH = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
LOWER_QUARTER, UPPER_QUARTER = "t/n/0x00000000_0x40000000", "t/n/0x40000000_0x80000000"


def route(
    bundle: str,
    version_id: int = 1,
    state: State = State.OWNED,
    source: str = "",
    destination: str = "b1",
) -> BundleRoute:
    namespace, lower, upper = parse_bundle(bundle)
    return BundleRoute(
        bundle=bundle,
        namespace=namespace,
        lower=lower,
        upper=upper,
        state=state,
        version_id=version_id,
        source=source,
        destination=destination,
    )


def namespace(*routes: BundleRoute) -> NamespaceRoutes:
    empty = NamespaceRoutes(namespace="t/n", hash_function=HashFunction.CRC32)
    return empty.fold(routes)


@pytest.mark.parametrize(
    ("state", "source", "destination", "broker"),
    [
        (State.INIT, "", "", ""),
        (State.FREE, "b1", "", ""),
        (State.OWNED, "b1", "b2", "b2"),
        (State.ASSIGNING, "", "b2", "b2"),
        (State.ASSIGNING, "b1", "b2", "b2"),
        (State.RELEASING, "b1", "b2", "b2"),
        (State.RELEASING, "b1", "", ""),
        (State.SPLITTING, "b1", "", "b1"),
        (State.DELETED, "b1", "", ""),
    ],
)
def test_route_in_each_state_names_the_broker_that_pulsar_would(
    state: State, source: str, destination: str, broker: str
) -> None:
    assert route(LOW, state=state, source=source, destination=destination).broker == broker


def test_fold_orders_live_bundles_by_range() -> None:
    assert [found.bundle for found in namespace(route(HIGH), route(LOW)).live] == [LOW, HIGH]


def test_fold_of_an_older_or_equal_version_changes_nothing() -> None:
    before = namespace(route(LOW, 3), route(HIGH, 3))
    assert before.fold([route(LOW, 2, destination="b9")]) is before
    assert before.fold([route(LOW, 3, destination="b9")]) is before


def test_fold_of_a_split_replaces_the_parent_by_its_children() -> None:
    before = namespace(route(LOW), route(HIGH))
    after = before.fold(
        [
            route(LOWER_QUARTER),
            route(UPPER_QUARTER),
            route(LOW, 2, State.DELETED, source="b1", destination=""),
        ]
    )
    assert [found.bundle for found in after.live] == [LOWER_QUARTER, UPPER_QUARTER, HIGH]
    assert after.unsound is None


def test_fold_of_a_dead_bundles_older_version_does_not_bring_it_back() -> None:
    dead = namespace(route(LOW, 5, State.INIT, destination=""))
    assert dead.fold([route(LOW, 4)]).live == ()


@pytest.mark.parametrize(
    ("routes", "unsound"),
    [
        ((), None),
        ((route(LOW), route(HIGH)), None),
        ((route("t/n/0x00000000_0xffffffff"),), None),
        ((route(HIGH),), Unsound.GAP),
        ((route(LOW),), Unsound.GAP),
        ((route(LOWER_QUARTER), route(HIGH)), Unsound.GAP),
        ((route(LOW), route(UPPER_QUARTER), route(HIGH)), Unsound.OVERLAP),
        ((route(LOW), route(HIGH, destination="")), Unsound.OWNER_MISSING),
        ((route(LOW), route(HIGH, state=State.FREE, destination="")), None),
    ],
)
def test_fold_says_what_is_wrong_with_the_division(
    routes: tuple[BundleRoute, ...], unsound: Unsound | None
) -> None:
    assert namespace(*routes).unsound is unsound


def test_unborn_covers_all_hashes_and_has_no_broker() -> None:
    born = unborn("t/n")
    assert (born.lower, born.upper, born.broker) == (0, 0xFFFFFFFF, "")
    assert born.range_text == "0x00000000_0xffffffff"
