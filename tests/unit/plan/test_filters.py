"""Placement filters: pipeline order, isolation policies, versions, unload filters."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lbcore.config.placement import FilterConfig
from lbcore.plan.filter.index import (
    FilterVerdict,
    candidate_index,
    isolation_verdicts,
)
from lbcore.plan.filter.pipeline import (
    FilterPipeline,
    FilterQuestion,
    Narrowed,
    empty_verdicts,
    parse_version,
    version_levels,
)
from lbcore.plan.filter.policies import (
    MAX_PATTERN_CHARS,
    MAX_PATTERNS,
    InvalidPolicyError,
    IsolationPolicy,
    Policies,
    broker_names,
    group_of,
    host_of,
    matcher,
    matches_any,
)
from lbcore.plan.filter.unload import unload_verdicts
from lbcore.plan.snapshot import Snapshot
from tests.support.values.clusters import broker_table, bundle_table, snapshot

NAMES = ["a1", "a2", "b1", "b2"]


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
    brokers = replace(snap.brokers, **inputs)
    snap = replace(snap, brokers=brokers, policies=policies or Policies())
    last = len(snap.bundles.names) - 1
    index = candidate_index(snap)
    pipeline = FilterPipeline.of(snap, index, config, np.array([last]))
    verdicts = empty_verdicts(snap)
    narrowed = pipeline.candidates(question or FilterQuestion(bundle=last), verdicts)
    return narrowed, [FilterVerdict(code).label for code in verdicts.tolist()]


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
    assert narrowed.is_failed
    assert narrowed.left.tolist() == narrowed.admitted.tolist() == [0, 1, 2, 3]
    assert labels == ["ok"] * 4
    narrowed, labels = asked(snap, FilterConfig(pipeline="extensible", **both))
    assert narrowed.is_failed
    assert labels == ["ok", "ok", "ok", "load_manager_class"]


def test_anti_affinity_spreads_a_groups_namespaces_over_domains_then_brokers() -> None:
    """As in Pulsar's own example: d1 and d2 hold 3, d3 holds 4; b2 and b4 hold 1 each."""
    spaces = [f"t/{at}" for at in range(5)]
    policies = Policies(anti_affinity=dict.fromkeys(spaces, "G") | {"t/1": "g"})
    snap = cluster([0, 0, 1, 2, -1], spaces=spaces, failure_domains=("d1", "d1", "d2", "d2"))
    plain = FilterConfig(distribute_evenly=False)
    assert asked(snap, plain, policies)[1] == ["anti_affinity"] * 3 + ["ok"]
    by_domain = FilterConfig(distribute_evenly=False, failure_domains=True)
    assert asked(snap, by_domain, policies)[1] == ["failure_domain"] * 2 + ["anti_affinity", "ok"]


def test_flapping_brokers_are_open_when_there_are_no_others_and_suspected_ones_are_not() -> None:
    snap = cluster([-1], is_draining=np.array([True, False, False, False]))
    labels = asked(snap, FilterConfig(), is_flapping=np.ones(4, dtype=np.bool_))[1]
    assert labels == ["draining", "ok", "ok", "ok"]
    suspects, flaps = np.array([True, True, False, False]), np.array([False, True, False, True])
    labels = asked(snap, FilterConfig(), is_suspected=suspects, is_flapping=flaps)[1]
    assert labels == ["draining", "suspected", "ok", "flapping"]
    labels = asked(snap, FilterConfig(), is_suspected=np.ones(4, dtype=np.bool_))[1]
    assert labels == ["draining", "suspected", "suspected", "suspected"]


OK, OUT, SPARE, RESERVED = (
    FilterVerdict.OK,
    FilterVerdict.NOT_IN_POLICY,
    FilterVerdict.SECONDARY_NOT_NEEDED,
    FilterVerdict.RESERVED_BY_POLICY,
)
POLICY = IsolationPolicy(name="p", namespaces=("t/x",), primary=("a.*",), secondary=("b.*",))
NAMED = tuple(map(broker_names, ("a1:8080", "a2:8080", "b1:8080", "c1:8080")))


