"""What an isolation policy says of each broker."""

from dataclasses import replace

import numpy as np
import pytest

from lbcore.plan.filter.index import (
    IsolationBrokers,
    is_broker_available,
    isolation_verdicts,
    policy_rows,
)
from lbcore.plan.filter.policies import IsolationPolicy, broker_names
from lbcore.plan.filter.verdict import FilterVerdict

OK, OUT, SPARE, RESERVED = (
    FilterVerdict.OK,
    FilterVerdict.NOT_IN_POLICY,
    FilterVerdict.SECONDARY_NOT_NEEDED,
    FilterVerdict.RESERVED_BY_POLICY,
)
POLICY = IsolationPolicy(name="p", namespaces=("t/x",), primary=("a.*",), secondary=("b.*",))
BROKERS = IsolationBrokers(
    names=tuple(map(broker_names, ("a1:8080", "a2:8080", "b1:8080", "c1:8080"))),
    is_available=np.ones(4, dtype=np.bool_),
    usage=np.array([0.5, 0.8, 0.1, 0.1]),
    supports_persistent=np.ones(4, dtype=np.bool_),
    supports_non_persistent=np.ones(4, dtype=np.bool_),
)


def test_policy_with_enough_primaries_admits_only_them() -> None:
    own, shared, _ = isolation_verdicts((POLICY,), BROKERS, usage_limits=False).tolist()
    assert own == [OK, OK, SPARE, OUT]
    assert shared == [RESERVED, RESERVED, OK, OK]


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
    brokers = replace(BROKERS, is_available=np.array([*alive, True, True]))
    policy = replace(POLICY, min_limit=min_limit)
    assert isolation_verdicts((policy,), brokers, usage_limits=False)[0].tolist() == row


def test_usage_limit_takes_a_hot_primary_out_of_the_count_only_when_asked_for() -> None:
    policy = replace(POLICY, min_limit=2, usage_threshold_percent=80)
    plain = isolation_verdicts((policy,), BROKERS, usage_limits=False)[0].tolist()
    limited = isolation_verdicts((policy,), BROKERS, usage_limits=True)[0].tolist()
    assert plain == [OK, OK, SPARE, OUT]
    assert limited == [OK, OK, OK, OUT]


@pytest.mark.parametrize(
    ("threshold", "available"), [(80, [True, False]), (81, [True, True]), (100, [True, True])]
)
def test_primary_is_available_strictly_below_its_usage_threshold(
    threshold: int, available: list[bool]
) -> None:
    policy = replace(POLICY, usage_threshold_percent=threshold)
    assert is_broker_available(policy, np.array([0.5, 0.8])).tolist() == available
    assert is_broker_available(replace(policy, usage_threshold_percent=100), np.array([2.0]))[0]


def test_broker_that_is_primary_and_secondary_counts_as_primary() -> None:
    policy = replace(POLICY, secondary=(".*",))
    row = isolation_verdicts((policy,), BROKERS, usage_limits=False)[0].tolist()
    assert row == [OK, OK, SPARE, SPARE]


def test_shared_brokers_must_serve_the_bundles_kind_of_topics() -> None:
    brokers = replace(
        BROKERS,
        supports_persistent=np.array([True, True, False, True]),
        supports_non_persistent=np.array([True, True, True, False]),
    )
    _, persistent, other = isolation_verdicts((POLICY,), brokers, usage_limits=False).tolist()
    assert persistent[2:] == [FilterVerdict.DOMAIN_NOT_SUPPORTED, OK]
    assert other[2:] == [OK, FilterVerdict.DOMAIN_NOT_SUPPORTED]


def test_namespace_gets_the_first_policy_that_matches_it() -> None:
    second = replace(POLICY, name="q", namespaces=("t/.*",))
    rows = policy_rows((POLICY, second), ("t/x", "t/y", "u/x"))
    assert rows.tolist() == [0, 1, 2]
    assert policy_rows((second, POLICY), ("t/x",)).tolist() == [0]
    assert policy_rows((), ("t/x", "t/y")).tolist() == [0, 0]


@pytest.mark.parametrize("primary", ["store-1", "store-1:8080", "10.0.0.1", "store-[0-9]:80.*"])
def test_primary_may_be_named_by_its_web_service(primary: str) -> None:
    names = (broker_names("store-1", "http://store-1:8080", "https://10.0.0.1:8443"), ("b2",))
    brokers = IsolationBrokers(
        names=names,
        is_available=np.ones(2, dtype=np.bool_),
        usage=np.zeros(2),
        supports_persistent=np.ones(2, dtype=np.bool_),
        supports_non_persistent=np.ones(2, dtype=np.bool_),
    )
    policy = replace(POLICY, primary=(primary,), secondary=())
    own, shared, _ = isolation_verdicts((policy,), brokers, usage_limits=False).tolist()
    assert (own, shared) == ([OK, OUT], [RESERVED, OK])
