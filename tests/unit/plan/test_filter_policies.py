"""Isolation policies and anti-affinity groups as values."""

import pytest

from lbcore.plan.filter.policies import (
    MAX_PATTERN_CHARS,
    MAX_PATTERNS,
    InvalidPolicyError,
    IsolationPolicy,
    Policies,
    broker_names,
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


def test_patterns_match_whole_texts_only() -> None:
    assert matches_any(["a.*", "b"], "abc")
    assert not matches_any(["b"], "abc")


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


@pytest.mark.parametrize(
    ("broker", "urls", "names"),
    [
        ("b1:8080", [], ("b1:8080", "b1")),
        ("b1:8080", ["http://b1:8080", ""], ("b1:8080", "b1")),
        (
            "b1",
            ["http://10.0.0.1:8080", "https://b.example:8443/"],
            ("b1", "10.0.0.1:8080", "10.0.0.1", "b.example:8443", "b.example"),
        ),
    ],
)
def test_broker_is_known_by_its_name_and_its_web_services(
    broker: str, urls: list[str], names: tuple[str, ...]
) -> None:
    assert broker_names(broker, *urls) == names
