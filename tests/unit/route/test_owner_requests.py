"""One request for an owner a record, however many look it up."""

import pytest

from lbcore.ownership.records import State
from lbcore.route.bundles import BundleRoute
from lbcore.route.owner_requests import OwnerRequests, request_id


def route(state: State = State.FREE, version: int = 1, bundle: str = "a/b/0x0_0x1") -> BundleRoute:
    return BundleRoute(
        bundle=bundle, namespace="a/b", lower=0, upper=1, state=state, version_id=version
    )


def test_record_is_asked_for_once_in_five_seconds_and_the_next_version_at_once() -> None:
    requests = OwnerRequests()
    due = [requests.is_due(route(), now_s) for now_s in (0.0, 0.1, 4.9, 5.0, 5.1)]
    assert due == [True, False, False, True, False]
    assert requests.is_due(route(version=2), 5.1)


@pytest.mark.parametrize("state", [one for one in State if one is not State.FREE])
def test_bundle_that_is_on_its_way_is_not_asked_for(state: State) -> None:
    assert not OwnerRequests().is_due(route(state), 0.0)


def test_only_the_last_ten_thousand_are_remembered() -> None:
    requests = OwnerRequests()
    for number in range(10_001):
        assert requests.is_due(route(bundle=f"a/b/{number}"), 0.0)
    assert requests.is_due(route(bundle="a/b/0"), 0.0)
    assert not requests.is_due(route(bundle="a/b/10000"), 0.0)


def test_command_id_is_that_of_all_who_ask_within_five_seconds() -> None:
    ids = [request_id("c", route(), wall_s) for wall_s in (100.0, 104.9, 105.0)]
    assert ids[0] == ids[1] != ids[2]
    others = {request_id("d", route(), 100.0), request_id("c", route(version=2), 100.0)}
    assert ids[0] not in others
    assert len(others) == 2
