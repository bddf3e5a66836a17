"""Isolation policies and anti-affinity groups as values."""

import pytest

from lbcore.plan.filter.policies import (
    InvalidPolicyError,
    IsolationPolicy,
    Policies,
    group_of,
    host_of,
    matches_any,
)

PLAIN = {
    "namespaces": ["t/.*"],
    "primary": ["a[0-9]+"],
    "secondary": ["b.*"],
    "auto_failover_policy": {
        "policy_type": "min_available",
        "parameters": {"min_limit": "2", "usage_threshold": "80"},
    },
}


def test_policy_in_pulsars_form_reads_and_writes_back() -> None:
    policy = IsolationPolicy.from_json("p", PLAIN)
    assert (policy.min_limit, policy.usage_threshold_percent) == (2, 80)
    assert policy.to_json() == PLAIN


def test_policies_write_and_read_back_in_name_order() -> None:
    policies = Policies.from_json(
        {"isolation": {"z": PLAIN, "a": PLAIN}, "anti_affinity": {"t/n": "g"}}
    )
    assert [policy.name for policy in policies.isolation] == ["a", "z"]
    assert Policies.from_json(policies.to_json()) == policies


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
        IsolationPolicy.from_json("p", {**PLAIN, **changes})


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


def test_patterns_match_whole_texts_only() -> None:
    assert matches_any(["a.*", "b"], "abc")
    assert not matches_any(["b"], "abc")


@pytest.mark.parametrize(
    ("given", "group"), [("Rack", "rack"), ("rack", "rack"), ("  ", ""), ("", "")]
)
def test_group_of_a_namespace_ignores_case_and_blank_names(given: str, group: str) -> None:
    assert group_of(Policies(anti_affinity={"t/n": given}), "t/n") == group
    assert group_of(Policies(), "t/n") == ""
