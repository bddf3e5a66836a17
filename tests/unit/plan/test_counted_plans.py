"""What one plan counts: groups, turns, weights, versions, and brokers that cool down."""

from dataclasses import replace

import numpy as np
import pytest

from lbcore.config.placement import AVG, FilterConfig, PlacementConfig
from lbcore.config.shedding import TransferConfig
from lbcore.plan.filter.index import FilterVerdict, candidate_index
from lbcore.plan.filter.pipeline import UNREADABLE, of_latest_version
from lbcore.plan.filter.policies import IsolationPolicy, Policies
from lbcore.plan.filter.unload import unload_verdicts
from lbcore.plan.place.place import place_bundles, placing_order
from lbcore.plan.place.request import (
    COUNT_MAX,
    PlacementState,
    PlaceSettings,
    Rotation,
    place_request,
)
from lbcore.plan.shed.common import TransferState
from lbcore.plan.shed.transfer import Reason, TransferView, find_transfers
from lbcore.plan.snapshot import Snapshot, throughput
from tests.support.values.clusters import broker_table, bundle_table, snapshot


def grouped(owners: list[int], *policies: IsolationPolicy) -> Snapshot:
    """Bundles of one anti-affinity group, each of a namespace of its own, on three brokers."""
    names = [f"t/n{at}/0" for at in range(len(owners))]
    groups = {f"t/n{at}": "g" for at in range(len(owners))}
    traffic = np.zeros((3, 4))
    traffic[2] = 1e5  # nobody would choose b3 but for the group
    brokers = broker_table(["b1", "b2", "b3"], traffic=traffic)
    made = snapshot(brokers, bundle_table(names, owner=np.array(owners)))
    return replace(made, policies=Policies(isolation=policies, anti_affinity=groups))


@pytest.mark.parametrize("pipeline", ["modular", "extensible"])
def test_bundles_of_a_group_that_one_plan_places_go_to_different_brokers(pipeline: str) -> None:
    snap = grouped([-1, -1, -1, 0])
    filters = FilterConfig(pipeline=pipeline, distribute_evenly=False)
    settings = PlaceSettings(placement=PlacementConfig(strategy=AVG), filters=filters)
    rows, usage = np.arange(3), np.zeros(3)
    request = place_request(snap, rows, candidate_index(snap), usage)
    found = place_bundles(request, PlacementState(), settings, 1).brokers.tolist()
    assert set(found[:2]) == {1, 2}


def test_bundle_whose_owner_may_not_have_it_is_no_prisoner_of_its_group() -> None:
    policy = IsolationPolicy(
        name="p",
        namespaces=("t/n0",),
        primary=("b2", "b3"),
        secondary=(),
        min_limit=1,
        usage_threshold_percent=100,
    )
    snap = grouped([0], policy)
    found = unload_verdicts(snap, candidate_index(snap), np.array([0]))
    assert found.tolist() == [FilterVerdict.OK]


def test_turn_begins_anew_after_javas_largest_number() -> None:
    rotation = Rotation(names=(), count=COUNT_MAX, order=np.array([4, 5]))
    assert rotation.next(np.array([4, 5])) == (4, 5)[COUNT_MAX % 2]
    assert (rotation.count, rotation.next(np.array([], dtype=np.int64))) == (0, -1)


def test_heaviest_bundles_are_placed_first_where_that_is_set() -> None:
    long = np.zeros((3, 4))
    long[:, 0] = 1.0, 3.0, 2.0
    snap = snapshot(broker_table(["b1"]), bundle_table(["t/n/0", "t/n/1", "t/n/2"], long=long))
    request = place_request(snap, np.arange(3), candidate_index(snap), np.zeros(1))
    for heaviest_first, order in ((True, [1, 2, 0]), (False, [0, 1, 2])):
        config = PlacementConfig(heaviest_first=heaviest_first)
        assert placing_order(request, config).tolist() == order


def test_latest_version_is_unknown_where_one_cannot_be_read() -> None:
    found = of_latest_version(np.array([0, 1, 2]), np.array([5, 7, 7]))
    assert found is not None
    assert found.tolist() == [1, 2]
    assert of_latest_version(np.array([0, 1]), np.array([5, UNREADABLE])) is None


def test_throughput_is_of_both_directions() -> None:
    assert throughput(np.array([[1.0, 2.0, 3.0, 4.0]])).tolist() == [7.0]


@pytest.mark.parametrize(
    ("ages_ms", "delay_ms", "left"),
    [((0, 0), 500, {"a": 0, "b": 0}), ((600, 0), 500, {"b": 0}), ((600, 600), 500, {})],
)
def test_broker_that_was_unloaded_lately_holds_the_cycle_until_it_has_cooled_down(
    ages_ms: tuple[int, int], delay_ms: int, left: dict[str, int]
) -> None:
    config = TransferConfig(shedding_delay_ms=delay_ms, load_data_ttl_ms=10_000)
    view = TransferView(
        names=("a", "b"),
        load=np.array([0.5, 0.5]),
        throughput=np.zeros(2),
        throughput_ema=np.zeros(2),
        updated_at_ms=np.array(ages_ms),
        registered=frozenset({"a", "b"}),
        report=lambda _: None,
        admits=lambda _bundle, _broker: True,
    )
    unloaded = TransferState(unloaded_brokers={"a": 0, "b": 0})
    found, state = find_transfers(view, unloaded, config, 600)
    assert dict(state.unloaded_brokers) == left
    assert (found.reason is Reason.COOL_DOWN) == bool(left)
