"""The bridge's questions to brokers that are slow, that refuse, or that answer nonsense."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.bridge.admin_address import AdminAddress, PulsarAdminError
from jobs.bridge.collector import Collector, PollOptions, TooSoonError
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.console import MisuseError
from lbcore.bridge.mirror import Look
from lbcore.config.tree import Config
from lbcore.wire.messages import BrokerLoad, BundleLoad, Message
from tests.support.admin.fake_pulsar import CLUSTER, FakePulsar, fake_pulsar
from tests.support.processes.programs import until

ANSWERS = Path(__file__).parent / "pulsar_answers"
REPORTS = Path(__file__).parents[1] / "wire" / "pulsar_reports"
LEFT, RIGHT = "acme/ns/0x00000000_0x80000000", "acme/ns/0x80000000_0xffffffff"
REPORT_PATH = "/admin/v2/broker-stats/load-report"


@pytest.fixture
def fake() -> Iterator[FakePulsar]:
    with fake_pulsar() as running:
        running.own({0: [LEFT], 1: [RIGHT]})
        running.put("/admin/v2/tenants", ["acme", "pulsar"])
        running.put("/admin/v2/namespaces/acme", ["acme/ns"])
        running.put("/admin/v2/namespaces/pulsar", ["pulsar/system"])
        boundaries = {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2}
        running.put("/admin/v2/namespaces/acme/ns/bundles", boundaries)
        yield running


def admin_of(fake: FakePulsar, **more: Any) -> PulsarAdmin:
    return PulsarAdmin(AdminAddress(url=fake.url, timeout_s=2.0, **more))


def collector_of(fake: FakePulsar, sent: list[Message], look_ms: int = 1_000) -> Collector:
    polling = PollOptions(look_ms=look_ms, load_ms=100)
    return Collector(admin_of(fake), ("local", CLUSTER), Config(), polling, sent.append)


def test_broker_is_asked_at_the_address_that_pulsar_redirects_to(fake: FakePulsar) -> None:
    admin = admin_of(fake)
    assert admin.web_service_url(CLUSTER, fake.broker(0)) == fake.url
    assert asked_what_they_own(fake) == 0  # where we begin, nobody is asked
    assert admin.boundaries("acme/other") == ()
    assert admin.owned(CLUSTER, fake.broker(1)) == {RIGHT}
    assert admin.web_service_url(CLUSTER, fake.broker(1)) == f"http://{fake.broker(1)}"


def test_unload_follows_the_redirect_to_the_owner(fake: FakePulsar) -> None:
    path = f"/admin/v2/namespaces/{LEFT.replace('ns/', 'ns/')}/unload"
    fake.redirects[f"{fake.ports[0]}{path}"] = f"http://{fake.broker(1)}{path}?authoritative=true"
    fake.put(f"{fake.ports[1]}{path}", b"", 204)
    admin = admin_of(fake)
    admin.brokers(CLUSTER)
    fake.requests.clear()
    admin.unload(LEFT, fake.broker(1))
    assert [request[0] for request in fake.requests] == ["PUT", "PUT"]
    assert "destinationBroker=127.0.0.1%3A" in fake.requests[0][1]


def test_redirects_in_a_circle_end(fake: FakePulsar) -> None:
    fake.redirects[f"{fake.ports[0]}/admin/v2/clusters"] = f"{fake.url}/admin/v2/clusters"
    with pytest.raises(PulsarAdminError, match="redirected more than"):
        admin_of(fake).clusters()


def test_redirect_to_what_is_no_address_is_an_error_of_that_broker(fake: FakePulsar) -> None:
    path = f"/admin/v2/brokers/{CLUSTER}/{fake.broker(1)}/ownedNamespaces"
    fake.redirects[f"{fake.ports[0]}{path}"] = "http://[a-gateway/login"
    collector = collector_of(fake, [])
    assert collector.look().owned == {fake.broker(0): {LEFT}, fake.broker(1): None}
    assert "GET" in collector.failures[fake.broker(1)]
    collector.close()


def test_refusal_is_told_in_pulsars_words(fake: FakePulsar) -> None:
    path = f"/admin/v2/namespaces/{LEFT}/unload"
    fake.put(path, {"reason": "Not allowed unload namespace bundle"}, 409)
    with pytest.raises(PulsarAdminError, match="409 Not allowed unload") as caught:
        admin_of(fake).unload(LEFT, "b:1")
    assert caught.value.is_refusal


@pytest.mark.parametrize("reason", [b"[" * 100_000, b'{"reason":' * 50_000, b"9" * 100_000])
def test_refusal_that_is_nested_without_end_is_told_as_it_begins(
    fake: FakePulsar, reason: bytes
) -> None:
    path = f"/admin/v2/namespaces/{LEFT}/unload"
    fake.put(path, reason, 409)
    with pytest.raises(PulsarAdminError, match="409 ") as caught:
        admin_of(fake).unload(LEFT, "b:1")
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("garbage", [b"", b"<html>", b"[1, 2]", b"\xff\xfe", b'{"a": 1}'])
def test_garbage_for_a_list_of_brokers_is_an_error_and_no_list(
    fake: FakePulsar, garbage: bytes
) -> None:
    fake.put(f"/admin/v2/brokers/{CLUSTER}", garbage)
    with pytest.raises(PulsarAdminError):
        admin_of(fake).brokers(CLUSTER)


def test_nobody_at_the_address_is_an_error(fake: FakePulsar) -> None:
    admin = PulsarAdmin(AdminAddress(url="http://127.0.0.1:1", timeout_s=1.0))
    with pytest.raises(PulsarAdminError) as caught:
        admin.clusters()
    assert not caught.value.is_refusal
    assert fake.requests == []


def test_broker_that_is_gone_is_no_longer_the_one_to_begin_at(fake: FakePulsar) -> None:
    admin = PulsarAdmin(AdminAddress(url=fake.url, timeout_s=0.3))
    assert admin.owned(CLUSTER, fake.broker(1)) == {RIGHT}
    path = f"/admin/v2/brokers/{CLUSTER}"
    fake.hang.add(f"{fake.ports[0]}{path}")
    with pytest.raises(PulsarAdminError):
        admin.brokers(CLUSTER)
    assert set(admin.brokers(CLUSTER)) == {fake.broker(0), fake.broker(1)}
    fake.release.set()


def test_address_that_can_not_be_one_is_misuse() -> None:
    for url in ("broker:8080", "ftp://broker", "http://"):
        with pytest.raises(MisuseError):
            PulsarAdmin(AdminAddress(url=url))


def test_token_is_read_at_each_request(fake: FakePulsar, tmp_path: Path) -> None:
    token = tmp_path / "token"
    admin = admin_of(fake, token_file=token)
    with pytest.raises(PulsarAdminError, match="token"):
        admin.clusters()
    token.write_text("secret\n")
    fake.put("/admin/v2/clusters", ["one"])
    assert admin.clusters() == ("one",)


def test_look_has_owners_and_namespaces_without_pulsars_own(fake: FakePulsar) -> None:
    fake.put("/admin/v2/tenants", ["acme", "gone", "pulsar"])  # it goes between two questions
    collector = collector_of(fake, [])
    look = collector.look()
    assert look.unread == frozenset()
    assert all("load of" in what for what in collector.unread())
    assert look.owned == {fake.broker(0): {LEFT}, fake.broker(1): {RIGHT}}
    assert look.namespaces == {"acme/ns": (0, 0x80000000, 0xFFFFFFFF)}
    assert collector.failures == {}
    collector.close()


def count_of(fake: FakePulsar, end: str) -> int:
    return sum(path.endswith(end) for _, path in list(fake.requests))


def asked_what_they_own(fake: FakePulsar) -> int:
    return count_of(fake, "/ownedNamespaces")


@pytest.mark.parametrize("who", ["look", "actuator"])
@pytest.mark.parametrize(
    ("before", "after"), [((0, 1), (0,)), ((0,), (0, 1)), ((), (0, 1))], ids=str
)
def test_nobody_is_asked_what_it_owns_while_others_take_over(
    fake: FakePulsar, who: str, before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    fake.own({number: [] for number in before})
    polling = PollOptions(look_ms=500, load_ms=600_000, quiet_ms=300)
    collector = Collector(admin_of(fake), ("local", CLUSTER), Config(), polling, [].append)
    collector.look()
    fake.own({number: [] for number in after})
    asked = asked_what_they_own(fake)
    asks = {"look": collector.look, "actuator": lambda: collector.owned(collector.active()[0])}
    with pytest.raises(TooSoonError, match="nobody is asked what it owns"):
        asks[who]()
    assert asked_what_they_own(fake) == asked
    time.sleep(0.35)
    assert set(collector.look().owned) == {fake.broker(number) for number in after}
    collector.close()


def test_extensible_brokers_are_asked_at_once(fake: FakePulsar) -> None:
    collector = collector_of(fake, [])
    collector.is_extensible = lambda: True  # type: ignore[method-assign]
    collector.look()
    fake.own({0: [LEFT, RIGHT]})
    assert collector.look().owned == {fake.broker(0): {LEFT, RIGHT}}
    collector.close()


def test_tenants_are_asked_for_their_namespaces_at_once(
    fake: FakePulsar, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.put("/admin/v2/tenants", ["acme", "umbra"])
    fake.put("/admin/v2/namespaces/umbra", ["umbra/ns"])
    fake.put("/admin/v2/namespaces/umbra/ns/bundles", {"boundaries": ["0x00000000", "0xffffffff"]})
    collector, both = collector_of(fake, []), threading.Barrier(2, timeout=5.0)
    ask = collector._admin.namespaces  # noqa: SLF001 (as Pulsar answers)

    def namespaces(tenant: str) -> tuple[str, ...]:
        both.wait()  # neither is answered before both were asked
        return ask(tenant)

    monkeypatch.setattr(collector._admin, "namespaces", namespaces)  # noqa: SLF001 (as above)
    assert collector.look().namespaces.keys() == {"acme/ns", "umbra/ns"}
    collector.close()


def test_boundaries_noted_by_another_thread_do_not_break_a_look(
    fake: FakePulsar, monkeypatch: pytest.MonkeyPatch
) -> None:
    polling = PollOptions(look_ms=1_000, namespaces_ms=0)
    collector = Collector(admin_of(fake), ("local", CLUSTER), Config(), polling, [].append)
    collector.look()
    is_unread = Look.is_unread

    def noting(look: Look, namespace: str) -> bool:
        collector.note_boundaries("acme/new", (0, 0xFFFFFFFF))
        return is_unread(look, namespace)

    monkeypatch.setattr(Look, "is_unread", noting)
    assert collector.look().owned[fake.broker(0)] == {LEFT}
    collector.close()


def test_broker_that_hangs_is_not_in_the_look_and_delays_nobody(fake: FakePulsar) -> None:
    path = f"/admin/v2/brokers/{CLUSTER}/{fake.broker(1)}/ownedNamespaces"
    fake.hang.add(f"{fake.ports[1]}{path}")
    collector = collector_of(fake, [], look_ms=300)
    look = collector.look()
    assert look.owned == {fake.broker(0): {LEFT}, fake.broker(1): None}
    assert (look.owners(), look.unclaimed()) == ({LEFT: fake.broker(0)}, None)
    fake.release.set()
    fake.hang.clear()
    collector.close()


def reports(fake: FakePulsar, sent: list[Message], kind: type) -> list[Message]:
    collector = collector_of(fake, sent, look_ms=200)
    for _ in range(50):
        collector.look()
        if len({one.envelope.broker for one in sent if isinstance(one, kind)}) == 2:  # type: ignore[union-attr]
            break
    collector.close()
    return [one for one in sent if isinstance(one, kind)]


def test_load_of_a_modular_broker_is_its_report(fake: FakePulsar) -> None:
    report = json.loads((REPORTS / "busy-broker-1.json").read_text())
    for number in range(2):
        own = {**report, "webServiceUrl": f"http://{fake.broker(number)}"}
        fake.put(f"{fake.ports[number]}{REPORT_PATH}", own)
    sent: list[Message] = []
    found = reports(fake, sent, BrokerLoad)
    assert {load.envelope.incarnation for load in found} == {str(report["startTimestamp"])}  # type: ignore[union-attr]
    assert any(isinstance(one, BundleLoad) for one in sent)


def test_load_that_can_not_be_sent_is_logged_and_read_again(
    fake: FakePulsar, caplog: pytest.LogCaptureFixture
) -> None:
    fake.own({0: [LEFT]})
    report = json.loads((REPORTS / "busy-broker-1.json").read_text())
    fake.put(REPORT_PATH, {**report, "webServiceUrl": fake.url})
    collector = collector_of(fake, [])
    sent: list[Message] = []

    def send(message: Message) -> None:
        sent.append(message)
        raise ValueError("it is no text")

    collector._send = send  # noqa: SLF001 (Kafka's)
    until(lambda: collector.look() and len(sent) > 1, 20.0)
    collector.close()
    assert "it is no text" in caplog.text


def test_load_of_an_extensible_broker_is_its_metrics_and_topics(fake: FakePulsar) -> None:
    fake.put(REPORT_PATH, {"reason": "java.lang.UnsupportedOperationException"}, 500)
    fake.put("/metrics/", (ANSWERS / "metrics-broker-1.txt").read_bytes())
    fake.put("/admin/v2/broker-stats/topics", (ANSWERS / "topics-with-traffic.json").read_bytes())
    sent: list[Message] = []
    found = reports(fake, sent, BrokerLoad)
    assert all(load.traffic[0] > 50.0 for load in found)  # type: ignore[union-attr]
    names = {name for one in sent if isinstance(one, BundleLoad) for name in one.names}
    assert names
    assert all(not name.startswith("pulsar/") for name in names)


def test_partitions_of_a_topic_that_is_deleted_are_forgotten(fake: FakePulsar) -> None:
    topics = "/admin/v2/broker-stats/topics"
    path = f"{fake.ports[0]}{topics}"
    fake.put(REPORT_PATH, {"reason": "java.lang.UnsupportedOperationException"}, 500)
    fake.put("/metrics/", (ANSWERS / "metrics-broker-1.txt").read_bytes())
    fake.put(topics, {})
    loaded = {f"persistent://acme/ns/t-partition-{number}": {} for number in range(3)}
    fake.put(path, {"acme/ns": {LEFT.rpartition("/")[2]: {"persistent": loaded}}})
    collector = collector_of(fake, [], look_ms=200)

    def expect(partitions: dict[str, dict[str, int]]) -> None:
        until(lambda: collector.look() and collector.partitions() == partitions, 20.0)

    expect({LEFT: {"persistent://acme/ns/t": 3}})
    fake.put(path, {})
    expect({})
    collector.close()


def test_one_error_does_not_make_a_modular_broker_an_extensible_one(fake: FakePulsar) -> None:
    fake.own({0: [LEFT]})
    fake.put(REPORT_PATH, json.loads((REPORTS / "busy-broker-1.json").read_text()))
    fake.put("/metrics/", (ANSWERS / "metrics-broker-1.txt").read_bytes())
    fake.put("/admin/v2/broker-stats/topics", (ANSWERS / "topics-with-traffic.json").read_bytes())
    collector = collector_of(fake, [], look_ms=200)
    while not all(collector.incarnations().values()) or not collector.incarnations():
        collector.look()
    known = dict(collector.incarnations())
    fake.put(REPORT_PATH, {"reason": "java.lang.UnsupportedOperationException"}, 500)
    since = len(fake.requests)
    while not collector.is_extensible():
        collector.look()
    asked = sum(REPORT_PATH in path for _, path in fake.requests[since:])
    collector.close()
    assert asked > 1  # three, but for one that was on its way
    assert collector.incarnations() != known


@pytest.mark.parametrize("status", [500, 503])
def test_errors_of_a_modular_broker_that_starts_make_it_no_extensible_one(
    fake: FakePulsar, status: int
) -> None:
    fake.own({0: [LEFT]})
    fake.put(REPORT_PATH, {"reason": "java.lang.NullPointerException"}, status)
    fake.put("/metrics/", (ANSWERS / "metrics-broker-1.txt").read_bytes())
    fake.put("/admin/v2/broker-stats/topics", (ANSWERS / "topics-with-traffic.json").read_bytes())
    sent: list[Message] = []
    collector = collector_of(fake, sent, look_ms=200)
    until(lambda: collector.look() and count_of(fake, REPORT_PATH) > 3, 20.0)
    assert not collector.is_extensible()
    assert sent == []
    report = json.loads((REPORTS / "busy-broker-1.json").read_text())
    fake.put(REPORT_PATH, {**report, "webServiceUrl": fake.url})
    until(lambda: collector.look() and sent, 20.0)
    collector.close()
    assert collector.incarnations() == {fake.broker(0): str(report["startTimestamp"])}


def test_load_that_is_garbage_is_not_sent(fake: FakePulsar) -> None:
    fake.put(REPORT_PATH, b"<html>")
    sent: list[Message] = []
    collector = collector_of(fake, sent, look_ms=200)
    for _ in range(3):
        collector.look()
    collector.close()
    assert sent == []


OWNED, LISTED = "ownedNamespaces", f"/admin/v2/brokers/{CLUSTER}"


def spoil(fake: FakePulsar, path: str, how: str) -> None:
    """Let the second broker, or all where the path is asked of all, answer a path so."""
    if how == "half":
        fake.half.add(path)
    else:
        status, content = {"500": (500, b"{}"), "rubbish": (200, b"\x00<html>")}[how]
        fake.put(path, content, status)


@pytest.mark.parametrize("how", ["half", "500", "rubbish"])
def test_answer_that_is_none_concludes_nothing_of_that_broker_and_delays_no_other(
    fake: FakePulsar, how: str
) -> None:
    path = f"{fake.ports[1]}/admin/v2/brokers/{CLUSTER}/{fake.broker(1)}/{OWNED}"
    spoil(fake, path, how)
    collector = collector_of(fake, [])
    look = collector.look()
    assert look.owned == {fake.broker(0): {LEFT}, fake.broker(1): None}
    assert list(collector.failures) == [fake.broker(1)]
    assert how != "500" or how in collector.failures[fake.broker(1)]
    assert look.namespaces == {"acme/ns": (0, 0x80000000, 0xFFFFFFFF)}
    collector.close()


@pytest.mark.parametrize("how", ["half", "500", "rubbish"])
def test_list_of_brokers_that_is_none_is_an_error_and_nobody_is_gone(
    fake: FakePulsar, how: str
) -> None:
    collector = collector_of(fake, [])
    before = collector.look()
    spoil(fake, LISTED, how)
    with pytest.raises(PulsarAdminError):
        collector.look()
    fake.half.clear()
    fake.own({0: [LEFT], 1: [RIGHT]})
    assert collector.look().owned == before.owned
    collector.close()


@pytest.mark.parametrize("how", ["half", "500", "rubbish"])
def test_boundaries_that_are_none_leave_those_that_were_known(fake: FakePulsar, how: str) -> None:
    collector = collector_of(fake, [])
    before = collector.look()
    spoil(fake, "/admin/v2/namespaces/acme/ns/bundles", how)
    collector._namespaces_due_s = 0.0  # noqa: SLF001 (half a minute has gone by)
    assert collector.look().namespaces == before.namespaces
    collector.close()


@pytest.mark.parametrize("answer", [(404, {"reason": "Cluster does not exist"}), (200, [])])
def test_cluster_that_was_renamed_is_told_with_its_new_name_and_nobody_is_gone(
    fake: FakePulsar, answer: tuple[int, object]
) -> None:
    collector = collector_of(fake, [])
    before = collector.look()
    fake.put("/admin/v2/clusters", ["new-name", "global"])
    fake.put(LISTED, answer[1], answer[0])
    with pytest.raises(PulsarAdminError, match=r"no cluster standalone any more.*new-name.*--pul"):
        collector.look()
    assert collector.incarnations().keys() == before.owned.keys()
    collector.close()


def test_brokers_of_two_versions_and_managers_are_each_reported_as_they_are(
    fake: FakePulsar,
) -> None:
    """In the middle of an upgrade; doctor tells of it."""
    report = json.loads((REPORTS / "busy-broker-1.json").read_text())
    old = {**report, "webServiceUrl": fake.url, "brokerVersionString": "3.0.9"}
    fake.put(f"{fake.ports[0]}{REPORT_PATH}", old)
    fake.put(f"{fake.ports[1]}{REPORT_PATH}", {"reason": "java.lang.Unsupported"}, 500)
    fake.put(f"{fake.ports[1]}/metrics/", (ANSWERS / "metrics-broker-1.txt").read_bytes())
    topics = (ANSWERS / "topics-with-traffic.json").read_bytes()
    fake.put("/admin/v2/broker-stats/topics", topics)
    sent: list[Message] = []
    found = reports(fake, sent, BrokerLoad)
    told = {one.envelope.broker: one.broker_version for one in found if isinstance(one, BrokerLoad)}
    assert told == {fake.broker(0): "3.0.9", fake.broker(1): "4.0.8"}


BAD = "acme/bad"
BAD_BUNDLES = f"/admin/v2/namespaces/{BAD}/bundles"


@pytest.mark.parametrize(
    ("answer", "status", "label"),
    [
        ({"reason": "no"}, 500, "server_error"),
        ({"reason": "no"}, 403, "not_allowed"),
        ({"reason": "no"}, 401, "not_allowed"),
        ({"reason": "no"}, 412, "refused"),
        (b"", 204, "unreadable"),
        (b"null", 200, "unreadable"),
        (b"<html>", 404, "html_page"),
        (b"<html>log in", 200, "html_page"),
        ({"boundaries": []}, 200, "unreadable"),
        ({"boundaries": ["0x00000000", "0xffffffff", "0x80000000"]}, 200, "unreadable"),
    ],
)
def test_one_namespace_that_can_not_be_read_hides_no_other(
    fake: FakePulsar, answer: Any, status: int, label: str
) -> None:
    fake.put("/admin/v2/namespaces/acme", ["acme/ns", BAD])
    fake.put(BAD_BUNDLES, answer, status)
    collector = collector_of(fake, [])
    look = collector.look()
    assert look.namespaces == {"acme/ns": (0, 0x80000000, 0xFFFFFFFF)}
    assert look.unread == {BAD}
    assert {what: one.label for what, one in collector.unread().items() if "load" not in what} == {
        f"namespace {BAD}": label
    }
    fake.put(BAD_BUNDLES, {"boundaries": ["0x00000000", "0xffffffff"]})
    collector._namespaces_due_s = 0.0  # noqa: SLF001 (half a minute has gone by)
    assert collector.look().namespaces[BAD] == (0, 0xFFFFFFFF)
    assert f"namespace {BAD}" not in collector.unread()
    collector.close()


@pytest.mark.parametrize(
    ("path", "unread"), [("/admin/v2/tenants", "*"), ("/admin/v2/namespaces/acme", "acme")]
)
def test_tenant_whose_namespaces_can_not_be_read_keeps_those_that_were_known(
    fake: FakePulsar, path: str, unread: str
) -> None:
    collector = collector_of(fake, [])
    before = collector.look()
    fake.put(path, {"reason": "no"}, 500)
    collector._namespaces_due_s = 0.0  # noqa: SLF001 (half a minute has gone by)
    look = collector.look()
    assert look.namespaces == before.namespaces
    assert look.unread == {unread}
    collector.close()
    late = collector_of(fake, [])  # a bridge that has just started knows of none
    assert late.look().is_unread("acme/never")
    late.close()
