"""HTTP clients of the bridge: proxies, redirects, TLS."""

import json
import ssl
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.bridge.admin_address import (
    AdminAddress,
    PulsarAdminError,
    UnverifiedBrokerError,
    redirect_leads_to_broker,
)
from jobs.bridge.bridge import brokers_settings
from jobs.bridge.collector import Collector, PollOptions
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.bridge.restarted_cluster import PulsarCluster
from jobs.cli import main
from jobs.console import MisuseError
from lbcore.config.tree import Config
from lbcore.wire.messages import BrokerLoad, BundleLoad, Heartbeat, Message
from tests.support.admin.fake_pulsar import (
    BUNDLES,
    CLUSTER,
    HOT_COUNT,
    REPORT_PATH,
    RUNTIME_PATH,
    USAGES,
    FakePulsar,
    Front,
    fake_pulsar,
    fronted_brokers,
)
from tests.support.values.tokens import Authority

READINGS = 8


def admin_of(front: Front, **broker_urls: str) -> PulsarAdmin:
    urls = {front.names[int(number)]: url for number, url in broker_urls.items()}
    return PulsarAdmin(AdminAddress(url=front.url, timeout_s=2.0, broker_urls=urls))


def readings(admin: PulsarAdmin, looks: int = READINGS) -> tuple[Collector, list[Message]]:
    """What the bridge sends of so many looks, each with a new reading of each broker."""
    sent: list[Message] = []
    polling = PollOptions(look_ms=2_000, load_ms=1)
    collector = Collector(admin, ("local", CLUSTER), Config(), polling, sent.append)
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


BUNDLE = "acme/ns/0x00000000_0x80000000"
UNLOAD = f"/admin/v2/namespaces/{BUNDLE}/unload"


@pytest.fixture
def fake() -> Iterator[FakePulsar]:
    with fake_pulsar() as running:
        running.own({0: [BUNDLE], 1: []})
        yield running


@pytest.fixture
def thief() -> Iterator[FakePulsar]:
    """Somebody else's server, who takes what is sent to him."""
    with fake_pulsar() as running:
        running.put(UNLOAD, b"", 204)
        running.put("/admin/v2/clusters", [CLUSTER])
        yield running


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("super user's")
    return path


def admin_of_redirects(url: str, token: Path, **files: Path) -> PulsarAdmin:
    return PulsarAdmin(AdminAddress(url=url, token_file=token, timeout_s=5.0, **files))


@pytest.mark.parametrize("what", ["unload", "namespaces", "owned"])
@pytest.mark.parametrize("form", ["http://{}{}", "//{}{}", "HTTP://{}{}?authoritative=true"])
def test_token_goes_to_no_host_that_the_cluster_does_not_list(
    fake: FakePulsar, thief: FakePulsar, token: Path, what: str, form: str
) -> None:
    theirs = f"/admin/v2/brokers/{CLUSTER}/{fake.broker(1)}/ownedNamespaces"
    path = {"unload": UNLOAD, "namespaces": "/admin/v2/tenants", "owned": theirs}[what]
    fake.redirects[f"{fake.ports[0]}{path}"] = form.format(thief.broker(0), path)
    admin = admin_of_redirects(fake.url, token)
    ask = {
        "unload": lambda: admin.unload(BUNDLE),
        "namespaces": admin.tenants,
        "owned": lambda: admin.owned(CLUSTER, fake.broker(1)),
    }[what]
    with pytest.raises(PulsarAdminError, match="no broker that the cluster lists"):
        ask()
    assert thief.requests == []


def test_redirect_to_a_broker_that_is_new_in_the_list_is_followed(
    fake: FakePulsar, thief: FakePulsar, token: Path
) -> None:
    admin = admin_of_redirects(fake.url, token)
    admin.brokers(CLUSTER)
    fake.put(f"/admin/v2/brokers/{CLUSTER}", [fake.broker(0), thief.broker(0)])
    fake.redirects[f"{fake.ports[0]}{UNLOAD}"] = f"{thief.url}{UNLOAD}"
    admin.unload(BUNDLE)
    assert thief.tokens == ["Bearer super user's"]


