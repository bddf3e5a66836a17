"""The transfer shedder's named switches, its trace, and its view of a snapshot."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from lbcore.config.placement import FilterConfig
from lbcore.config.shedding import TransferConfig
from lbcore.plan.filter.policies import Policies
from lbcore.plan.shed.common import TransferState, owner_index
from lbcore.plan.shed.transfer import (
    TopBundle,
    TransferView,
    find_transfers,
    transfer_view,
)
from lbcore.plan.snapshot import Snapshot
from tests.conformance.reference.pulsar_section import section_from_pulsar
from tests.support.values.clusters import broker_table, bundle_table, snapshot

NOW_MS = 5_000_000
AT_ONCE = TransferConfig(hit_count_threshold=0)


@dataclass(frozen=True)
class Lists:
    """Top lists; every bundle may go everywhere except those named."""

    reports: dict[str, list[tuple[str, float]]]
    held: dict[str, str] = field(default_factory=dict)

    def report(self, broker: str) -> Sequence[TopBundle] | None:
        """The broker's list."""
        return [
            TopBundle(
                bundle=one,
                throughput=volume,
                is_own=self.held.get(one) != "not_owned",
                is_held=self.held.get(one) == "held",
            )
            for one, volume in self.reports[broker]
        ]

    def admits(self, bundle: str, _broker: str) -> bool:
        """All brokers, or none for one held as not transferable."""
        return self.held.get(bundle) != "not_transferable"


def two_brokers(lists: Lists) -> TransferView:
    """A hot and a cold broker whose load is their bundles' throughput."""
    volumes = np.array([sum(one for _, one in lists.reports[name]) for name in ("cold", "hot")])
    return TransferView(
        names=("cold", "hot"),
        load=volumes / 100.0,
        throughput=volumes,
        throughput_ema=volumes,
        updated_at_ms=np.array([NOW_MS, NOW_MS]),
        registered=frozenset({"cold", "hot"}),
        report=lists.report,
        admits=lists.admits,
    )


SWAP = Lists({"hot": [("h1", 40.0), ("h2", 50.0)], "cold": [("c1", 3.0), ("c2", 3.0), ("c3", 4.0)]})


def test_pulsars_normal_mode_predicts_as_if_nothing_came_back() -> None:
    swap = Lists({"hot": [("h1", 44.0), ("h2", 46.0)], "cold": SWAP.reports["cold"]})
    ours, _ = find_transfers(two_brokers(swap), TransferState(), AT_ONCE, NOW_MS)
    quirk = section_from_pulsar(
        TransferConfig, {"loadBalancerSheddingConditionHitCountThreshold": 0}
    )
    pulsars, _ = find_transfers(two_brokers(swap), TransferState(), quirk, NOW_MS)
    assert pulsars.decisions == ours.decisions
    assert ours.final_std == pytest.approx(0.02)
    assert pulsars.final_std == pytest.approx(0.04)


@pytest.mark.parametrize("reason", ["not_owned", "held", "not_transferable"])
def test_bundle_that_is_held_stays(reason: str) -> None:
    volumes = [("h1", 10.0), ("h2", 11.0), ("h3", 12.0)]
    lists = Lists({"hot": volumes, "cold": []}, held={"h1": reason})
    outcome, _ = find_transfers(two_brokers(lists), TransferState(), AT_ONCE, NOW_MS)
    assert [one.bundle for one in outcome.decisions] == ["h2"]


@pytest.mark.parametrize(
    ("hot", "moved"),
    [
        ([("h0", 0.0), ("h1", 10.0), ("h2", 90.0)], ["h1"]),
        ([("h1", 10.0), ("h2", 30.0)], ["h1"]),
    ],
)
def test_last_idle_and_too_heavy_bundles_stay(
    hot: list[tuple[str, float]], moved: list[str]
) -> None:
    lists = Lists({"hot": hot, "cold": []})
    outcome, _ = find_transfers(two_brokers(lists), TransferState(), AT_ONCE, NOW_MS)
    assert [one.bundle for one in outcome.decisions] == moved


def busy_cluster() -> Snapshot:
    """b0 holds twelve bundles of rising throughput, b1 one without any, b2 none."""
    names = [f"t/n{at % 3}/{at:02d}" for at in range(13)]
    short = np.zeros((13, 4))
    short[:12, 2] = [10_000.0 * (at + 1) for at in range(12)]
    short[:12, 0] = [200.0 * (at + 1) for at in range(12)]
    traffic = np.array([[0, 0, short[:, 2].sum(), 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    brokers = broker_table(
        ["b0", "b1", "b2"],
        traffic=traffic,
        weighted_max_ema=np.array([0.9, 0.1, 0.05]),
        throughput_ema=traffic[:, 2],
        updated_at_ms=np.full(3, NOW_MS),
    )
    owner = np.array([0] * 12 + [1])
    return snapshot(brokers, bundle_table(names, owner=owner, short=short))


def view_of(snap: Snapshot, policies: Policies, *, with_policies: bool = False) -> TransferView:
    """The view with lists of three bundles."""
    snap = replace(snap, policies=policies)
    owned = owner_index(snap)
    return transfer_view(snap, owned, FilterConfig(), 3, with_policies=with_policies)


def test_view_of_a_snapshot_leaves_bundles_with_policies_out_unless_asked_for() -> None:
    policies = Policies(anti_affinity={"t/n2": "g", "t/n1": "g"})
    listed = view_of(busy_cluster(), policies).report("b0")
    assert [one.bundle for one in listed or ()] == ["t/n0/03", "t/n0/06", "t/n0/09"]
    view = view_of(busy_cluster(), policies, with_policies=True)
    assert [one.bundle for one in view.report("b0") or ()][-1] == "t/n2/11"


def test_view_of_a_snapshot_asks_the_extensible_filters() -> None:
    snap = busy_cluster()
    snap = replace(snap, brokers=replace(snap.brokers, is_draining=np.array([False, False, True])))
    view = view_of(snap, Policies())
    view.report("b0")
    admitted = [name for name in ("b0", "b1", "b2") if view.admits("t/n0/09", name)]
    assert admitted == ["b0", "b1"]


def test_view_of_a_snapshot_moves_only_bundles_that_can() -> None:
    snap = busy_cluster()
    can_move = np.ones(13, dtype=np.bool_)
    can_move[9] = False
    snap = replace(snap, bundles=replace(snap.bundles, can_move=can_move))
    outcome, _ = find_transfers(view_of(snap, Policies()), TransferState(), AT_ONCE, NOW_MS)
    assert [(one.bundle, one.destination) for one in outcome.decisions] == [
        ("t/n1/10", "b2"),
        ("t/n2/11", "b2"),
    ]