@pytest.mark.parametrize(
    ("min_limit", "alive", "row"),
    [
        (1, [True, True], [OK, OK, SPARE, OUT]),
        (1, [False, True], [OK, OK, SPARE, OUT]),
        (2, [False, True], [OK, OK, OK, OUT]),
        (3, [True, True], [OK, OK, OK, OUT]),
        (0, [False, False], [OK, OK, SPARE, OUT]),
    ],
)
def test_policy_with_fewer_open_primaries_than_the_limit_fails_over(
    min_limit: int, alive: list[bool], row: list[FilterVerdict]
) -> None:
    is_available = np.array([*alive, True, True])
    policy = replace(POLICY, min_limit=min_limit)
    assert isolation_verdicts((policy,), NAMED, is_available)[0].tolist() == row


PATTERNS = (
    "t/stores",
    "t/new.*",
    "b1:8080",
    "b2.*:80",
    "(?i)T/up",
    "^t/edge$",
    "t/a|t/b",
    r"\Qt/quote.",
    "t/(",
    ".*",
)
TEXTS = ("t/stores", "t/new", "t/new\n", "b1:8080", "b22:80", "t/UP", "t/edge", "t/b", "t/quote.")
LISTS = (*(PATTERNS[:count] for count in range(len(PATTERNS))), PATTERNS[4:7])


@pytest.mark.parametrize("patterns", LISTS)
def test_list_matches_what_one_of_its_patterns_matches(patterns: tuple[str, ...]) -> None:
    alone = [matcher((pattern,)) for pattern in patterns]
    for text in (*TEXTS, "x"):
        assert matcher(patterns)(text) == any(test(text) for test in alone), text


def test_patterns_too_large_for_one_are_matched_in_turn() -> None:
    patterns = tuple(f"(x{at}|y[a-z]{{900}})" for at in range(1_000))
    assert matcher(patterns)("x999")
    assert not matcher(patterns)("x1000")


PLAIN = {
    "namespaces": ["t/.*"],
    "primary": ["a[0-9]+"],
    "secondary": ["b.*"],
    "auto_failover_policy": {
        "policy_type": "min_available",
        "parameters": {"min_limit": "2", "usage_threshold": "80"},
    },
}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"namespaces": []}, "must name namespaces"),
        ({"primary": []}, "must name namespaces and primary brokers"),
        ({"primary": ["("]}, "valid regular expressions, got '\\('"),
        ({"secondary": ["["]}, "valid regular expressions"),
        ({"auto_failover_policy": None}, "of type 'min_available', got None"),
        (
            {"auto_failover_policy": {"policy_type": "min_available", "parameters": {}}},
            "min_limit as a whole number",
        ),
        (
            {
                "auto_failover_policy": {
                    "policy_type": "min_available",
                    "parameters": {"min_limit": "1", "usage_threshold": "much"},
                }
            },
            "usage_threshold as a whole number in its auto_failover_policy's .* got 'much'",
        ),
    ],
)
def test_policy_that_cannot_be_used_is_refused_with_the_reason(
    changes: dict[str, object], told: str
) -> None:
    with pytest.raises(InvalidPolicyError, match=told):
        IsolationPolicy.from_json("p", {**PLAIN, **changes}).checked()


@pytest.mark.parametrize(
    ("broker", "host"),
    [
        ("b1:8080", "b1"),
        ("b1", "b1"),
        ("[::1]:8080", "[::1]"),
        ("b1:http", "b1:http"),
        (":80", ":80"),
    ],
)
def test_host_of_a_broker_is_its_name_without_the_port(broker: str, host: str) -> None:
    assert host_of(broker) == host


@pytest.mark.parametrize(
    ("given", "group"), [("Rack", "rack"), ("rack", "rack"), ("  ", ""), ("", "")]
)
def test_group_of_a_namespace_ignores_case_and_blank_names(given: str, group: str) -> None:
    assert group_of(Policies(anti_affinity={"t/n": given}), "t/n") == group
    assert group_of(Policies(), "t/n") == ""


BACKTRACKING = "([a-z0-9-]+[.]?)+:8080"
HOST = "broker-0.broker-headless.pulsar-production.svc.cluster.local"


