"""Lookup snapshots: answers, batches, owner requests, addresses."""

import json
from zlib import crc32

import mmh3
import pytest

from lbcore.model.bundles import DIGESTS, HashFunction, hash_topic
from lbcore.model.names import InvalidNameError, parse_bundle
from lbcore.ownership.records import State
from lbcore.pulsar.namespaces import highest_bundle
from lbcore.pulsar.stats import throughput
from lbcore.route.addresses import (
    BrokerAddress,
    ListenerUrls,
    OwnerRequests,
    lookup_body,
    lookup_data,
)
from lbcore.route.batch import BatchIndex
from lbcore.route.bundles import BundleRoute, NamespaceRoutes, Unsound
from lbcore.route.snapshot import (
    LookupOutcome,
    LookupSnapshot,
    find_regressions,
)

CRC, MURMUR = HashFunction.CRC32, HashFunction.MURMUR3_32
B1 = BrokerAddress(
    broker="b1",
    pulsar_service_url="pulsar://b1:6650",
    listeners={"inside": ListenerUrls(service_url="pulsar://10.0.0.1:6650")},
)
TOPICS = [f"persistent://t/n/topic-{number}" for number in range(50)]


def snapshot(function: HashFunction = CRC) -> LookupSnapshot:
    halves = [route(LOW, destination="b1"), route(HIGH, destination="b2")]
    return (
        LookupSnapshot(cluster="c")
        .with_namespaces({"t/n": function})
        .with_routes(halves)
        .with_brokers([B1])
    )


@pytest.mark.parametrize("function", [CRC, MURMUR])
def test_digests_equal_the_models_hashes(function: HashFunction) -> None:
    for topic in ("", "123456789", "persistent://t/n/käse-\u4e3b\U0001f9c0"):
        text = topic.encode()
        expected = crc32(text) if function is CRC else mmh3.hash(text, 0, signed=False)
        assert DIGESTS[function](text) == hash_topic(function, topic) == expected


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("t/n/x", "persistent://t/n/x"),
        ("PERSISTENT://t/n/x", "persistent://t/n/x"),
        ("persistent://t/n/\ud800", "persistent://t/n/?"),
    ],
)
def test_lookup_of_another_spelling_gives_the_full_names_bundle(short: str, full: str) -> None:
    found = snapshot()
    assert found.lookup(short) == found.lookup(full) is not None
    index = BatchIndex(found)
    assert index.find([short]).tolist() == index.find([full]).tolist() != [-1]


@pytest.mark.parametrize(
    "topic",
    ["segment://t/n/orders/0000-7fff-0", "segment://t/n/orders/8000-ffff-1", "topic://t/n/o"],
)
def test_lookup_of_a_segment_and_of_a_scalable_topic_is_by_its_own_name(topic: str) -> None:
    found = snapshot()
    located = found.lookup(topic)
    assert located is not None
    assert located.bundle == (LOW if hash_topic(CRC, topic) < 0x80000000 else HIGH)
    index = BatchIndex(found)
    assert [index.routes[at] for at in index.find([topic]).tolist()] == [located]
    assert found.lookup(topic.replace("//t/n/", "//t/other/")) is None


def test_lookup_of_a_v1_name_is_of_the_v1_namespace() -> None:
    bundle = "p/c/n/0x00000000_0xffffffff"
    found = LookupSnapshot(cluster="c").with_namespaces({"p/c/n": CRC}).with_routes([route(bundle)])
    for topic in ("persistent://p/c/n/x", "persistent://p/c/n/x/y"):
        located = found.lookup(topic)
        assert located is not None
        assert located.bundle == bundle


@pytest.mark.parametrize("name", ["http://t/n/x", "persistent://t/x", "a/b", "persistent://t/ /x"])
def test_lookup_of_what_is_no_topic_raises(name: str) -> None:
    with pytest.raises(InvalidNameError):
        snapshot().lookup(name)


