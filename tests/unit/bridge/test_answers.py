"""Recorded answers of Pulsar as values: admin answers, load reports, policies, mirror."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.adapters.kafka.command_client import new_command
from jobs.bridge.admin_address import AdminAddress
from jobs.bridge.collector import PolicyFollower
from jobs.bridge.pulsar_admin import PulsarAdmin
from lbcore.bridge.acting import reason_not_to_act, splits_by_itself
from lbcore.bridge.answers import (
    Claims,
    Gauges,
    TopicRates,
    TopicTable,
    Unreadable,
    is_mirrored,
    parse_boundaries,
    parse_claims,
    parse_domains,
    parse_group,
    parse_isolation,
    parse_metrics,
    parse_names,
    parse_settings,
    parse_topics,
    parse_version,
)
from lbcore.bridge.mirror import ALL, Difference, Look, commands_of, compare
from lbcore.bridge.reports import (
    Measured,
    SentReports,
    measured_extensible,
    measured_modular,
    near_a_split,
    report,
    report_topics,
)
from lbcore.config.signals import SignalsConfig
from lbcore.config.splitting import Splitting
from lbcore.config.tree import Config
from lbcore.model.names import Wire
from lbcore.model.resources import COUNT
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.wire.commands import format_arguments, parse_arguments
from lbcore.wire.format import format_message
from lbcore.wire.kinds.mirror_commands import ObservePolicies
from lbcore.wire.messages import BrokerLoad, BundleLoad, Envelope, Heartbeat, Rejected, TopicLoad
from lbcore.wire.parse import parse
from lbcore.wire.pulsar import parse_pulsar_report
from tests.support.admin.fake_pulsar import CLUSTER, fake_pulsar, read_recording
from tests.support.values.wire_messages import RULES, content

ANSWERS = Path(__file__).parent / "pulsar_answers"
TOPICS = ("106-x-broker-stats-topics-broker1", "42-broker-stats-topics")


def raw(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("name", TOPICS)
def test_topics_of_a_real_broker_are_summed_up_by_bundle(name: str) -> None:
    answer = read_recording(name).body
    table = parse_topics(raw(answer))
    assert isinstance(table, TopicTable)
    assert table.bundles == tuple(sorted(table.bundles))
    assert {bundle.rpartition("/")[0] for bundle in table.bundles} <= {
        namespace for namespace in answer if not namespace.startswith("pulsar/")
    }
    for bundle, row in zip(table.bundles, table.stats, strict=True):
        namespace, _, key = bundle.rpartition("/")
        topics = {
            topic: stats
            for domain in answer[namespace][key].values()
            for topic, stats in domain.items()
        }
        consumers = sum(
            len(subscription["consumers"])
            for stats in topics.values()
            for subscription in stats["subscriptions"].values()
        )
        assert row[0] == pytest.approx(sum(stats["msgRateIn"] for stats in topics.values()))
        assert row[4:7].tolist() == [
            len(topics),
            consumers,
            sum(stats["producerCount"] for stats in topics.values()),
        ]
        assert table.rates[bundle].topics == tuple(sorted(topics))


def test_topics_that_carry_messages_keep_their_rates() -> None:
    table = parse_topics((ANSWERS / "topics-with-traffic.json").read_bytes())
    assert isinstance(table, TopicTable)
    assert table.stats[:, 0].sum() > 50.0
    for bundle, row in zip(table.bundles, table.stats, strict=True):
        assert table.rates[bundle].traffic.sum(axis=0) == pytest.approx(row[:4])


def test_metrics_of_a_real_broker_are_usages_in_the_order_of_resources() -> None:
    gauges = parse_metrics((ANSWERS / "metrics-broker-1.txt").read_bytes())
    assert isinstance(gauges, Gauges)
    text = (ANSWERS / "metrics-broker-1.txt").read_text()
    for name, percent in zip(
        ("cpu", "memory", "directMemory", "bandwidth_in", "bandwidth_out"),
        gauges.percent,
        strict=False,
    ):
        assert f'pulsar_lb_{name}_usage{{cluster="standalone"' in text
        assert 0.0 <= percent <= 100.0
    assert gauges.started_ms > 1_700_000_000_000
    assert gauges.version == "4.0.8"


@pytest.mark.parametrize("name", ["metrics-lb-before.txt", "metrics-lb-after.txt"])
def test_metrics_without_the_process_are_unreadable(name: str) -> None:
    unreadable = parse_metrics((ANSWERS / name).read_bytes())
    assert isinstance(unreadable, Unreadable)
    assert "process_start_time_seconds" in unreadable.detail


@pytest.mark.parametrize("odd", ["NaN", "+Inf", "-0.0016", "1.8e308", "x"])
def test_metrics_with_a_usage_that_is_no_number_have_the_others(odd: str) -> None:
    page = f"""process_start_time_seconds{{a="b"}} 1e9