def test_pattern_that_backtracks_elsewhere_is_matched_at_once() -> None:
    policy = IsolationPolicy.from_json("p", {**PLAIN, "primary": [BACKTRACKING]}).checked()
    assert not matches_any(policy.primary, HOST, HOST * 60)
    assert matches_any(policy.primary, f"{HOST}:8080")


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        (r"(a)\1", "can't be matched in linear time"),
        (r"(a)(b)\12", "refers back"),
        ("(?=a)a", "lookaround"),
        ("(?<!a)b", "lookaround"),
        ("a++", "possessive quantifiers"),
        ("(?>a|ab)c", "atomic groups"),
        ("[a-z&&[^b]]", "a class within a class"),
        ("[a[bc]]", "a class within a class"),
        ("a{1001}", "invalid repetition size"),
        ("(.{0,40}){25}b", "repeats too much"),
        ("a" * (MAX_PATTERN_CHARS + 1), "at most 1000 characters, got 1001"),
        ("\ud800", "half a character"),
    ],
)
def test_pattern_that_cannot_be_matched_in_linear_time_is_refused_and_matches_nobody(
    pattern: str, told: str
) -> None:
    policy = IsolationPolicy.from_json("p", {**PLAIN, "primary": [pattern, "a1"]})
    with pytest.raises(InvalidPolicyError, match=told):
        policy.checked()
    assert [matches_any(policy.primary, name) for name in ("a1", "a", "aba", "ac")] == [
        True,
        False,
        False,
        False,
    ]


def test_policy_of_too_many_patterns_is_refused_with_what_to_do() -> None:
    many = {**PLAIN, "namespaces": ["t/n"] * (MAX_PATTERNS + 1)}
    with pytest.raises(InvalidPolicyError, match=r"at most 1000 patterns .* got 1001; join some"):
        IsolationPolicy.from_json("p", many).checked()


@pytest.mark.parametrize(
    ("pattern", "matched", "passed_over"),
    [
        ("t/pay-.*", ["t/pay-", "t/pay-1"], ["t/pay", "x/t/pay-1", "t/pay-\n"]),
        ("127.0.0.1:28080", ["127.0.0.1:28080"], ["127.0.0.1", "127.0.0.1:280801"]),
        ("t/n", ["t/n"], ["t/n2", "t/"]),
        ("broker-[12]|b3", ["broker-1", "b3"], ["broker-12", "broker-"]),
        (r"\Qa[b.\E\d+", ["a[b.12"], ["a[b.", "a[bx1"]),
        (r"[]a]\[(?i)X", ["][x", "a[X"], ["b[x"]),
        (r"\w+", ["abc_1"], ["\u00e9"]),
    ],
)
def test_pattern_matches_the_whole_text_as_javas_do(
    pattern: str, matched: list[str], passed_over: list[str]
) -> None:
    assert all(matches_any([pattern], text) for text in matched)
    assert not any(matches_any([pattern], text) for text in passed_over)


def refusals(spaces: list[str], owners: list[int], policies: Policies) -> list[FilterVerdict]:
    """The verdict of each bundle, all of which are to leave."""
    snap = snapshot(
        broker_table(["a1", "a2", "b1"]),
        bundle_table([f"{space}/{at}" for at, space in enumerate(spaces)], owner=np.array(owners)),
    )
    snap = replace(snap, policies=policies)
    index = candidate_index(snap)
    return [FilterVerdict(one) for one in unload_verdicts(snap, index, np.arange(len(owners)))]


def test_bundle_of_a_group_spread_evenly_stays() -> None:
    group = Policies(anti_affinity={"t/a": "g", "t/b": "g", "t/c": "g", "t/d": "g"})
    assert refusals(["t/a", "t/b", "t/c"], [0, 1, 2], group) == [FilterVerdict.ANTI_AFFINITY] * 3


RISING = [
    "0.9.0",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.10.0",
    "2.0.0-SNAPSHOT",
    "2.0.0",
]


def test_versions_rise_as_semver_says() -> None:
    assert version_levels(RISING).tolist() == list(range(len(RISING)))
    assert version_levels(RISING[::-1]).tolist() == list(range(len(RISING)))[::-1]


def test_build_metadata_is_read_and_distinguishes_nothing() -> None:
    assert version_levels(["1.0.0+1", "1.0.0+2", "1.0.0", "1.0.1"]).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "1.2.3.4", "01.2.3", "1.2.x", "v1.2.3", "1.2.3-", "1.2.3+", "1.2.3-01"]
)
def test_text_that_is_no_semantic_version_is_unreadable(text: str) -> None:
    assert parse_version(text) is None
    assert version_levels([text, "1.0.0"]).tolist() == [-1, 0]
