"""The service with TLS, tokens, certificates and bounds, over real sockets."""

import base64
import contextlib
import hashlib
import hmac
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.processes.frozen import COMPILER, TurnedClock
from tests.support.processes.lookup_service import ROOT, LookupService
from tests.support.tables.lookup_tables import TablesWriter, owned
from tests.support.values.clusters import few
from tests.support.values.tokens import (
    OTHER_RSA_KEY,
    RSA_KEY,
    SECRET,
    Authority,
    jwks,
    public_pem,
    token,
)

LOOKUP = "/lookup/v2/topic/persistent/acme/ns1/t1"
BROKER = "127.0.0.1:28080"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("secure") / "tables"
    writer = TablesWriter(root)
    writer.namespaces({"acme/ns1": "crc32"})
    writer.brokers(BROKER)
    writer.batch(owned("acme/ns1", 4, [BROKER]))
    return root


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "keys.json").write_text(jwks(r1=RSA_KEY))
    return folder


@pytest.fixture(scope="module")
def authority(files: Path) -> Authority:
    made = Authority()
    made.write(files / "ca.pem")
    made.issue(files, "server")
    return made


def settings(files: Path, **more: object) -> list[str]:
    given = {
        "authentication": "token_or_certificate",
        "token_keys_file": files / "keys.json",
        "token_audience": "ballast",
        "grants": ["dashboard viewer:c1"],
        "certificate_file": files / "server.pem",
        "key_file": files / "server.key",
        "client_ca_file": files / "ca.pem",
        "poll_interval_ms": 20,
        **more,
    }
    path = files / "overlay.toml"
    lines = [
        f"{name} = {json.dumps(value if not isinstance(value, Path) else str(value))}"
        for name, value in given.items()
    ]
    path.write_text("[lookup]\n" + "\n".join(lines) + "\n")
    return ["--config", str(path)]


def trusting(files: Path, name: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files / "ca.pem"))
    if name:
        context.load_cert_chain(files / f"{name}.pem", files / f"{name}.key")
    return context


@pytest.fixture(scope="module")
def service(tables: Path, files: Path, authority: Authority) -> Iterator[LookupService]:
    authority.issue(files, "dashboard")
    authority.issue(files, "stranger")
    running = LookupService(
        tables,
        *settings(files),
        environment={"BALLAST_TOKEN_SECRET": SECRET},
        tls=trusting(files),
    )
    running.wait_ready()
    yield running
    assert running.stop() == 0
    log = running.log_path.read_text()
    assert "Traceback" not in log
    assert SECRET not in log


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def test_tokens_of_both_kinds_of_key_are_let_in_over_tls(service: LookupService) -> None:
    for text in (token(RSA_KEY, "RS256"), token(SECRET, "HS256")):
        assert service.get(LOOKUP, **bearer(text)).status == 200
        assert service.get("/v1/status", **bearer(text)).status == 200
    assert service.get(LOOKUP).status == 401
    assert service.get(LOOKUP, **bearer(token(OTHER_RSA_KEY, "RS256"))).status == 401
    assert service.get("/health").status == 200


HS256 = '{"alg":"HS256","typ":"JWT"}'
GOOD = '"sub":"ada","aud":"ballast","roles":["viewer"]'
NO_NUMBERS = (
    '"9999999999"', '"never"', '""', "NaN", "Infinity", "-Infinity", "1e999", "1e400",
    "1" + "0" * 400, "1" + "0" * 5_000, "[9999999999]", "{}", '"\\ud800"',
)  # fmt: skip
HOUR_S = 3_600


def part(text: str | bytes) -> str:
    raw = text.encode() if isinstance(text, str) else text
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed(payload: str, header: str = HS256, key: str = SECRET) -> str:
    """A token of exactly this text, whatever a library thinks of it."""
    said = f"{part(header)}.{part(payload)}"
    return f"{said}.{part(hmac.new(key.encode(), said.encode(), hashlib.sha256).digest())}"


def status(service: LookupService, proof: str) -> int:
    return service.get(LOOKUP, Authorization=f"Bearer {proof}").status


def soon() -> int:
    return int(time.time()) + 600


def refuse(service: LookupService, proofs: dict[str, str]) -> None:
    """Each twice, for the second may be answered from what was kept; and a good one after all."""
    found = {name: [status(service, one) for _ in range(2)] for name, one in proofs.items()}
    assert {name: one for name, one in found.items() if one != [401, 401]} == {}
    assert status(service, signed(f'{{{GOOD},"exp":{soon()}}}')) == 200


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
def test_time_that_is_no_number_is_refused(service: LookupService, claim: str) -> None:
    rest = GOOD if claim == "exp" else f'{GOOD},"exp":{soon()}'
    refuse(service, {value[:20]: signed(f'{{{rest},"{claim}":{value}}}') for value in NO_NUMBERS})


