"""The admin interface over TLS: who is believed, and what is shown to brokers that ask."""

import ssl
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.bridge.admin_address import AdminAddress, PulsarAdminError
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.console import MisuseError
from tests.support.admin.fake_pulsar import CLUSTER, FakePulsar, fake_pulsar
from tests.support.values.tokens import Authority

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
