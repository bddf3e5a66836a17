"""Whom the bridge shows its token to when Pulsar, or somebody in its place, sends it elsewhere."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.bridge.admin_address import AdminAddress, PulsarAdminError, redirect_leads_to_broker
from jobs.bridge.pulsar_admin import PulsarAdmin
from tests.support.admin.fake_pulsar import CLUSTER, FakePulsar, fake_pulsar
from tests.support.values.tokens import Authority

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


def admin_of(url: str, token: Path, **files: Path) -> PulsarAdmin:
    return PulsarAdmin(AdminAddress(url=url, token_file=token, timeout_s=5.0, **files))


@pytest.mark.parametrize("what", ["unload", "namespaces", "owned"])
@pytest.mark.parametrize("form", ["http://{}{}", "//{}{}", "HTTP://{}{}?authoritative=true"])
def test_token_goes_to_no_host_that_the_cluster_does_not_list(
    fake: FakePulsar, thief: FakePulsar, token: Path, what: str, form: str
) -> None:
    theirs = f"/admin/v2/brokers/{CLUSTER}/{fake.broker(1)}/ownedNamespaces"
    path = {"unload": UNLOAD, "namespaces": "/admin/v2/tenants", "owned": theirs}[what]
    fake.redirects[f"{fake.ports[0]}{path}"] = form.format(thief.broker(0), path)
    admin = admin_of(fake.url, token)
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
    admin = admin_of(fake.url, token)
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
        admin = admin_of(secure.url.replace("http:", "https:"), token, ca_file=tmp_path / "ca.pem")
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
            admin_of(fake.url, token, ca_file=tmp_path / "ca.pem").unload(BUNDLE)
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