def test_time_that_is_over_or_not_yet_is_refused(service: LookupService) -> None:
    times = {
        "over": f'"exp":{int(time.time()) - 60}',
        "long over": '"exp":-1',
        "missing": '"x":1',
        "none": '"exp":null',
        "twice": f'"exp":{soon()},"exp":1',
        "not yet": f'"exp":{soon() + HOUR_S},"nbf":{soon()}',
    }
    refuse(service, {name: signed(f"{{{GOOD},{said}}}") for name, said in times.items()})


def test_token_that_nobody_signed_is_refused(service: LookupService) -> None:
    said = f'{{{GOOD},"exp":{soon()}}}'
    good = signed(said)
    names = {name: json.dumps({"alg": name}) for name in ("none", "None", "nOnE", "", "HS512")}
    proofs = {f"alg {name}": signed(said, header) for name, header in names.items()}
    for name, header in names.items():
        proofs[f"alg {name}, unsigned"] = f"{part(header)}.{part(said)}."
    proofs |= {
        "no alg": signed(said, "{}"),
        "a list for alg": signed(said, '{"alg":["HS256"]}'),
        "no object": signed("[]"),
        "deep": signed("[" * 20_00 + "]" * 20_00),
        "another secret": signed(said, key="another" * 5),
        "another key": token(OTHER_RSA_KEY, "RS256", kid="r1"),
        "the public key as a secret": signed(said, key=public_pem(RSA_KEY)),
        "a path as kid": signed(said, '{"alg":"HS256","kid":"../../dev/null"}', ""),
        "another's payload": ".".join([good.split(".")[0], part(said + " "), good.split(".")[2]]),
        "no signature": good.rpartition(".")[0] + ".",
    }
    refuse(service, proofs)


def test_end_of_its_certificate_is_among_its_metrics(service: LookupService) -> None:
    text = service.get("/metrics", **bearer(token(RSA_KEY, "RS256"))).body.decode()
    (line,) = [one for one in text.splitlines() if one.startswith("ballast_lookup_certificate_")]
    assert 0 < float(line.split()[-1]) - time.time() < 86_400


def test_client_certificate_stands_for_its_common_name(service: LookupService, files: Path) -> None:
    seen = {}
    for name in ("dashboard", "stranger"):
        service.tls = trusting(files, name)
        try:
            seen[name] = service.get(LOOKUP).status
        finally:
            service.tls = trusting(files)
    assert seen == {"dashboard": 200, "stranger": 403}


def test_certificate_of_another_authority_is_refused(
    service: LookupService, files: Path, tmp_path: Path
) -> None:
    Authority("another").issue(tmp_path, "dashboard")
    context = trusting(files)
    context.load_cert_chain(tmp_path / "dashboard.pem", tmp_path / "dashboard.key")
    service.tls = context
    try:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            service.get(LOOKUP)
    finally:
        service.tls = trusting(files)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_tls_and_plain_http_are_refused(service: LookupService, files: Path) -> None:
    context = trusting(files)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", service.port), timeout=10) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(plain, server_hostname="127.0.0.1")
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"HTTP/1.1 200" not in plain.recv(1000)


def test_nothing_secret_is_in_the_process_list_or_the_log(service: LookupService) -> None:
    text = token(RSA_KEY, "RS256", roles=["viewer:c2"])
    service.get("/v1/status", **bearer(text))
    command = Path(f"/proc/{service.process.pid}/cmdline").read_text()
    log = service.log_path.read_text()
    metrics = service.get("/metrics", **bearer(token(RSA_KEY, "RS256"))).body.decode()
    for where in (command, log, metrics):
        assert SECRET not in where
        assert text not in where
    (refused,) = [line for line in service.log_lines() if line["event"] == "audit"][-1:]
    assert (refused["principal"], refused["is_allowed"]) == ("ada", False)


def test_keys_and_certificate_are_exchanged_while_it_runs(
    service: LookupService, files: Path, authority: Authority
) -> None:
    new = token(OTHER_RSA_KEY, "RS256", kid="r2")
    assert service.get(LOOKUP, **bearer(new)).status == 401
    before = serial(service)
    part = files / "keys.part"
    part.write_text(jwks(r1=RSA_KEY, r2=OTHER_RSA_KEY))
    os.replace(part, files / "keys.json")  # noqa: PTH105 (as a deployment does it)
    authority.issue(files, "server")
    service._wait(lambda: service.get(LOOKUP, **bearer(new)).status == 200)  # noqa: SLF001 (ours)
    service._wait(lambda: serial(service) != before)  # noqa: SLF001 (ours)


def test_certificate_is_exchanged_under_handshakes_without_losing_one(
    service: LookupService, files: Path, authority: Authority
) -> None:
    is_over = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(serials_until, is_over, service) for _ in range(2)]
        try:
            for number in range(3):
                before = serial(service)
                for path in authority.issue(files / str(number), "server"):
                    path.replace(files / path.name)
                service._wait(lambda before=before: serial(service) != before)  # noqa: SLF001 (ours)
        finally:
            is_over.set()
    assert all(len(seen.result()) == 4 for seen in asking)


