"""What an attached run remembers of a Pulsar cluster, and gives back, over real HTTP."""

import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.bridge.admin_address import AdminAddress, PulsarAdminError
from jobs.bridge.attachment import give_back, known_attachment, look_at, settle, take_over
from jobs.bridge.bridge import access_error
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.cli import main
from jobs.console import CommandError, MisuseError
from jobs.local.layout import Layout
from lbcore.bridge.acting import SHEDDING
from tests.support.admin.fake_pulsar import CLUSTER, NOT_TO_BE_USED, FakePulsar, fake_pulsar
from tests.support.values.tokens import Authority

RUNTIME = "/admin/v2/brokers/configuration/runtime"
SWITCH = f"/admin/v2/brokers/configuration/{SHEDDING}"


@pytest.fixture
def fake() -> Iterator[FakePulsar]:
    with fake_pulsar() as running:
        running.own({0: [], 1: []})
        running.put(RUNTIME, {SHEDDING: "true"})
        for word in ("true", "false"):
            running.put(f"{SWITCH}/{word}", b"")
        running.put(SWITCH, b"")
        dynamic(running, {})
        yield running


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(root=tmp_path)


def admin_of(fake: FakePulsar) -> PulsarAdmin:
    return PulsarAdmin(AdminAddress(url=fake.url, timeout_s=2.0))


def dynamic(fake: FakePulsar, values: dict[str, str]) -> None:
    fake.put("/admin/v2/brokers/configuration/values", values)


def switched(fake: FakePulsar) -> list[str]:
    return [
        path.rpartition("/")[2] if method == "POST" else "removed"
        for method, path in fake.requests
        if method in ("POST", "DELETE")
    ]


@pytest.mark.parametrize("before", ["true", "false"])
@pytest.mark.parametrize("was_dynamic", [True, False])
def test_what_was_taken_is_given_back_as_it_was(
    fake: FakePulsar, layout: Layout, before: str, *, was_dynamic: bool
) -> None:
    fake.put(RUNTIME, {SHEDDING: before})
    dynamic(fake, {SHEDDING: before} if was_dynamic else {"another": "1"})
    admin = admin_of(fake)
    seen = look_at(admin, CLUSTER)
    take_over(admin, layout, settle(layout, fake.url, seen), seen)
    fake.put(RUNTIME, {SHEDDING: "false"})
    dynamic(fake, {SHEDDING: "false"})
    # after a crash it is taken over once more: what was so before is not what is so now
    seen = look_at(admin, CLUSTER)
    take_over(admin, layout, settle(layout, fake.url, seen), seen)
    known = known_attachment(layout)
    assert known is not None
    give_back(admin, layout, known)
    assert switched(fake) == ["false", "false", before, *([] if was_dynamic else ["removed"])]
    after = known_attachment(layout)
    assert after is not None
    assert not after.acts


def test_what_was_so_is_on_disk_before_it_is_changed(fake: FakePulsar, layout: Layout) -> None:
    fake.put(f"{SWITCH}/false", b"no", status=500)
    admin = admin_of(fake)
    seen = look_at(admin, CLUSTER)
    with pytest.raises(CommandError, match="could not be switched off"):
        take_over(admin, layout, settle(layout, fake.url, seen), seen)
    known = known_attachment(layout)
    assert known is not None
    assert (known.acts, known.shed_before) == (True, True)


def test_cluster_without_brokers_is_refused(fake: FakePulsar) -> None:
    fake.put(f"/admin/v2/brokers/{CLUSTER}", [])
    with pytest.raises(CommandError, match="has no active broker"):
        look_at(admin_of(fake), CLUSTER)


@pytest.mark.parametrize(
    ("versions", "is_told"),
    [(("4.0.8", "4.0.8"), False), (("4.0.8", "4.2.4"), True), (("4.0.8", "<html>"), False)],
)
def test_brokers_of_different_versions_are_told_before_anything_starts(
    fake: FakePulsar,
    layout: Layout,
    versions: tuple[str, str],
    is_told: bool,  # noqa: FBT001 a case's value
    capsys: pytest.CaptureFixture[str],
) -> None:
    for port, version in zip(fake.ports, versions, strict=True):
        fake.put(f"{port}/admin/v2/brokers/version", version.encode())
    noted = attached_in_vain(fake.url, layout, capsys)
    named = sorted(f"{fake.broker(n)} {version}" for n, version in enumerate(versions))
    told = f"({', '.join(named)})" in noted
    assert (told, "different versions" in noted) == (is_told, is_told)


