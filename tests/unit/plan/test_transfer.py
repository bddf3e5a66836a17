"""The transfer shedder's named switches, its trace, and its view of a snapshot."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from lbcore.config.placement import FilterConfig
from lbcore.config.shedding import TransferConfig
from lbcore.plan.filter.index import candidate_index
from lbcore.plan.filter.policies import Policies
from lbcore.plan.shed.common import owner_index
from lbcore.plan.shed.transfer import (
    TopLists,
    find_transfers,
    transfer_pipeline,
    transfer_view,
)
from lbcore.plan.shed.transfer_types import (
    Reason,
    TopBundle,
    TransferRefusal,
    TransferState,
    TransferView,
)
from lbcore.plan.snapshot import Snapshot
from tests.conformance.reference.pulsar_section import section_from_pulsar
from tests.support.values.clusters import broker_table, bundle_table, snapshot

NOW_MS = 5_000_000
AT_ONCE = TransferConfig(hit_count_threshold=0)
NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Lists:
    """Top lists; every bundle may go everywhere except those named."""

    reports: dict[str, list[tuple[str, float]]]
    held: dict[str, TransferRefusal] = field(default_factory=dict)

    def top_bundles(self, broker: str) -> Sequence[TopBundle] | None:
        """The broker's list."""
        return [TopBundle(bundle=one, throughput=volume) for one, volume in self.reports[broker]]

    def is_owner(self, bundle: str, _broker: str) -> bool:
        """Unless held as not owned."""
        return self.held.get(bundle) != TransferRefusal.NOT_OWNED

    def is_excluded(self, bundle: str) -> bool:
        """Held as excluded."""
        return self.held.get(bundle) == TransferRefusal.EXCLUDED_NAMESPACE

    def is_recently_unloaded(self, bundle: str) -> bool:
        """Held as recent."""
        return self.held.get(bundle) == TransferRefusal.RECENTLY_UNLOADED

    def has_policy(self, _bundle: str) -> bool:
        """None has."""
        return False

    def candidates(self, bundle: str) -> Container[str] | None:
        """All brokers, or none for one held as not transferable."""
        return [] if self.held.get(bundle) == TransferRefusal.NOT_TRANSFERABLE else ["cold", "hot"]


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
        lookup=lists,
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
    assert pulsars.pairs[0].gained == 0.0
    assert ours.final_std == pytest.approx(0.02)
    assert pulsars.final_std == pytest.approx(0.04)


@pytest.mark.parametrize("reason", [one for one in TransferRefusal if one.value.islower()][:4])
def test_bundle_that_is_held_is_refused_with_its_reason(reason: TransferRefusal) -> None:
    volumes = [("h1", 10.0), ("h2", 11.0), ("h3", 12.0)]
    lists = Lists({"hot": volumes, "cold": []}, held={"h1": reason})
    outcome, _ = find_transfers(two_brokers(lists), TransferState(), AT_ONCE, NOW_MS)
    assert outcome.pairs[0].refused[0] == ("h1", reason)
    assert [one.bundle for one in outcome.decisions] == ["h2"]


def test_last_idle_and_too_heavy_bundles_are_refused_with_their_reasons() -> None:
    lists = Lists({"hot": [("h0", 0.0), ("h1", 10.0), ("h2", 90.0)], "cold": []})
    outcome, _ = find_transfers(two_brokers(lists), TransferState(), AT_ONCE, NOW_MS)
    assert outcome.pairs[0].refused == (
        ("h0", TransferRefusal.NO_THROUGHPUT),
        ("h2", TransferRefusal.ABOVE_TARGET),
    )
    lists = Lists({"hot": [("h1", 10.0), ("h2", 30.0)], "cold": []})
    outcome, _ = find_transfers(two_brokers(lists), TransferState(), AT_ONCE, NOW_MS)
    assert outcome.pairs[0].refused == (("h2", TransferRefusal.LAST_BUNDLE),)


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
    config = FilterConfig()
    snap = replace(snap, policies=policies)
    index = candidate_index(snap)
    pipeline = transfer_pipeline(snap, index, config)
    lists = TopLists(limit=3, with_policies=with_policies)
    return transfer_view(snap, owner_index(snap), pipeline, lists)


def test_view_of_a_snapshot_lists_the_heaviest_bundles_lightest_first() -> None:
    lookup = view_of(busy_cluster(), Policies()).lookup
    assert [one.bundle for one in lookup.top_bundles("b0") or ()] == [
        "t/n0/09",
        "t/n1/10",
        "t/n2/11",
    ]
    assert lookup.top_bundles("b1") == []
    assert lookup.is_owner("t/n0/09", "b0")
    assert not lookup.is_owner("t/n0/09", "b1")
    assert not lookup.is_excluded("t/n0/09")


def test_view_of_a_snapshot_leaves_bundles_with_policies_out_unless_asked_for() -> None:
    policies = Policies(anti_affinity={"t/n2": "g", "t/n1": "g"})
    listed = view_of(busy_cluster(), policies).lookup.top_bundles("b0")
    assert [one.bundle for one in listed or ()] == ["t/n0/03", "t/n0/06", "t/n0/09"]
    lookup = view_of(busy_cluster(), policies, with_policies=True).lookup
    assert [one.bundle for one in lookup.top_bundles("b0") or ()][-1] == "t/n2/11"
    assert lookup.has_policy("t/n2/11")
    assert not lookup.has_policy("t/n0/09")


def test_view_of_a_snapshot_asks_the_extensible_filters() -> None:
    snap = busy_cluster()
    snap = replace(snap, brokers=replace(snap.brokers, is_draining=np.array([False, False, True])))
    lookup = view_of(snap, Policies()).lookup
    lookup.top_bundles("b0")
    candidates = lookup.candidates("t/n0/09")
    assert candidates is not None
    assert [name for name in ("b0", "b1", "b2", "b9") if name in candidates] == ["b0", "b1"]


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
    assert outcome.pairs[0].refused == (("t/n0/09", TransferRefusal.RECENTLY_UNLOADED),)


def test_broker_that_never_reported_ends_the_cycle() -> None:
    snap = busy_cluster()
    silent = replace(snap.brokers, updated_at_ms=np.array([NOW_MS, NOW_MS, 0]))
    view = view_of(replace(snap, brokers=silent), Policies())
    assert view.names == ("b0", "b1")
    outcome, _ = find_transfers(view, TransferState(), AT_ONCE, NOW_MS)
    assert outcome.reason == Reason.NO_LOAD_DATA
