"""Pulsar's policies: its answers, garbage instead, and what the balancer is told of them."""

import json
from typing import Any

import pytest

from jobs.bridge.admin_address import AdminAddress
from jobs.bridge.policies import PolicyFollower
from jobs.bridge.pulsar_admin import PulsarAdmin
from lbcore.bridge.answers import Unreadable
from lbcore.bridge.policies import parse_domains, parse_group, parse_isolation
from lbcore.wire.commands import format_arguments, parse_arguments
from lbcore.wire.kinds.mirror_commands import ObservePolicies
from tests.support.admin.fake_pulsar import CLUSTER, fake_pulsar

ISOLATION = f"/admin/v2/clusters/{CLUSTER}/namespaceIsolationPolicies"
DOMAINS = f"/admin/v2/clusters/{CLUSTER}/failureDomains"
GROUP = "/admin/v2/namespaces/acme/ns/antiAffinity"
POLICY: dict[str, Any] = {
    "namespaces": ["acme/.*"],
    "primary": ["broker-1"],
    "secondary": [],
    "auto_failover_policy": {
        "policy_type": "min_available",
        "parameters": {"min_limit": "2", "usage_threshold": "80"},
    },
}
TOLD = {
    "namespaces": ["acme/.*"],
    "primary": ["broker-1"],
    "secondary": [],
    "min_limit": 2,
    "usage_threshold_percent": 80.0,
}


def raw(value: object) -> bytes:
    return json.dumps(value).encode()


def test_isolation_policy_is_told_as_the_balancer_reads_it() -> None:
    found = parse_isolation(raw({"mine": POLICY}))
    assert found == ({"mine": TOLD}, {})
    kind, arguments = format_arguments(ObservePolicies(isolation=found[0], anti_affinity={}))
    assert isinstance(parse_arguments(kind, arguments), ObservePolicies)


@pytest.mark.parametrize("garbage", [b"<html>", b"[]", b"", b"null"])
def test_half_an_answer_is_no_policy(garbage: bytes) -> None:
    assert isinstance(parse_isolation(garbage), Unreadable)


def failover(**given: str) -> dict[str, Any]:
    return {**POLICY, "auto_failover_policy": {"parameters": given}}


ODD_POLICIES = (
    1,
    None,
    {**POLICY, "primary": "broker-1"},
    {**POLICY, "auto_failover_policy": None},
    failover(min_limit="x", usage_threshold="80"),
    failover(min_limit="٣", usage_threshold="80"),
    failover(min_limit="9" * 5_000, usage_threshold="80"),
    failover(min_limit="99999999", usage_threshold="80"),
    failover(min_limit="2", usage_threshold="101"),
)


@pytest.mark.parametrize("odd", ODD_POLICIES, ids=lambda one: repr(one)[:60])
def test_policy_that_can_not_be_used_is_named_and_hides_no_other(odd: Any) -> None:
    found = parse_isolation(raw({"good": POLICY, "odd": odd}))
    assert not isinstance(found, Unreadable)
    assert found[0] == {"good": TOLD}
    assert list(found[1]) == ["odd"]
    kind, arguments = format_arguments(ObservePolicies(isolation=found[0], anti_affinity={}))
    assert isinstance(parse_arguments(kind, arguments), ObservePolicies)


def test_broker_has_the_first_of_its_failure_domains() -> None:
    answer = {"east": {"brokers": ["a:1", "b:1"]}, "west": {"brokers": ["b:1", "c:1"]}}
    found = {"a:1": "east", "b:1": "east", "c:1": "west"}
    assert parse_domains(raw(answer)) == (found, {})
    odd = parse_domains(raw({**answer, "north": ["a:1"]}))
    assert not isinstance(odd, Unreadable)
    assert (odd[0], list(odd[1])) == (found, ["north"])


def test_group_is_a_bare_word_or_nothing() -> None:
    assert (parse_group(b"racks"), parse_group(b'"racks"'), parse_group(b"")) == (
        "racks",
        "racks",
        "",
    )
    assert isinstance(parse_group(b"<html>"), Unreadable)
    assert isinstance(parse_group(b"x" * 5_000), Unreadable)


def test_bridge_does_not_act_until_the_policies_are_known_and_tells_each_change_once() -> None:
    told: list[ObservePolicies] = []
    with fake_pulsar() as fake:
        admin = PulsarAdmin(AdminAddress(url=fake.url, timeout_s=2.0))
        follower = PolicyFollower(admin, CLUSTER, 0, told.append)
        fake.put(ISOLATION, b"<html>", 502)
        follower.follow(["acme/ns"])
        assert "502" in follower.reason_not_to_act
        fake.put(ISOLATION, {"mine": POLICY})
        fake.put(DOMAINS, {"east": {"brokers": ["b:1"]}})
        fake.put(GROUP, b"racks")
        follower.follow(["acme/ns"])
        follower.follow(["acme/ns"])
        assert follower.reason_not_to_act == ""
        assert follower.domains == {"b:1": "east"}
        fake.put(ISOLATION, {"reason": "do not exist"}, 404)
        follower.follow(["acme/ns", "acme/other"])
        fake.put(ISOLATION, b"[]")
        follower.follow(["acme/ns"])
        follower.close()
    assert [one.isolation for one in told] == [{"mine": TOLD}, {}]
    assert told[0].anti_affinity == {"acme/ns": "racks"}


def test_one_policy_that_can_not_be_read_leaves_all_others_and_what_was_known_of_it() -> None:
    told: list[ObservePolicies] = []
    other = "/admin/v2/namespaces/acme/other/antiAffinity"
    with fake_pulsar() as fake:
        admin = PulsarAdmin(AdminAddress(url=fake.url, timeout_s=2.0))
        follower = PolicyFollower(admin, CLUSTER, 0, told.append)
        fake.put(ISOLATION, {"good": POLICY, "odd": POLICY})
        fake.put(DOMAINS, {"east": {"brokers": ["b:1"]}, "west": {"brokers": ["c:1"]}})
        fake.put(GROUP, b"racks")
        fake.put(other, b"racks")
        names = ["acme/ns", "acme/other"]
        follower.follow(names)
        fake.put(ISOLATION, {"good": POLICY, "odd": {**POLICY, "primary": 3}})
        fake.put(DOMAINS, {"east": {"brokers": ["b:1"]}, "west": None})
        fake.put(other, {"reason": "no"}, 500)
        follower.follow(names)
        assert follower.unread.keys() == {
            "isolation policy odd",
            "failure domain west",
            "anti-affinity group of acme/other",
        }
        assert (follower.reason_not_to_act, follower.ungrouped) == ("", frozenset())
        assert follower.domains == {"b:1": "east", "c:1": "west"}
        assert [one.isolation.keys() for one in told] == [{"good", "odd"}]
        follower.close()
        late = PolicyFollower(admin, CLUSTER, 0, told.append)
        late.follow(names)
        assert "isolation policy odd" in late.reason_not_to_act
        assert late.ungrouped == {"acme/other"}
        assert told[-1].isolation.keys() == {"good"}
        assert told[-1].anti_affinity == {"acme/ns": "racks"}
        late.close()
