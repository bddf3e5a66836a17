"""The bridge behind a proxy, a Service or a load balancer: whose answer it is gets verified."""

import json
import ssl
import time
from collections import defaultdict
from pathlib import Path

import pytest

from jobs.bridge.admin_address import AdminAddress, PulsarAdminError, UnverifiedBrokerError
from jobs.bridge.bridge import brokers_settings
from jobs.bridge.collector import Collector, Rhythm
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.bridge.restarted_cluster import PulsarCluster
from jobs.cli import main
from lbcore.config.tree import Config
from lbcore.wire.messages import BrokerLoad, BundleLoad, Heartbeat, Message
from tests.support.admin.assessed import BUNDLES, HOT_COUNT, REPORT_PATH, RUNTIME_PATH
from tests.support.admin.fake_pulsar import CLUSTER, fake_pulsar
from tests.support.admin.fronts import USAGES, Front, fronted_brokers
from tests.support.values.tokens import Authority

READINGS = 8


def admin_of(front: Front, **broker_urls: str) -> PulsarAdmin:
    urls = {front.names[int(number)]: url for number, url in broker_urls.items()}
    return PulsarAdmin(AdminAddress(url=front.url, timeout_s=2.0, broker_urls=urls))


def readings(admin: PulsarAdmin, looks: int = READINGS) -> tuple[Collector, list[Message]]:
    """What the bridge sends of so many looks, each with a new reading of each broker."""
    sent: list[Message] = []
    rhythm = Rhythm(look_ms=2_000, load_ms=1)
    collector = Collector(admin, ("local", CLUSTER), Config(), rhythm, sent.append)
    for _ in range(looks):
        collector.look()
        while any(one.loading and not one.loading.done() for one in collector._brokers.values()):  # noqa: SLF001 the thread's end is seen nowhere else
            time.sleep(0.01)
    collector.close()
    return collector, sent


def usages(sent: list[Message]) -> dict[str, set[float]]:
    found: dict[str, set[float]] = defaultdict(set)
    for one in sent:
        if isinstance(one, BrokerLoad):
            found[one.envelope.broker].add(one.usage[0])
    return dict(found)


@pytest.mark.parametrize("follows", [True, False])
def test_brokers_behind_a_front_are_each_asked_at_their_own_address(follows: bool) -> None:  # noqa: FBT001 a case's value
    with fronted_brokers(follows=follows) as front:
        collector, sent = readings(admin_of(front))
        assert usages(sent) == {name: {USAGES[at]} for at, name in enumerate(front.names)}
        starts = defaultdict(set)
        for one in sent:
            if isinstance(one, BrokerLoad | BundleLoad | Heartbeat):
                starts[one.envelope.broker].add(one.envelope.incarnation)
        assert all(len(one) == 1 for one in starts.values())
        measured = [one for one in sent if isinstance(one, BundleLoad)]
        assert len(measured) == 2  # one measurement each, however often it is read
        assert collector.unread() == {}


@pytest.mark.parametrize("follows", [True, False])
def test_front_before_brokers_that_can_not_be_reached_is_credited_to_nobody(
    follows: bool,  # noqa: FBT001 a case's value
) -> None:
    with fronted_brokers(is_reachable=False, follows=follows) as front:
        collector, sent = readings(admin_of(front), 3)
        assert sent == []
        assert collector.unread().keys() == {f"load of {name}" for name in front.names}
        if follows:
            assert all("--broker-url" in str(one) for one in collector.unread().values())
            assert {one.label for one in collector.unread().values()} == {"other_broker"}


def test_addresses_that_are_given_are_used_and_swapped_ones_are_refused() -> None:
    with fronted_brokers(is_reachable=False) as front:
        one, other = front.addresses
        _, sent = readings(admin_of(front, **{"0": one, "1": other}), 3)
        assert usages(sent) == {name: {USAGES[at]} for at, name in enumerate(front.names)}
        collector, sent = readings(admin_of(front, **{"0": other, "1": one}), 3)
        assert sent == []
        assert {error.label for error in collector.unread().values()} == {"other_broker"}


def test_broker_whose_address_is_taken_by_another_gets_none_of_its_load() -> None:
    with fronted_brokers() as front:
        admin = PulsarAdmin(AdminAddress(url=front.addresses[0], timeout_s=2.0))
        admin.brokers(CLUSTER)
        first, second = front.names
        front.fake.answers[f"{front.fake.ports[0]}{REPORT_PATH}"] = front.fake.answers[
            f"{front.fake.ports[1]}{REPORT_PATH}"
        ]
        with pytest.raises(UnverifiedBrokerError, match=f"{first} was asked at .* {second} answ"):
            admin.load_report(CLUSTER, first)
        assert admin.load_report(CLUSTER, second).load.usage[0] == USAGES[1]