def serials_until(is_over: threading.Event, service: LookupService) -> set[str]:
    seen = set()
    while not is_over.is_set():
        seen.add(serial(service))
    return seen | {serial(service)}


def serial(service: LookupService) -> str:
    assert service.tls is not None
    with (
        socket.create_connection(("127.0.0.1", service.port), timeout=10) as plain,
        service.tls.wrap_socket(plain, server_hostname="127.0.0.1") as wire,
    ):
        found = wire.getpeercert()
        assert found is not None
        return str(found["serialNumber"])


@pytest.mark.parametrize(
    ("words", "message"),
    few(
        [
            (["--set", "lookup.authentication=token"], "tokens can't be checked"),
            (
                ["--set", "lookup.authentication=certificate"],
                "client certificates can't be checked",
            ),
            (["--set", 'lookup.grants=["nobody"]'], "lookup.grants can't be read"),
            (["--set", "lookup.certificate_file=nowhere.pem"], "certificate can't be used"),
        ],
        1,
    ),
)
def test_service_that_could_not_check_anybody_does_not_start(
    tables: Path, words: list[str], message: str
) -> None:
    command = [sys.executable, "-m", "jobs.serve_lookup", "--cluster", "c1", "--port", "0"]
    ended = subprocess.run(
        [*command, "--tables", str(tables), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode in (1, 2)
    assert message in ended.stderr


def test_workers_share_a_port_and_one_that_dies_is_replaced(tmp_path: Path, tables: Path) -> None:
    link = tmp_path / "tables"
    link.symlink_to(tables)
    service = LookupService(link, "--workers", "2", "--poll-ms", "20")
    try:
        service._wait(lambda: _answers(service))  # noqa: SLF001 (ours)
        workers = _children_of(service.process.pid)
        assert len(workers) == 2
        service._wait(lambda: _measured(service) == {"0", "1"})  # noqa: SLF001 (ours)
        os.kill(workers[0], signal.SIGKILL)
        service._wait(lambda: len(set(_children_of(service.process.pid)) - set(workers)) == 1)  # noqa: SLF001 (ours)
        service._wait(lambda: _answers(service))  # noqa: SLF001 (ours)
        assert service.stop() == 0
        assert [pid for pid in workers if Path(f"/proc/{pid}").exists()] == []
    finally:
        service.stop(signal.SIGKILL)


def _measured(service: LookupService) -> set[str]:
    """The workers whose metrics are in an answer, whoever gave it."""
    text = service.get("/metrics").body.decode()
    return set(re.findall(r'ballast_snapshot_ready{worker="(\d)"} 1.0', text))


def _answers(service: LookupService) -> bool:
    try:
        return service.get(LOOKUP).status == 200
    except OSError:
        return False


def _children_of(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
            parent = path.with_name("stat").read_text().rsplit(")", 1)[1].split()[1]
        except OSError:
            continue
        if b"--worker" in words and b"-I" not in words and _is_below(int(parent), pid):
            found.append(int(path.parent.name))
    return sorted(found)


def _is_below(pid: int, ancestor: int) -> bool:
    while pid not in (0, ancestor):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        pid = int(stat.rsplit(")", 1)[1].split()[1])
    return pid == ancestor


def test_service_that_is_told_to_stop_says_so_before_it_does(tmp_path: Path, tables: Path) -> None:
    link = tmp_path / "tables"
    link.symlink_to(tables)
    service = LookupService(link, "--set", "lookup.stop_delay_ms=1500")
    service.wait_ready()
    os.kill(service.process.pid, signal.SIGTERM)
    service._wait(lambda: service.get("/health").status == 503)  # noqa: SLF001 (ours)
    assert service.get("/health").json["status"] == "stopping"
    assert service.get(LOOKUP).status == 200
    deadline_s = time.monotonic() + 20
    while service.process.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert service.process.poll() == 0


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler: apt-get install gcc")
@pytest.mark.long
def test_token_is_over_by_the_services_clock_also_when_it_was_good_before(
    tmp_path: Path, tables: Path
) -> None:
    words = [
        word
        for name, value in (("authentication", "token"), ("token_audience", "ballast"))
        for word in ("--set", f"lookup.{name}={value}")
    ]
    clock = TurnedClock(tmp_path / "clock")
    environment = {"BALLAST_TOKEN_SECRET": SECRET, **clock.environment}
    service = LookupService(tables, *words, environment=environment)
    try:
        service.wait_ready()
        good = signed(f'{{{GOOD},"exp":{soon()}}}')
        over = signed(f'{{{GOOD},"exp":{soon() - 1_200}}}')
        seen = []
        for ahead_s in (0, HOUR_S, -HOUR_S, 0):
            clock.turn(ahead_s)
            seen.append((status(service, good), status(service, over)))
        assert seen == [(200, 401), (401, 401), (200, 200), (200, 401)]
    finally:
        assert service.stop() == 0