pulsar_lb_cpu_usage{{a="b", broker="host-1"}} {odd}
pulsar_lb_memory_usage{{a="b", broker="host-1"}} 20
"""
    found = parse_metrics(page.encode())
    assert not isinstance(found, Unreadable)
    assert (found.percent[1], found.host) == (20.0, "host-1")
    assert np.isnan(found.percent[[0, 2, 3, 4]]).all()
    assert "pulsar_lb_cpu_usage" in found.unreported


@pytest.mark.parametrize("odd", [-1, "NaN", None, 1e300, [], {}])
@pytest.mark.parametrize("name", ["msgRateIn", "producerCount", "subscriptions"])
def test_odd_field_of_one_topic_counts_as_not_reported_and_is_named(name: str, odd: Any) -> None:
    topics = {"t": {"msgRateIn": 1.0, "msgRateOut": 2.0, name: odd}, "u": None}
    answer = {"a/b": {"0x00000000_0xffffffff": {"persistent": topics}}, "a/c": 3}
    found = parse_topics(json.dumps(answer).encode())
    assert not isinstance(found, Unreadable)
    assert found.stats[0, 1] == 2.0
    is_subscriptions = name == "subscriptions"
    named = {f"topics.{name}"} if not (is_subscriptions and odd == {}) else set()
    assert found.unreported.keys() == named | {"topics.topic", "topics.namespace"}


@pytest.mark.parametrize(
    "boundaries",
    [
        [],
        None,
        ["0x00000000"],
        ["0x10000000", "0xffffffff"],
        ["0x00000000", "0x80000000"],
        ["0x00000000", "0x80000000", "0x40000000", "0xffffffff"],
        ["0x00000000", "0x80000000", "0x80000000", "0xffffffff"],
        ["0x00000000", "0x1ffffffff"],
        [0, "9" * 5_000],
        "0x00000000",
    ],
    ids=lambda one: repr(one)[:40],
)
def test_boundaries_that_are_no_division_of_all_hashes_are_unreadable(boundaries: Any) -> None:
    assert isinstance(parse_boundaries(json.dumps({"boundaries": boundaries}).encode()), Unreadable)


@pytest.mark.parametrize("started", ["+Inf", "1e308", "1e11", "NaN", "-1", "0", "x", "9" * 400])
def test_metrics_with_a_start_that_is_no_time_are_unreadable(started: str) -> None:
    found = parse_metrics(f"process_start_time_seconds {started}\n".encode())
    assert isinstance(found, Unreadable)


def test_boundaries_of_a_real_namespace_are_numbers() -> None:
    answer = raw(read_recording("23-namespaces-bundles").body)
    boundaries = parse_boundaries(answer)
    assert isinstance(boundaries, tuple)
    assert (boundaries[0], boundaries[-1]) == (0, 0xFFFFFFFF)
    assert list(boundaries) == sorted(boundaries)


def test_owned_namespaces_leave_out_what_brokers_keep_for_themselves() -> None:
    status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    names = (
        "pulsar/standalone/127.0.0.1:8080/0x00000000_0xffffffff",
        "pulsar/127.0.0.1:8080/0x00000000_0xffffffff",
        "sla-monitor/standalone/127.0.0.1:8080/0x00000000_0xffffffff",
        "pulsar/system/0x00000000_0x40000000",
        "public/load/0xc0000000_0xffffffff",
    )
    claims = parse_claims(raw(dict.fromkeys(names, status)))
    assert claims == Claims(owned=frozenset(names[-1:]))
    closed = parse_claims(raw({name: {**status, "is_active": False} for name in names}))
    assert closed == Claims(owned=frozenset(names[-1:]), closing=frozenset(names[-1:]))


def test_runtime_settings_of_a_real_broker_have_the_shedding_switch() -> None:
    settings = parse_settings((ANSWERS / "runtime.json").read_bytes())
    assert not isinstance(settings, Unreadable)
    assert settings["loadBalancerSheddingEnabled"] in ("true", "false")


def test_namespaces_of_pulsar_itself_are_not_mirrored() -> None:
    own = ("pulsar/system", "sla-monitor/host:8080", "pulsar/host:8080")
    assert not any(map(is_mirrored, own))
    assert all(map(is_mirrored, ("public/default", "pulsarian/ns")))


@pytest.mark.parametrize(
    ("parse", "garbage"),
    [
        (parse_names, b"<html>502</html>"),
        (parse_names, b'{"a": 1}'),
        (parse_names, b"[1]"),
        (parse_version, b"<html>502</html>"),
        (parse_version, b""),
        (parse_claims, b"[]"),
        (parse_boundaries, b'{"boundaries": ["0x0", "x"]}'),
        (parse_boundaries, b'{"numBundles": 4}'),
        (parse_settings, b"null"),
        (parse_topics, b"[]"),
        (parse_isolation, b"<html>"),
        (parse_isolation, b"[]"),
        (parse_isolation, b""),
        (parse_isolation, b"null"),
    ],
)
def test_answer_of_another_form_is_unreadable(parse: Any, garbage: bytes) -> None:
    assert isinstance(parse(garbage), Unreadable)


@given(noise=st.binary(max_size=80))
def test_answers_of_arbitrary_bytes_never_raise(noise: bytes) -> None:
    readers = (parse_names, parse_claims, parse_boundaries, parse_settings, parse_topics)
    assert isinstance(parse_isolation(noise), Unreadable)
    for read in (*readers, parse_version):
        parsed: Any = read(noise)
        assert isinstance(parsed, Unreadable | str | tuple | Claims | dict | TopicTable)
    assert isinstance(parse_metrics(noise), Unreadable)


def test_topics_of_an_idle_broker_are_an_empty_table() -> None:
    table = parse_topics(b"{}")
    assert isinstance(table, TopicTable)
    assert table.bundles == ()
    assert table.stats.shape == (0, 8)


NS = "acme/ns"
LEFT, RIGHT = f"{NS}/0x00000000_0x80000000", f"{NS}/0x80000000_0xffffffff"
WHOLE = (0, 0x80000000, 0xFFFFFFFF)
NOTHING: frozenset[str] = frozenset()


def look(a: Any = (), b: Any = (), **more: Any) -> Look:
    owned = {name: None if held is None else frozenset(held) for name, held in (("a", a), ("b", b))}
    known: dict[str, Any] = {
        "owned": owned,
        "incarnations": {"a": "1", "b": "1"},
        "namespaces": {NS: WHOLE},
    }
    return Look(**{**known, **more})


def record(bundle: str, state: State = State.OWNED, **changes: Any) -> OwnershipRecord:
    known: dict[str, Any] = {"destination": "a", "destination_incarnation": "1"}
    return OwnershipRecord(
        cluster="local", bundle=bundle, state=state, version_id=5, **{**known, **changes}
    )


RECORDS = {name: record(name) for name in (LEFT, RIGHT)}


def owners(before: Look, now: Look, *, busy: frozenset[str] = NOTHING, **records: Any) -> Any:
    known = {**RECORDS, **{one.bundle: one for one in records.values()}}
    return compare(known, before, now, ("a", "b"), busy).owners


OWNERS: Mapping[str, tuple[Look, Any]] = {
    "an owner that both looks show": (look(a=(RIGHT,), b=(LEFT,)), {LEFT: (5, "b", "1")}),
    "nobody, and all have answered": (look(a=(RIGHT,)), {LEFT: (5, "", "")}),
    "nobody, and one is silent": (look(a=(RIGHT,), b=None), {}),
    "an owner beside a silent broker": (look(a=None, b=(LEFT,)), {LEFT: (5, "b", "1")}),
    "two claim it": (look(a=(LEFT, RIGHT), b=(LEFT,)), {}),
    "an owner that was never measured": (look(a=(RIGHT,), b=(LEFT,), incarnations={"a": "1"}), {}),
    "another start of the owner": (
        look(a=(LEFT, RIGHT), incarnations={"a": "2", "b": "1"}),
        {LEFT: (5, "a", "2"), RIGHT: (5, "a", "2")},
    ),
}


@pytest.mark.parametrize("case", OWNERS)
def test_owner_is_told_once_two_looks_agree_and_it_is_certain(case: str) -> None:
    seen, told = OWNERS[case]
    agreed = look(a=(LEFT, RIGHT))
    assert owners(seen, seen) == told
    assert compare(RECORDS, agreed, agreed, ("a", "b"), NOTHING) == Difference()
    assert compare(RECORDS, None, seen, (), NOTHING) == Difference()
    assert owners(agreed, look(a=(RIGHT,), b=(LEFT,))) == {}


def test_record_in_flight_is_left_alone_while_one_of_its_brokers_has_the_bundle() -> None:
    moving = record(LEFT, State.RELEASING, source="a", source_incarnation="1", destination="b")
    for now in (look(a=(LEFT, RIGHT)), look(a=(RIGHT,), b=(LEFT,))):
        assert owners(now, now, moving=moving) == {}
    gone = look(a=(RIGHT,))
    assert owners(gone, gone, moving=moving) == {LEFT: (5, "", "")}
    assert owners(gone, gone, moving=moving, busy=frozenset({LEFT})) == {}


def test_namespace_that_was_split_or_is_gone_or_new_is_told_once_and_its_bundles_later() -> None:
    cut = (0, 0x40000000, 0x80000000, 0xFFFFFFFF)
    split = look(a=(RIGHT, f"{NS}/0x00000000_0x40000000"), namespaces={NS: cut})
    found = compare(RECORDS, split, split, ("a", "b"), NOTHING)
    assert found.namespaces == {NS: cut}
    assert found.owners == {}
    busy = compare(RECORDS, split, split, ("a", "b"), frozenset({LEFT}))
    assert busy.namespaces == {}
    empty = look(namespaces={"acme/new": WHOLE})
    found = compare(RECORDS, empty, empty, ("a", "b"), NOTHING)
    assert found.namespaces == {NS: (), "acme/new": WHOLE}
    deleted = {name: record(name, State.DELETED) for name in (LEFT, RIGHT)}
    assert compare(deleted, empty, empty, ("a", "b"), NOTHING).namespaces == {"acme/new": WHOLE}


@pytest.mark.parametrize("unread", [ALL, "acme", "acme/ns"])
def test_namespace_that_could_not_be_read_is_not_gone(unread: str) -> None:
    blind = look(a=(LEFT, RIGHT), namespaces={}, unread=frozenset({unread}))
    gone = look(a=(LEFT, RIGHT), namespaces={})
    assert compare(RECORDS, blind, blind, ("a", "b"), NOTHING).namespaces == {}
    assert compare(RECORDS, blind, gone, ("a", "b"), NOTHING).namespaces == {}
    assert compare(RECORDS, gone, gone, ("a", "b"), NOTHING).namespaces == {"acme/ns": ()}
    other = look(a=(LEFT, RIGHT), namespaces={}, unread=frozenset({"acme/other", "other"}))
    assert compare(RECORDS, other, other, ("a", "b"), NOTHING).namespaces == {"acme/ns": ()}


def test_brokers_are_told_when_they_are_others() -> None:
    same = look(a=(LEFT, RIGHT))
    assert compare(RECORDS, same, same, ("a",), NOTHING).brokers == ("a", "b")
    assert compare(RECORDS, same, look(owned={}), ("a",), NOTHING) == Difference()


def test_difference_of_any_size_is_commands_that_can_be_read() -> None:
    many = {f"{NS}/0x{n:08x}_0x{n + 1:08x}": (1, "a", "1") for n in range(2_500)}
    difference = Difference(brokers=("a",), namespaces={NS: WHOLE, "acme/x": ()}, owners=many)
    commands = commands_of(difference)
    assert [len(one.owners) for one in commands] == [1_000, 1_000, 500]
    assert [one.brokers for one in commands] == [("a",), (), ()]
    assert {one.differences for one in commands} == {2_502}
    for one in commands:
        assert parse_arguments(*format_arguments(one)) == one
    assert len(commands_of(Difference())) == 1


def test_all_bundles_of_a_large_cluster_are_told_in_messages_that_the_job_takes() -> None:
    cuts = (*range(0, 1 << 32, (1 << 32) // 128), 0xFFFFFFFF)
    names = [f"tenant-{n}/namespace-{n}" for n in range(1_000)]
    brokers = tuple(f"broker-{n}.brokers.svc.cluster.local:8080" for n in range(1_000))
    told = commands_of(Difference(brokers=brokers, namespaces=dict.fromkeys(names, cuts)))
    written = [format_message(new_command("c", one, principal="bridge")) for one in told]
    assert max(len(value) for _, _, value in written) <= Wire().max_message_bytes
    assert [name for one in told for name in one.namespaces] == sorted(names)
    assert {tuple(one.namespaces[name]) for one in told for name in one.namespaces} == {cuts}


def test_guard_asks_every_broker_and_believes_none_that_is_silent() -> None:
    off = {"loadBalancerSheddingEnabled": "false"}
    assert reason_not_to_act({"a": off, "b": off}) == ""
    assert "b has" in reason_not_to_act({"a": off, "b": {"loadBalancerSheddingEnabled": "true"}})
    assert "b has" in reason_not_to_act({"a": off, "b": {}})
    assert "b does not tell" in reason_not_to_act({"a": off, "b": None})
    assert "no active broker" in reason_not_to_act({})
    disabled = {"loadBalancerSheddingEnabled": "true", "loadBalancerEnabled": "false"}
    assert reason_not_to_act({"a": disabled}) == ""
    assert splits_by_itself({"a": {"loadBalancerAutoBundleSplitEnabled": "true"}})
    assert not splits_by_itself({"a": off, "b": None})


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


def test_isolation_policy_is_told_as_the_balancer_reads_it() -> None:
    found = parse_isolation(raw({"mine": POLICY}))
    assert found == ({"mine": TOLD}, {})
    longest = failover(min_limit="0000000002", usage_threshold="80")
    assert parse_isolation(raw({"mine": longest})) == found
    kind, arguments = format_arguments(ObservePolicies(isolation=found[0], anti_affinity={}))
    assert isinstance(parse_arguments(kind, arguments), ObservePolicies)


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
    failover(min_limit="00000000002", usage_threshold="80"),
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


def test_policies_that_no_message_has_room_for_keep_the_bridge_from_acting() -> None:
    told: list[ObservePolicies] = []
    with fake_pulsar() as fake:
        admin = PulsarAdmin(AdminAddress(url=fake.url, timeout_s=2.0))
        follower = PolicyFollower(admin, CLUSTER, 0, told.append)
        long = {**POLICY, "namespaces": ["acme/" + "n" * 4_000]}
        fake.put(ISOLATION, {f"policy-{n}": long for n in range(300)})
        follower.follow(["acme/ns"])
        assert "one message has room for" in follower.reason_not_to_act
        assert (told, list(follower.unread)) == ([], ["policies"])
        fake.put(ISOLATION, {"mine": POLICY})
        follower.follow(["acme/ns"])
        assert follower.reason_not_to_act == ""
        assert [one.isolation for one in told] == [{"mine": TOLD}]
        follower.close()


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
        assert (follower.reason_not_to_act, follower.ungrouped_namespaces) == ("", frozenset())
        assert follower.domains == {"b:1": "east", "c:1": "west"}
        assert [one.isolation.keys() for one in told] == [{"good", "odd"}]
        follower.close()
        late = PolicyFollower(admin, CLUSTER, 0, told.append)
        late.follow(names)
        assert "isolation policy odd" in late.reason_not_to_act
        assert late.ungrouped_namespaces == {"acme/other"}
        assert told[-1].isolation.keys() == {"good"}
        assert told[-1].anti_affinity == {"acme/ns": "racks"}
        late.close()


REPORTS = Path(__file__).parents[1] / "wire" / "pulsar_reports"
BUNDLES = ("acme/ns/0x00000000_0x80000000", "acme/ns/0x80000000_0xffffffff")
MINUTE = 60_000
SIGNALS = SignalsConfig(report_max_interval_ms=MINUTE)
NOW = 1_800_000_000_000


def envelope(incarnation: str = "17") -> Envelope:
    return Envelope(cluster="local", broker="b:1", incarnation=incarnation, seq=0, reported_at_ms=0)


def reading(rate: float, incarnation: str = "17", topics: int = 2) -> Measured:
    stats = np.zeros((2, 8))
    stats[:, 0], stats[0, 4] = rate, topics
    gauges = Gauges(percent=np.full(COUNT, rate / 10), started_ms=17, version="4.0.8")
    rates = TopicRates(topics=("t",), traffic=np.array([[rate, 0.0, 0.0, 0.0]]))
    table = TopicTable(bundles=BUNDLES, stats=stats, rates=dict.fromkeys(BUNDLES, rates))
    return measured_extensible(envelope(incarnation), gauges, table, "http://b:1")


def using(measured: Measured, percent: float) -> Measured:
    """The reading with this usage of every resource."""
    return replace(measured, load=replace(measured.load, usage=np.full(COUNT, percent)))


def kinds(told: SentReports, measured: Measured, now_ms: int) -> tuple[SentReports, list[type]]:
    told, messages = report(told, measured, now_ms, SIGNALS, 100)
    return told, [type(message) for message in messages]


@pytest.mark.parametrize("name", sorted(path.name for path in REPORTS.glob("*-broker-*.json")))
def test_report_of_the_modular_manager_is_its_load_without_pulsars_own(name: str) -> None:
    parsed = parse_pulsar_report((REPORTS / name).read_bytes(), "local")
    assert not isinstance(parsed, Rejected)
    measured = measured_modular(parsed)
    _, messages = report(SentReports(), measured, NOW, SIGNALS, 100)
    assert [type(message) for message in messages] == [BrokerLoad, BundleLoad]
    assert all(not bundle.startswith("pulsar/") for bundle in measured.names)
    for message in messages:
        assert content(parse(*format_message(message), RULES)) == content(message)


def test_load_of_the_extensible_manager_is_the_sum_of_its_bundles() -> None:
    _, messages = report(SentReports(), reading(30.0), NOW, SIGNALS, 100)
    load = messages[0]
    assert isinstance(load, BrokerLoad)
    assert load.traffic.tolist() == [60.0, 0.0, 0.0, 0.0]
    assert (load.bundle_count, load.topic_count) == (2, 2)
    assert load.usage.tolist() == [3.0] * COUNT
    for message in messages:
        assert content(parse(*format_message(message), RULES)) == content(message)


def test_same_measurement_read_again_is_a_heartbeat() -> None:
    told, first = kinds(SentReports(), reading(30.0), NOW)
    told, second = kinds(told, reading(30.0), NOW + 5_000)
    told, third = kinds(told, reading(31.0), NOW + 10_000)
    _, restarted = kinds(told, reading(31.0, incarnation="18"), NOW + 10_001)
    assert first == third == restarted == [BrokerLoad, BundleLoad]
    assert second == [Heartbeat]


def test_usage_that_changed_between_two_measurements_is_reported_without_the_bundles() -> None:
    """A host's usage is taken at times of its own: an idle broker's load is news then."""
    told, _ = kinds(SentReports(), using(reading(0.0), 20.0), NOW)
    told, within = kinds(told, using(reading(0.0), 29.0), NOW + 5_000)
    told, above = kinds(told, using(reading(0.0), 31.0), NOW + 10_000)
    told, again = kinds(told, using(reading(0.0), 31.0), NOW + 15_000)
    _, due = kinds(told, using(reading(0.0), 31.0), NOW + MINUTE)
    assert (within, above, again) == ([Heartbeat], [BrokerLoad], [Heartbeat])
    assert due == [BrokerLoad, BundleLoad]


def test_seq_grows_with_each_message_and_over_a_new_start_of_the_collector() -> None:
    told, messages = report(SentReports(), reading(1.0), NOW, SIGNALS, 100)
    told, more = report(told, reading(1.0), NOW - 7_000, SIGNALS, 100)  # a clock that stepped back
    _, restarted = report(SentReports(), reading(1.0), NOW + 5_000, SIGNALS, 100)
    seqs = [each[0].envelope.seq for each in (messages, more, restarted)]
    assert seqs == sorted(set(seqs))


def test_topics_are_reported_for_bundles_near_a_limit_only() -> None:
    config = Config(splitting=Splitting(max_topics=10))
    measured = reading(30.0, topics=5)
    table = TopicTable(
        bundles=measured.names,
        stats=measured.stats,
        rates=dict.fromkeys(
            BUNDLES, TopicRates(topics=("t",), traffic=np.array([[30.0, 0.0, 0.0, 0.0]]))
        ),
    )
    told, sent = report_topics(SentReports(), measured, table, config, NOW)
    again, nothing = report_topics(told, measured, table, config, NOW + 1)
    assert [(type(message), message.bundle) for message in sent] == [(TopicLoad, BUNDLES[0])]
    assert nothing == []
    assert again == told
    at_ms = NOW + config.signals.report_max_interval_ms
    later, repeated = report_topics(told, measured, table, config, at_ms)
    assert [message.bundle for message in repeated] == [BUNDLES[0]]
    assert report_topics(later, measured, table, config, at_ms + 1)[1] == []


def test_topics_of_bundles_with_partitions_are_reported_when_they_are_others() -> None:
    measured = reading(30.0, topics=5)

    def told_of(
        told: SentReports, names: tuple[str, ...], rate: float
    ) -> tuple[SentReports, list[TopicLoad]]:
        rates = TopicRates(topics=names, traffic=np.full((len(names), 4), rate))
        table = TopicTable(bundles=measured.names, stats=measured.stats, rates={BUNDLES[1]: rates})
        return report_topics(told, measured, table, Config(), NOW)

    two = ("persistent://t/n/a-partition-0", "persistent://t/n/b")
    told, sent = told_of(SentReports(), two, 1.0)
    assert [(one.bundle, one.topics) for one in sent] == [(BUNDLES[1], two)]
    told, sent = told_of(told, two, 2.0)
    assert sent == []
    told, sent = told_of(told, two[:1], 2.0)
    assert [one.topics for one in sent] == [two[:1]]
    assert told_of(told, two[1:], 2.0)[1] == []


@pytest.mark.parametrize(("count", "chars"), [(10_001, 10), (9_000, 150), (3, 10)])
def test_topics_of_a_bundle_that_are_too_many_are_reported_as_the_busiest(
    count: int, chars: int
) -> None:
    names = tuple(f"persistent://t/n/{n:0{chars}}" for n in range(count))
    traffic = np.random.default_rng(1).random((count, 4)) * 1_000.0
    traffic[[0, count - 1]] = 1e6
    measured = reading(30.0, topics=count)
    rates = {BUNDLES[0]: TopicRates(topics=names, traffic=traffic)}
    table = TopicTable(bundles=measured.names, stats=measured.stats, rates=rates)
    config = Config(splitting=Splitting(max_topics=1))
    (message,) = report_topics(SentReports(), measured, table, config, NOW)[1]
    read = parse(*format_message(message), RULES)
    assert isinstance(read, TopicLoad), read
    assert len(read.topics) > 0.4 * count
    assert (read.topics == names) == (count == 3)
    assert {names[0], names[-1]} <= set(read.topics)
    assert read.traffic.sum(axis=0) == pytest.approx(traffic.sum(axis=0))


def test_limit_that_is_switched_off_is_never_near() -> None:
    stats = np.zeros((2, 8))
    stats[:, 5] = 1e6
    assert near_a_split(BUNDLES, stats, Splitting(max_sessions=0)) == []
    assert near_a_split(BUNDLES, stats, Splitting(max_sessions=1_000)) == list(BUNDLES)
