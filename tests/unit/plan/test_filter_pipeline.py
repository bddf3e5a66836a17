"""The filters in order: every rejected broker has its reason, and the fallbacks are Pulsar's."""

from typing import Any

import numpy as np
import pytest

from lbcore.config.filters import FilterConfig
from lbcore.plan.filter.index import FilterInput, flapping_brokers, index_candidates
from lbcore.plan.filter.pipeline import FilterPipeline, FilterQuestion, Narrowed, empty_verdicts
from lbcore.plan.filter.policies import IsolationPolicy, Policies
from lbcore.plan.filter.verdict import FilterVerdict
from lbcore.plan.snapshot import Snapshot
from tests.support.values.clusters import broker_table, bundle_table, snapshot

NAMES = ["a1", "a2", "b1", "b2"]
EXTENSIBLE = FilterConfig(pipeline="extensible")


def cluster(owners: list[int], *, spaces: list[str] | None = None, **columns: Any) -> Snapshot:
    """Bundles of t/n, or of the given namespaces; the last one is to be placed."""
    named = spaces or ["t/n"] * len(owners)
    bundles = bundle_table(
        [f"{space}/{at}" for at, space in enumerate(named)],
        owner=np.array(owners),
        topics=np.ones(len(owners), dtype=np.int64),
    )
    return snapshot(broker_table(NAMES, **columns), bundles)


def asked(
    snap: Snapshot,
    config: FilterConfig,
    policies: Policies | None = None,
    question: FilterQuestion | None = None,
    **inputs: Any,
) -> tuple[Narrowed, list[str]]:
    """Who may take the last bundle, and the verdicts by label."""
    plain = FilterInput.plain(snap, np.zeros(len(NAMES)), policies or Policies())
    made = FilterInput(**{name: getattr(plain, name) for name in plain.__slots__} | inputs)
    last = len(snap.bundles.names) - 1
    index = index_candidates(snap, made, config)
    pipeline = FilterPipeline.of(snap, index, config, np.array([last]))
    verdicts = empty_verdicts(snap)
    narrowed = pipeline.candidates(question or FilterQuestion(bundle=last), verdicts)
    return narrowed, [FilterVerdict(code).label for code in verdicts.tolist()]


def test_pipeline_without_reasons_against_anybody_leaves_all() -> None:
    narrowed, labels = asked(cluster([-1]), FilterConfig())
    assert narrowed.left.tolist() == [0, 1, 2, 3]
    assert labels == ["ok"] * 4


def test_even_distribution_leaves_brokers_with_the_fewest_bundles_of_the_namespace() -> None:
    snap = cluster([0, 0, 1, 2, -1])
    assert asked(snap, FilterConfig())[1] == ["uneven", "uneven", "uneven", "ok"]
    assert asked(snap, FilterConfig(distribute_evenly=False))[1] == ["ok"] * 4
    assert asked(snap, EXTENSIBLE)[1] == ["ok"] * 4


def test_even_distribution_always_holds_for_the_system_namespace() -> None:
    snap = cluster([0, -1], spaces=["pulsar/system"] * 2)
    assert asked(snap, FilterConfig(distribute_evenly=False))[1][0] == "uneven"


@pytest.mark.parametrize(
    ("config", "labels"),
    [
        (FilterConfig(max_topics_per_broker=5), ["ok", "ok", "too_many_topics", "ok"]),
        (FilterConfig(max_topics_per_broker=3), ["ok"] * 4),
        (
            FilterConfig(pipeline="extensible", max_topics_per_broker=5),
            ["ok", "too_many_topics", "too_many_topics", "ok"],
        ),
        (FilterConfig(pipeline="extensible", max_topics_per_broker=4), ["too_many_topics"] * 4),
    ],
)
def test_topic_limit_is_above_for_modular_and_at_for_extensible(
    config: FilterConfig, labels: list[str]
) -> None:
    """Modular: all when it would leave nobody; extensible: then nobody."""
    assert asked(cluster([-1], topic_count=np.array([4, 5, 6, 4])), config)[1] == labels