def test_answer_by_what_is_known() -> None:
    found = snapshot()
    of_b1 = next(t for t in TOPICS if hash_topic(CRC, t) < 0x80000000)
    of_b2 = next(t for t in TOPICS if hash_topic(CRC, t) >= 0x80000000)
    free = found.with_routes([route(LOW, 2, State.FREE, "b1", "")])
    outcomes = [
        found.answer(of_b1).outcome,
        found.answer(of_b1, "inside").outcome,
        found.answer(of_b1, "outside").outcome,
        found.answer(of_b2).outcome,
        found.answer("persistent://t/other/x").outcome,
        free.answer(of_b1).outcome,
    ]
    assert outcomes == [
        LookupOutcome.FOUND,
        LookupOutcome.FOUND,
        LookupOutcome.LISTENER_UNKNOWN,
        LookupOutcome.BROKER_UNKNOWN,
        LookupOutcome.NAMESPACE_NOT_FOUND,
        LookupOutcome.NO_OWNER,
    ]


def test_namespace_without_records_has_no_owner_yet() -> None:
    found = LookupSnapshot(cluster="c").with_namespaces({"t/n": CRC})
    assert found.answer(TOPICS[0]).outcome is LookupOutcome.NO_OWNER
    assert BatchIndex(found).find_brokers(TOPICS[:1]).tolist() == [""]
    assert not found.unsound


def test_regressions_are_lower_versions_of_bundles_in_both() -> None:
    old = snapshot().with_routes([route(LOW, 5), route(HIGH, 5)])
    new = LookupSnapshot(cluster="c").with_routes([route(LOW, 4)])
    assert find_regressions(old, new) == [LOW]
    assert find_regressions(new, old) == []


PLAIN = BrokerAddress(
    broker="127.0.0.1:28080",
    web_service_url="http://127.0.0.1:28080",
    pulsar_service_url="pulsar://127.0.0.1:26650",
)
WITH_TLS = BrokerAddress(
    broker="b1",
    web_service_url="http://b1:8080",
    web_service_url_tls="https://b1:8443",
    pulsar_service_url="pulsar://b1:6650",
    pulsar_service_url_tls="pulsar+ssl://b1:6651",
    listeners={"inside": ListenerUrls(service_url="pulsar://10.0.0.1:6650")},
)


def test_lookup_body_is_what_pulsar_4_0_8_sent_with_its_order_of_keys() -> None:
    expected = (
        b'{"brokerUrl":"pulsar://127.0.0.1:26650","httpUrl":"http://127.0.0.1:28080",'
        b'"nativeUrl":"pulsar://127.0.0.1:26650","brokerUrlSsl":""}'
    )
    assert lookup_body(PLAIN) == expected
    assert len(lookup_body(PLAIN)) == 132  # the recorded answer's Content-Length
    keys = ["brokerUrl", "brokerUrlTls", "httpUrl", "httpUrlTls", "nativeUrl", "brokerUrlSsl"]
    assert list(lookup_data(WITH_TLS)) == keys
    assert lookup_data(WITH_TLS)["brokerUrlSsl"] == ""
    assert lookup_data(BrokerAddress(broker="b2")) == {"brokerUrlSsl": ""}


def test_lookup_data_of_a_listener_replaces_the_binary_addresses_only() -> None:
    found = json.loads(lookup_body(WITH_TLS, WITH_TLS.listeners["inside"]))
    assert found == {
        "brokerUrl": "pulsar://10.0.0.1:6650",
        "httpUrl": "http://b1:8080",
        "httpUrlTls": "https://b1:8443",
        "nativeUrl": "pulsar://10.0.0.1:6650",
        "brokerUrlSsl": "",
    }


LOW, HIGH = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
LOWER_QUARTER, UPPER_QUARTER = "t/n/0x00000000_0x40000000", "t/n/0x40000000_0x80000000"


