"""Which bundles may leave their broker."""

import numpy as np

from lbcore.config.filters import FilterConfig
from lbcore.plan.filter.index import FilterInput, index_candidates
from lbcore.plan.filter.policies import IsolationPolicy, Policies
from lbcore.plan.filter.unload import BundleFacts, bundle_verdicts, unload_verdicts
from lbcore.plan.filter.verdict import FilterVerdict
from tests.support.values.clusters import broker_table, bundle_table, snapshot


def test_bundle_that_stays_has_the_reason_why() -> None:
    names = ["t/n/0", "t/n/1", "t/n/2", "t/n/3", "t/x/4", "pulsar/b1:8080/5", "sla-monitor/c/b:1/6"]
    names.append("t/y/7")
    snap = snapshot(
        broker_table(["a", "b"]), bundle_table(names, owner=np.zeros(8, dtype=np.int64))
    )
    facts = BundleFacts(
        is_recently_unloaded=np.array([False, True, False, False, True, False, False, True]),
        is_in_flight=np.array([False, False, False, True, False, False, False, False]),
        is_paused=np.array([False] * 7 + [True]),
        pin=np.array([1, -1, 0, -1, -1, -1, -1, -1]),
    )
    found = bundle_verdicts(snap, facts, {"t/x"}).tolist()
    assert found == [
        FilterVerdict.OK,
        FilterVerdict.RECENTLY_UNLOADED,
        FilterVerdict.PINNED,
        FilterVerdict.IN_FLIGHT,
        FilterVerdict.EXCLUDED_NAMESPACE,
        FilterVerdict.SYSTEM_NAMESPACE,
        FilterVerdict.SYSTEM_NAMESPACE,
        FilterVerdict.PAUSED,
    ]


def test_system_namespaces_of_pulsar_itself_may_be_shed() -> None:
    snap = snapshot(broker_table(["a"]), bundle_table(["pulsar/system/0"]))
    quiet = np.zeros(1, dtype=np.bool_)
    facts = BundleFacts(
        is_recently_unloaded=quiet, is_in_flight=quiet, is_paused=quiet, pin=np.array([-1])
    )
    assert bundle_verdicts(snap, facts, ()).tolist() == [FilterVerdict.OK]


def refusals(spaces: list[str], owners: list[int], policies: Policies) -> list[FilterVerdict]:
    """The verdict of each bundle, all of which are to leave."""
    snap = snapshot(
        broker_table(["a1", "a2", "b1"]),
        bundle_table([f"{space}/{at}" for at, space in enumerate(spaces)], owner=np.array(owners)),
    )
    inputs = FilterInput.plain(snap, np.zeros(3), policies)
    index = index_candidates(snap, inputs, FilterConfig())
    return [FilterVerdict(one) for one in unload_verdicts(snap, index, np.arange(len(owners)))]


def test_bundle_whose_policy_admits_nobody_else_stays() -> None:
    policy = IsolationPolicy(name="p", namespaces=("t/p",), primary=("b1",))
    found = refusals(["t/p", "t/p", "t/n"], [2, 0, 0], Policies(isolation=(policy,)))
    assert found == [FilterVerdict.NO_OTHER_BROKER, FilterVerdict.OK, FilterVerdict.OK]


def test_bundle_of_a_group_spread_evenly_stays() -> None:
    group = Policies(anti_affinity={"t/a": "g", "t/b": "g", "t/c": "g", "t/d": "g"})
    assert refusals(["t/a", "t/b", "t/c"], [0, 1, 2], group) == [FilterVerdict.ANTI_AFFINITY] * 3


def test_bundle_of_a_group_with_more_than_the_least_may_leave() -> None:
    group = Policies(anti_affinity={"t/a": "g", "t/b": "g", "t/c": "g", "t/d": "g"})
    found = refusals(["t/a", "t/b", "t/c", "t/d"], [0, 1, 2, 0], group)
    assert found == [FilterVerdict.OK] * 4
    assert refusals(["t/a", "t/b"], [0, 1], group) == [FilterVerdict.OK] * 2