def test_planned_topics_count_towards_the_limit() -> None:
    snap = cluster([-1, -1], topic_count=np.array([5, 5, 5, 4]))
    config = FilterConfig(max_topics_per_broker=5, distribute_evenly=False)
    index = index_candidates(snap, FilterInput.plain(snap, np.zeros(4), Policies()), config)
    pipeline = FilterPipeline.of(snap, index, config, np.array([0, 1]))
    pipeline.placed(0, 0)
    assert pipeline.candidates(FilterQuestion(bundle=1)).left.tolist() == [1, 2, 3]


def test_load_manager_class_must_be_the_configured_one() -> None:
    snap = cluster([-1], load_manager_classes=("X", "", "Y", "X"))
    labels = asked(snap, FilterConfig(load_manager_class="X"))[1]
    assert labels == ["ok", "load_manager_class", "load_manager_class", "ok"]


def test_nobody_of_the_class_restores_everybody_for_modular_only() -> None:
    snap = cluster([0, -1])
    narrowed, labels = asked(snap, FilterConfig(load_manager_class="X"))
    assert narrowed.is_restored
    assert labels == ["ok"] * 4
    narrowed, labels = asked(snap, FilterConfig(pipeline="extensible", load_manager_class="X"))
    assert narrowed.left.tolist() == []
    assert labels == ["load_manager_class"] * 4


def test_later_versions_are_preferred_when_asked_for() -> None:
    snap = cluster([-1], versions=("4.0.8", "4.1.0", "4.1.0+7", "4.1.0-rc.1"))
    assert asked(snap, FilterConfig())[1] == ["ok"] * 4
    labels = asked(snap, FilterConfig(prefer_later_versions=True))[1]
    assert labels == ["older_version", "ok", "ok", "older_version"]


@pytest.mark.parametrize("version", ["", "4.1"])
def test_unreadable_version_restores_all_for_modular_and_is_passed_over_by_extensible(
    version: str,
) -> None:
    snap = cluster(
        [0, -1],
        versions=("4.0.8", "4.1.0", version, "4.1.0"),
        load_manager_classes=("X", "X", "X", ""),
    )
    both = {"prefer_later_versions": True, "load_manager_class": "X"}
    narrowed, labels = asked(snap, FilterConfig(**both))
    assert (narrowed.is_failed, narrowed.is_restored) == (True, True)
    assert labels == ["ok"] * 4
    narrowed, labels = asked(snap, FilterConfig(pipeline="extensible", **both))
    assert narrowed.is_failed
    assert labels == ["ok", "ok", "ok", "load_manager_class"]


def test_only_remaining_brokers_count_for_the_latest_version() -> None:
    snap = cluster([0, -1], versions=("9.0.0", "4.1.0", "4.0.0", "4.1.0"))
    labels = asked(snap, FilterConfig(prefer_later_versions=True))[1]
    assert labels == ["uneven", "ok", "older_version", "ok"]


def test_anti_affinity_spreads_a_groups_namespaces_over_domains_then_brokers() -> None:
    """As in Pulsar's own example: d1 and d2 hold 3, d3 holds 4; b2 and b4 hold 1 each."""
    spaces = [f"t/{at}" for at in range(5)]
    policies = Policies(anti_affinity=dict.fromkeys(spaces, "G") | {"t/1": "g"})
    snap = cluster([0, 0, 1, 2, -1], spaces=spaces, failure_domains=("d1", "d1", "d2", "d2"))
    plain = FilterConfig(distribute_evenly=False)
    assert asked(snap, plain, policies)[1] == ["anti_affinity"] * 3 + ["ok"]
    by_domain = FilterConfig(distribute_evenly=False, failure_domains=True)
    assert asked(snap, by_domain, policies)[1] == ["failure_domain"] * 2 + ["anti_affinity", "ok"]


def test_anti_affinity_counts_a_namespace_once_a_broker() -> None:
    policies = Policies(anti_affinity={"t/a": "g", "t/b": "g"})
    snap = cluster([0, 0, 1, 2, 3, -1], spaces=["t/a", "t/a", "t/b", "t/a", "t/b", "t/b"])
    config = FilterConfig(distribute_evenly=False)
    assert asked(snap, config, policies)[1] == ["ok"] * 4