def route(
    bundle: str,
    version_id: int = 1,
    state: State = State.OWNED,
    source: str = "",
    destination: str = "b1",
) -> BundleRoute:
    namespace, lower, upper = parse_bundle(bundle)
    return BundleRoute(
        bundle=bundle,
        namespace=namespace,
        lower=lower,
        upper=upper,
        state=state,
        version_id=version_id,
        source=source,
        destination=destination,
    )


def namespace(*routes: BundleRoute) -> NamespaceRoutes:
    empty = NamespaceRoutes(namespace="t/n", hash_function=HashFunction.CRC32)
    return empty.fold(routes)


@pytest.mark.parametrize(
    ("routes", "unsound"),
    [
        ((), None),
        ((route(LOW), route(HIGH)), None),
        ((route("t/n/0x00000000_0xffffffff"),), None),
        ((route(HIGH),), Unsound.GAP),
        ((route(LOW),), Unsound.GAP),
        ((route(LOWER_QUARTER), route(HIGH)), Unsound.GAP),
        (
            (
                route(LOW),
                route(UPPER_QUARTER),
                route(HIGH),
            ),
            Unsound.OVERLAP,
        ),
        (
            (route(LOW), route(HIGH, destination="")),
            Unsound.OWNER_MISSING,
        ),
        (
            (
                route(LOW),
                route(HIGH, state=State.FREE, destination=""),
            ),
            None,
        ),
    ],
)
def test_fold_says_what_is_wrong_with_the_division(
    routes: tuple[BundleRoute, ...], unsound: Unsound | None
) -> None:
    assert namespace(*routes).unsound is unsound


def route_owner_requests(
    state: State = State.FREE, version: int = 1, bundle: str = "a/b/0x0_0x1"
) -> BundleRoute:
    return BundleRoute(
        bundle=bundle, namespace="a/b", lower=0, upper=1, state=state, version_id=version
    )


def test_record_is_asked_for_once_in_five_seconds_and_the_next_version_at_once() -> None:
    requests = OwnerRequests()
    due = [
        requests.record_if_due(route_owner_requests(), now_s) for now_s in (0.0, 0.1, 4.9, 5.0, 5.1)
    ]
    assert due == [True, False, False, True, False]
    assert requests.record_if_due(route_owner_requests(version=2), 5.1)


NAMES = ("t/n/0x00000000_0x40000000", "t/n/0x40000000_0x80000000", "t/n/0x80000000_0xffffffff")
LIVE = [
    BundleRoute(
        bundle=name, namespace="t/n", lower=at, upper=at + 1, state=State.OWNED, version_id=1
    )
    for at, name in enumerate(NAMES)
]
TOPICS_OF_PULSAR_SPLIT = {NAMES[0]: 90, NAMES[1]: 5, NAMES[2]: 7}
LOADS = [
    {
        "bundles": list(NAMES),
        "msg_rate_in": [900.0, 10.0, 50.0],
        "msg_rate_out": [900.0, 10.0, 50.0],
        "msg_throughput_in": [100.0, 4_000.0, 300.0],
        "msg_throughput_out": [100.0, 10.0, 300.0],
    }
]
"""The first has the most topics and messages, the second the highest throughput."""


def test_highest_is_by_throughput_in_and_out_or_by_topics_and_never_zero() -> None:
    assert highest_bundle(LIVE, dict(throughput(LOADS))) == LIVE[1]
    load = {**LOADS[0], "msg_throughput_out": [100.0, 10.0, 9_000.0]}
    assert highest_bundle(LIVE, dict(throughput([load]))) == LIVE[2]
    assert highest_bundle(LIVE, TOPICS_OF_PULSAR_SPLIT) == LIVE[0]
    assert highest_bundle(LIVE, dict.fromkeys(NAMES, 1)) == LIVE[0]
    assert highest_bundle(LIVE, {}) is highest_bundle((), {}) is None