@pytest.mark.parametrize("path", [REPORT_PATH, RUNTIME_PATH, "/metrics/"])
def test_own_answer_of_a_broker_is_taken_from_no_redirect(path: str) -> None:
    with fronted_brokers() as front:
        admin = PulsarAdmin(AdminAddress(url=front.addresses[0], timeout_s=2.0))
        first, second = admin.brokers(CLUSTER)[0], front.addresses[1]
        assert f"http://{first}" == front.addresses[0] or admin.web_service_url(CLUSTER, first)
        name = front.names[0]
        front.fake.redirects[f"{front.fake.ports[0]}{path}"] = f"{second}{path}"
        ask = {
            REPORT_PATH: admin.load_report,
            RUNTIME_PATH: admin.settings,
            "/metrics/": admin.metrics,
        }[path]
        with pytest.raises(UnverifiedBrokerError, match="a redirect to"):
            ask(CLUSTER, name)


def test_broker_of_two_ports_is_known_by_its_own_settings(tmp_path: Path) -> None:
    authority = Authority()
    authority.write(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(tmp_path, "broker"))
    with fake_pulsar(context) as secure:
        plain = "127.0.0.1:1"  # the port that Pulsar lists, at which nobody speaks TLS
        secure.put(f"/admin/v2/brokers/{CLUSTER}", [plain, secure.broker(1)])
        secure.put(f"/admin/v2/brokers/{CLUSTER}/{plain}/ownedNamespaces", {})
        url = secure.url.replace("http:", "https:")
        address = AdminAddress(url=url, timeout_s=2.0, ca_file=tmp_path / "ca.pem")
        admin = PulsarAdmin(address)
        admin.brokers(CLUSTER)
        ports = {"webServicePort": "Optional[1]", "webServicePortTls": f"{secure.ports[0]}"}
        secure.put(RUNTIME_PATH, ports)
        assert admin.web_service_url(CLUSTER, plain) == url
        other = PulsarAdmin(address)
        other.brokers(CLUSTER)
        secure.put(RUNTIME_PATH, {**ports, "webServicePort": "Optional[2]"})
        with pytest.raises(UnverifiedBrokerError, match="--broker-url"):
            other.web_service_url(CLUSTER, plain)


def test_settings_of_another_broker_are_nobodys() -> None:
    with fronted_brokers() as front:
        admin = PulsarAdmin(AdminAddress(url=front.addresses[0], timeout_s=2.0))
        names = admin.brokers(CLUSTER)
        host, _, port = front.names[1].rpartition(":")
        told = {"advertisedAddress": host, "webServicePort": f"Optional[{port}]"}
        front.fake.put(RUNTIME_PATH, told)
        found, failed = brokers_settings(admin, CLUSTER, names)
        assert found == {front.names[0]: None, front.names[1]: told}
        assert list(failed) == [f"settings of {front.names[0]}"]


def test_login_page_is_no_answer_of_pulsars_and_no_unload_done() -> None:
    with fronted_brokers() as front:
        admin = PulsarAdmin(AdminAddress(url=front.addresses[0], timeout_s=2.0))
        bundle = BUNDLES[HOT_COUNT]
        front.fake.put(f"/admin/v2/namespaces/{bundle}/unload", b"<!DOCTYPE html><p>log in", 200)
        with pytest.raises(PulsarAdminError, match="HTML page") as caught:
            admin.unload(bundle, front.names[1])
        assert caught.value.label == "html_page"


def test_rolling_restart_takes_no_other_brokers_start_for_that_of_the_broker() -> None:
    with fronted_brokers() as front:
        admin = PulsarAdmin(AdminAddress(url=front.addresses[0], timeout_s=2.0))
        admin.brokers(CLUSTER)
        watch = PulsarCluster.__new__(PulsarCluster)
        watch._admin, watch._name = admin, CLUSTER  # noqa: SLF001 no tables are needed for this
        starts = [watch.incarnation(name) for name in front.names]
        assert starts == ["1700000000000", "1700000000001"]
        ports = front.fake.ports
        other = front.fake.answers[f"{ports[1]}{REPORT_PATH}"]
        front.fake.answers[f"{ports[0]}{REPORT_PATH}"] = other
        assert watch.incarnation(front.names[0]) == ""


def test_bridge_at_the_command_line_refuses_a_front_and_says_what_to_give(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with fronted_brokers(is_reachable=False) as front:
        words = ["bridge", "pulsar", "--admin-url", front.url, "--conf", "pulsar", "--json"]
        words += ["--bootstrap", "127.0.0.1:1", "--tables", str(tmp_path), "--timeout-s", "2"]
        assert main(words) == 1
    told = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert "can't be told from each other" in told["error"]
    assert "pulsar-proxy" in told["why"] or "Pulsar proxy" in told["why"]
    assert "--broker-url" in told["next"]