def test_brokers_without_a_domain_share_the_default_one() -> None:
    policies = Policies(anti_affinity={"t/a": "g", "t/b": "g"})
    snap = cluster([0, -1], spaces=["t/a", "t/b"], failure_domains=("", "", "d", "default"))
    config = FilterConfig(distribute_evenly=False, failure_domains=True)
    domain = "failure_domain"
    assert asked(snap, config, policies)[1] == [domain, domain, "ok", domain]


def test_isolation_comes_first_for_modular_and_last_for_extensible() -> None:
    policy = IsolationPolicy(name="p", namespaces=("t/a",), primary=("a1",), secondary=("b.*",))
    policies = Policies(isolation=(policy,), anti_affinity={"t/a": "g", "t/b": "g"})
    snap = cluster([0, -1], spaces=["t/b", "t/a"])
    config = FilterConfig(distribute_evenly=False)
    out, spare = "not_in_policy", "secondary_not_needed"
    assert asked(snap, config, policies)[1] == ["ok", out, spare, spare]
    narrowed, labels = asked(snap, EXTENSIBLE, policies)
    assert labels == ["anti_affinity", out, spare, spare]
    assert narrowed.left.tolist() == []


def test_draining_flapping_and_source_brokers_are_told_apart() -> None:
    snap = cluster([3, -1], is_draining=np.array([True, False, False, False]))
    flaps = np.array([False, True, False, False])
    question = FilterQuestion(bundle=1, excluded=2)
    narrowed, labels = asked(snap, FilterConfig(), question=question, is_flapping=flaps)
    assert labels == ["draining", "flapping", "current_owner", "ok"]
    assert narrowed.left.tolist() == [3]


def test_flapping_brokers_are_open_when_there_are_no_others() -> None:
    snap = cluster([-1], is_draining=np.array([True, False, False, False]))
    labels = asked(snap, FilterConfig(), is_flapping=np.ones(4, dtype=np.bool_))[1]
    assert labels == ["draining", "ok", "ok", "ok"]


def test_suspected_broker_is_closed_also_when_there_are_no_others() -> None:
    snap = cluster([-1], is_draining=np.array([True, False, False, False]))
    suspects, flaps = np.array([True, True, False, False]), np.array([False, True, False, True])
    labels = asked(snap, FilterConfig(), is_suspected=suspects, is_flapping=flaps)[1]
    assert labels == ["draining", "suspected", "ok", "flapping"]
    labels = asked(snap, FilterConfig(), is_suspected=np.ones(4, dtype=np.bool_))[1]
    assert labels == ["draining", "suspected", "suspected", "suspected"]


def test_pin_leaves_only_its_broker_before_everything_else() -> None:
    snap = cluster([2, 2, -1])
    labels = asked(snap, FilterConfig(), question=FilterQuestion(bundle=2, pin=2))[1]
    assert labels == ["pinned_elsewhere", "pinned_elsewhere", "ok", "pinned_elsewhere"]


@pytest.mark.parametrize("config", [FilterConfig(), EXTENSIBLE])
def test_pin_that_the_policies_or_a_drain_forbid_is_passed_over(config: FilterConfig) -> None:
    policy = IsolationPolicy(name="p", namespaces=("t/n",), primary=("b.*",))
    snap = cluster([-1], is_draining=np.array([False, False, True, False]))
    for pin in (0, 2):
        question = FilterQuestion(bundle=0, pin=pin)
        narrowed, _ = asked(snap, config, Policies(isolation=(policy,)), question)
        assert narrowed.left.tolist() == [3]


def test_broker_flaps_after_enough_starts_within_the_window() -> None:
    config = FilterConfig(flap_window_ms=1_000, flap_starts=2)
    starts = ((9_000, 9_500), (8_999, 9_500), (), (9_001, 9_002, 9_003))
    assert flapping_brokers(starts, 10_000, config).tolist() == [False, False, False, True]
    assert flapping_brokers(starts, 9_999, config).tolist() == [True, False, False, True]
    off = FilterConfig(flap_window_ms=1_000, flap_starts=0)
    assert not flapping_brokers(starts, 9_999, off).any()