def context(authority: Authority, folder: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(*authority.issue(folder, "broker"))
    return made


def test_token_that_went_over_https_goes_over_http_to_nobody(
    fake: FakePulsar, token: Path, tmp_path: Path
) -> None:
    authority = Authority()
    authority.write(tmp_path / "ca.pem")
    with fake_pulsar(context(authority, tmp_path)) as secure:
        secure.own({0: [BUNDLE], 1: []})
        secure.put(f"/admin/v2/brokers/{CLUSTER}", [secure.broker(0), fake.broker(0)])
        secure.redirects[f"{secure.ports[0]}{UNLOAD}"] = f"{fake.url}{UNLOAD}"
        admin = admin_of_redirects(
            secure.url.replace("http:", "https:"), token, ca_file=tmp_path / "ca.pem"
        )
        with pytest.raises(PulsarAdminError, match="less protected than https"):
            admin.unload(BUNDLE)
        assert fake.requests == []
        secure.redirects[f"{secure.ports[0]}{UNLOAD}"] = (
            f"https://{secure.broker(1)}{UNLOAD}?authoritative=true"
        )
        secure.put(f"{secure.ports[1]}{UNLOAD}", b"", 204)
        admin.unload(BUNDLE)


def test_token_is_not_shown_to_a_listed_host_that_can_not_prove_its_name(
    fake: FakePulsar, token: Path, tmp_path: Path
) -> None:
    Authority().write(tmp_path / "ca.pem")
    with fake_pulsar(context(Authority("another"), tmp_path)) as other:
        fake.put(f"/admin/v2/brokers/{CLUSTER}", [fake.broker(0), other.broker(0)])
        fake.redirects[f"{fake.ports[0]}{UNLOAD}"] = f"https://{other.broker(0)}{UNLOAD}"
        with pytest.raises(PulsarAdminError, match="CERTIFICATE_VERIFY_FAILED"):
            admin_of_redirects(fake.url, token, ca_file=tmp_path / "ca.pem").unload(BUNDLE)
        assert other.requests == []


LISTED = ("Broker-1:8080", "10.0.0.2:8080", "[fd00::1]:8080", "broker-4")


@pytest.mark.parametrize(
    ("url", "target", "is_followed"),
    [
        ("http://e:8080", "http://broker-1:8080/x", True),
        ("http://e:8080", "http://BROKER-1:8080/x", True),
        ("http://e:8080", "http://10.0.0.2:8080/x", True),
        ("http://e:8080", "http://[fd00::1]:8080/x", True),
        ("http://e:8080", "http://broker-4/x", True),
        ("http://e:8080", "https://broker-1:8443/x", True),
        ("https://e:8443", "https://broker-1:8443/x", True),
        ("https://e:8443", "http://broker-1:8080/x", False),
        ("http://e:8080", "http://broker-1:8081/x", False),
        ("http://e:8080", "http://broker-1/x", False),
        ("http://e:8080", "http://evil:8080/x", False),
        ("http://e:8080", "https://evil:8443/x", False),
        ("http://e:8080", "http://broker-1.evil:8080/x", False),
        ("http://e:8080", "http://broker-1:8080@evil:8080/x", False),
        ("http://e:8080", "http://evil@broker-1:8080/x", False),
        ("http://e:8080", "http://broker-1:x/x", False),
        ("http://e:8080", "http://[broker-1/x", False),
        ("http://e:8080", "ftp://broker-1:8080/x", False),
        ("http://e:8080", "file:///etc/passwd", False),
        ("http://e:8080", "", False),
    ],
)
def test_redirect_is_followed_to_listed_brokers_only(
    url: str, target: str, *, is_followed: bool
) -> None:
    assert redirect_leads_to_broker(url, target, LISTED) is is_followed
    assert not redirect_leads_to_broker(url, target, ())


EXPIRED = timedelta(seconds=-60)
DAY_MS = 86_400_000
OWNED = f"/admin/v2/brokers/{CLUSTER}/%s/ownedNamespaces"


def server_context(authority: Authority, folder: Path) -> ssl.SSLContext:
    """Of brokers that let in who has a certificate of the same authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(folder, "broker"))
    context.load_verify_locations(authority.write(folder / "ca.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_certificate_is_shown_and_the_brokers_is_checked(tmp_path: Path) -> None:
    authority = Authority()
    cert, key = authority.issue(tmp_path, "bridge")
    token = tmp_path / "token"
    token.write_text("secret\n")
    with fake_pulsar(server_context(authority, tmp_path)) as fake:
        fake.put("/admin/v2/clusters", ["one"])
        address = AdminAddress(
            url=fake.url.replace("http:", "https:"),
            ca_file=tmp_path / "ca.pem",
            cert_file=cert,
            key_file=key,
            token_file=token,
            timeout_s=5.0,
        )
        assert PulsarAdmin(address).clusters() == ("one",)
        assert fake.tokens == ["Bearer secret"]
        for wrong in (
            replace(address, ca_file=Authority("another").write(tmp_path / "other.pem")),
            replace(address, cert_file=None, key_file=None),
        ):
            with pytest.raises(PulsarAdminError):
                PulsarAdmin(wrong).clusters()
        assert len(fake.requests) == 1


def test_files_that_can_not_be_used_are_misuse_and_named(tmp_path: Path) -> None:
    address = AdminAddress(url="https://broker:8443", ca_file=tmp_path / "none.pem")
    with pytest.raises(MisuseError, match="TLS files") as caught:
        PulsarAdmin(address)
    assert "--tls-ca" in caught.value.next_step


def test_key_without_its_certificate_is_misuse(tmp_path: Path) -> None:
    for url in ("https://broker:8443", "http://broker:8080"):
        with pytest.raises(MisuseError, match="has no effect") as caught:
            PulsarAdmin(AdminAddress(url=url, key_file=tmp_path / "key.pem"))
        assert "--tls-cert" in caught.value.next_step


def secured(fake: FakePulsar, folder: Path, **more: Any) -> PulsarAdmin:
    url = fake.url.replace("http:", "https:")
    return PulsarAdmin(AdminAddress(url=url, ca_file=folder / "ca.pem", timeout_s=5.0, **more))


def test_certificate_of_a_broker_that_has_expired_is_told_and_no_token_shown(
    tmp_path: Path,
) -> None:
    authority = Authority()
    token = tmp_path / "token"
    token.write_text("secret")
    authority.write(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(tmp_path, "broker", EXPIRED))
    with fake_pulsar(context) as fake:
        admin = secured(fake, tmp_path, token_file=token)
        with pytest.raises(PulsarAdminError, match="certificate has expired"):
            admin.clusters()
        assert fake.tokens == []


def test_own_certificate_that_has_expired_is_told_and_its_successor_used_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority()
    cert, key = authority.issue(tmp_path, "bridge", EXPIRED)
    with fake_pulsar(server_context(authority, tmp_path)) as fake:
        fake.put("/admin/v2/clusters", ["one"])
        admin = secured(fake, tmp_path, cert_file=cert, key_file=key)
        with pytest.raises(PulsarAdminError, match=r"bridge\.pem expired at .*successor"):
            admin.clusters()
        later_s = time.monotonic() + 10.0
        monkeypatch.setattr("jobs.adapters.http.tls.time.monotonic", lambda: later_s)
        cert.write_text("half")
        with pytest.raises(PulsarAdminError):  # what can't be used changes nothing
            admin.clusters()
        later_s += 10.0
        authority.issue(tmp_path, "bridge")
        assert admin.clusters() == ("one",)


def test_ends_of_our_certificate_and_of_those_that_brokers_show_are_known(tmp_path: Path) -> None:
    authority = Authority()
    cert, key = authority.issue(tmp_path, "bridge", timedelta(days=5))
    with fake_pulsar(server_context(authority, tmp_path)) as fake:
        fake.put(f"/admin/v2/brokers/{CLUSTER}", [fake.broker(0), fake.broker(1)])
        fake.own({0: [], 1: []})
        target = f"https://{fake.broker(1)}{OWNED % fake.broker(1)}"
        fake.redirects[f"{fake.ports[0]}{OWNED % fake.broker(1)}"] = target
        admin = secured(fake, tmp_path, cert_file=cert, key_file=key)
        assert admin.certificates().keys() == {f"the bridge ({cert})"}
        for broker in admin.brokers(CLUSTER):
            admin.claims(CLUSTER, broker)
        ends = dict(admin.certificates())
        own_ms = ends.pop(f"the bridge ({cert})")
        left_ms = round(time.time() * 1_000) - 300_000
        assert own_ms > left_ms + 5 * DAY_MS
        assert ends.keys() == {fake.broker(0), fake.broker(1)}
        assert all(left_ms + DAY_MS < ends_ms < own_ms for ends_ms in ends.values())
        fake.put(f"/admin/v2/brokers/{CLUSTER}", [fake.broker(0)])
        admin.brokers(CLUSTER)
        assert fake.broker(1) not in admin.certificates()


def test_nothing_ends_where_no_certificate_is_shown(tmp_path: Path) -> None:
    cert, key = Authority().issue(tmp_path, "bridge")
    with fake_pulsar() as fake:
        fake.put("/admin/v2/clusters", ["one"])
        admin = PulsarAdmin(AdminAddress(url=fake.url, cert_file=cert, key_file=key))
        admin.clusters()
        assert admin.certificates() == {}