def test_one_broker_is_told_before_anything_starts(
    fake: FakePulsar, layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.own({0: []})
    assert "has one broker: nothing can be moved" in attached_in_vain(fake.url, layout, capsys)


def attached_in_vain(url: str, layout: Layout, capsys: pytest.CaptureFixture[str]) -> str:
    """What an attachment notes that ends because its port is taken."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["attach", url, "--state-dir", str(layout.root), "--port", port]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize(("status", "content", "said"), NOT_TO_BE_USED)
def test_address_that_is_no_pulsar_or_lets_nobody_in_is_told_and_nothing_is_begun(
    status: int, content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_pulsar() as fake:
        fake.put("/admin/v2/clusters", content, status)
        for verb in (["attach", fake.url, "--state-dir"], ["assess", fake.url, "--html"]):
            assert main([*verb, str(tmp_path / "state")]) == 1
            assert_told(capsys, said)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("trouble", "next_step"),
    [
        ("plain", "--tls-ca"),
        ("unknown authority", "--tls-ca"),
        ("no certificate of ours", "--tls-cert"),
    ],
)
def test_connection_that_is_not_protected_is_told_and_nothing_is_begun(
    trouble: str, next_step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority()
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(*authority.issue(tmp_path, "broker"))
    if trouble == "no certificate of ours":
        served.load_verify_locations(authority.write(tmp_path / "clients.pem"))
        served.verify_mode = ssl.CERT_REQUIRED
    trusted = Authority("another") if trouble == "unknown authority" else authority
    ca = trusted.write(tmp_path / "ca.pem")
    with fake_pulsar(None if trouble == "plain" else served) as fake:
        fake.own({0: [], 1: []})
        url = fake.url.replace("http:", "https:")
        for verb in (["attach", url, "--state-dir"], ["assess", url, "--html"]):
            words = [*verb, str(tmp_path / "state"), "--tls-ca", str(ca)]
            assert main([*words, "--timeout-s", "5"]) == 1
            assert_told(capsys, url, next_step)
    assert fake.requests == []
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("said", "next_step"),
    [
        (
            "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required",
            "--tls-cert",
        ),
        ("[SSL: SSLV3_ALERT_HANDSHAKE_FAILURE] sslv3 alert handshake failure", "--tls-cert"),
        ("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca", "--tls-cert"),
        ("[Errno 104] Connection reset by peer", "--tls-cert"),
        ("[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation", "--tls-cert"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", "--tls-ca"),
    ],
)
def test_refusal_of_a_protected_connection_says_which_certificate_is_missing(
    said: str, next_step: str
) -> None:
    """Which of them comes is a race between the brokers' alert and the end of the connection."""
    told = access_error("https://broker:8443", PulsarAdminError(said))
    assert next_step in told.next_step


def assert_told(capsys: pytest.CaptureFixture[str], what: str, next_step: str = "") -> None:
    """The last three lines on standard error are an error."""
    first, second, third = capsys.readouterr().err.splitlines()[-3:]
    assert first.startswith("error: ")
    assert what in first
    assert second.startswith("  why: ")
    assert third.startswith(" next: ")
    assert next_step in third


def test_folder_of_another_run_is_refused(fake: FakePulsar, layout: Layout) -> None:
    seen = look_at(admin_of(fake), CLUSTER)
    settle(layout, "http://elsewhere:8080", seen)
    settle(layout, fake.url, seen)  # another broker of the same cluster
    (layout.root / "attachment.json").write_text(
        json.dumps({"url": fake.url, "pulsar_cluster": "other"})
    )
    with pytest.raises(CommandError, match="is attached to the cluster other"):
        settle(layout, fake.url, seen)
    (layout.root / "size.json").write_text("{}")
    with pytest.raises(CommandError, match="simulated brokers"):
        known_attachment(layout)


def test_nothing_is_done_where_nobody_can_be_asked_or_is_there(
    fake: FakePulsar, layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--state-dir", str(layout.root)]
    assert main(["attach", fake.url, "--act", *where]) == 2
    assert "add --yes if you agree" in capsys.readouterr().err
    assert main(["detach", *where]) == 0
    assert "nothing was changed" in capsys.readouterr().out
    assert main(["detach", "--state-dir", str(layout.root / "no")]) == 1
    assert "is attached to no cluster" in capsys.readouterr().err
    assert main(["attach", "http://127.0.0.1:9", "--timeout-s", "1", *where]) == 1
    assert switched(fake) == []


@pytest.mark.parametrize(
    ("words", "code"),
    [(("--set", "nope.nope=1"), 2), (("--conf", "nowhere"), 2), (("--port", "taken"), 1)],
)
def test_taking_over_that_can_not_start_changes_nothing(
    fake: FakePulsar, layout: Layout, words: tuple[str, str], code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        value = str(taken.getsockname()[1]) if words[1] == "taken" else words[1]
        where = ["--state-dir", str(layout.root)]
        assert main(["attach", fake.url, "--act", "--yes", *where, words[0], value]) == code
    assert switched(fake) == []
    known = known_attachment(layout)
    assert known is None or not known.acts


@pytest.mark.parametrize("path", [RUNTIME, "/admin/v2/brokers/configuration/values"])
def test_cluster_whose_settings_are_not_told_is_not_taken(
    fake: FakePulsar, layout: Layout, path: str
) -> None:
    fake.put(path, b"forbidden", status=403)
    admin = admin_of(fake)
    seen = look_at(admin, CLUSTER)
    with pytest.raises(CommandError, match="is not taken over"):
        take_over(admin, layout, settle(layout, fake.url, seen), seen)
    assert switched(fake) == []
    known = known_attachment(layout)
    assert known is not None
    assert not known.acts


def test_giving_back_that_fails_half_way_can_be_done_again(
    fake: FakePulsar, layout: Layout
) -> None:
    admin = admin_of(fake)
    seen = look_at(admin, CLUSTER)
    take_over(admin, layout, settle(layout, fake.url, seen), seen)
    fake.put(SWITCH, b"no", status=500)
    where = ["--state-dir", str(layout.root)]
    assert main(["detach", *where]) == 1
    fake.put(SWITCH, b"")
    assert main(["detach", *where]) == 0
    assert switched(fake)[-2:] == ["true", "removed"]


def test_simulated_brokers_do_not_go_into_the_folder_of_a_real_cluster(
    fake: FakePulsar, layout: Layout
) -> None:
    settle(layout, fake.url, look_at(admin_of(fake), CLUSTER))
    with pytest.raises(MisuseError, match="is attached to a real cluster"):
        layout.settle_size({})
