"""The lookup service over real sockets: answers as Pulsar's, waiting, starting, ending."""

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lbcore.model.bundles import HashFunction, hash_topic
from tests.support.processes.lookup_service import ROOT, LookupService
from tests.support.tables.lookup_tables import Row, TablesWriter, bundles_of, owned

BROKER = "127.0.0.1:28080"
ANSWER = (
    b'{"brokerUrl":"pulsar://127.0.0.1:28080:6650","httpUrl":"http://127.0.0.1:28080:8080",'
    b'"nativeUrl":"pulsar://127.0.0.1:28080:6650","brokerUrlSsl":""}'
)
LISTENERS = json.dumps({"inside": {"brokerServiceUrl": "pulsar://10.0.0.1:6650"}})
NAMESPACES = {"acme/ns1": "crc32", "acme/ns2": "murmur3_32", "acme/free": "crc32"}
UNOWNED = bundles_of("acme/free", 1)[0]


def write_tables(root: Path) -> TablesWriter:
    writer = TablesWriter(root)
    writer.namespaces({**NAMESPACES, "prop/cluster/v1": "crc32", "acme/new": "crc32"})
    writer.brokers(BROKER, listeners=LISTENERS)
    rows = [row for name in ("acme/ns1", "acme/ns2") for row in owned(name, 4, [BROKER])]
    rows += owned("prop/cluster/v1", 1, [BROKER])
    rows.append(Row(bundle=UNOWNED, version=1, state="Free", source=BROKER))
    writer.batch(rows)
    return writer


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LookupService]:
    """One service for the tests that change nothing."""
    root = tmp_path_factory.mktemp("lookup") / "tables"
    write_tables(root)
    running = LookupService(root, "--wait-ms", "50")
    running.wait_ready()
    yield running
    assert running.stop() == 0


def test_lookup_of_an_owned_topic_is_pulsars_answer(service: LookupService) -> None:
    reply = service.get("/lookup/v2/topic/persistent/acme/ns1/t1")
    assert reply.status == 200
    assert reply.body == ANSWER
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["content-length"] == str(len(ANSWER))


def test_service_that_has_loaded_its_tables_has_no_pandas(service: LookupService) -> None:
    assert service.get("/lookup/v2/topic/persistent/acme/ns1/t1").status == 200
    mapped = Path(f"/proc/{service.process.pid}/maps").read_text()
    assert "/pyarrow/" in mapped
    assert "/pandas/" not in mapped


def test_lookup_says_how_old_its_answer_is_and_from_which_record(service: LookupService) -> None:
    headers = service.get("/lookup/v2/topic/persistent/acme/ns1/t1").headers
    health = service.get("/health").json
    assert int(headers["x-ballast-table-version"]) == health["table_version"] == 2
    assert 0 <= int(headers["x-ballast-age-ms"]) < 60_000
    assert int(headers["x-ballast-writer-silent-ms"]) > 1_000_000
    assert headers["x-ballast-bundle"] in bundles_of("acme/ns1", 4)
    assert headers["x-ballast-version-id"] == "1"
    assert headers["x-ballast-broker"] == BROKER


@pytest.mark.parametrize(
    ("path", "topic"),
    [
        ("topic/persistent/acme/ns1/t1", "persistent://acme/ns1/t1"),
        ("topic/non-persistent/acme/ns1/t1", "non-persistent://acme/ns1/t1"),
        ("topic/persistent/acme/ns2/t1", "persistent://acme/ns2/t1"),
        ("topic/persistent/acme/ns1/a%20b", "persistent://acme/ns1/a b"),
        ("topic/persistent/acme/ns1/a+b", "persistent://acme/ns1/a b"),
        ("topic/persistent/acme/ns1/a%2Bb", "persistent://acme/ns1/a+b"),
        ("topic/persistent/acme/ns1/k%C3%A4se", "persistent://acme/ns1/käse"),
        ("topic/persistent/ac%6De/ns2/t-partition-3", "persistent://acme/ns2/t-partition-3"),
        ("topic/persistent/acme/ns1/100%25", "persistent://acme/ns1/100%"),
        ("topic/persistent/acme/ns1/50%", "persistent://acme/ns1/50%"),
        ("topic/persistent/acme/ns1/t1?authoritative=true", "persistent://acme/ns1/t1"),
        ("topic/persistent/acme/ns1/t1?listenerName=inside", "persistent://acme/ns1/t1"),
        ("destination/persistent/prop/cluster/v1/t1", "persistent://prop/cluster/v1/t1"),
    ],
)
def test_lookup_path_names_the_topic_that_is_hashed(
    service: LookupService, path: str, topic: str
) -> None:
    reply = service.get(f"/lookup/v2/{path}")
    namespace = topic.partition("://")[2].rpartition("/")[0]
    function = HashFunction(NAMESPACES.get(namespace, "crc32"))
    position = hash_topic(function, topic)
    bundle = reply.headers["x-ballast-bundle"]
    lower, upper = (int(end, 16) for end in bundle.rpartition("/")[2].split("_"))
    assert reply.status == 200
    assert bundle.rpartition("/")[0] == namespace
    assert lower <= position < upper or position == upper == 0xFFFFFFFF


def test_lookup_with_a_listener_gives_its_address(service: LookupService) -> None:
    path = "/lookup/v2/topic/persistent/acme/ns1/t1"
    asked = [
        service.get(f"{path}?listenerName=inside"),
        service.get(path, X_Pulsar_ListenerName="inside"),
        service.get(f"{path}?listenerName=inside", X_Pulsar_ListenerName="nope"),
    ]
    assert {reply.json["brokerUrl"] for reply in asked} == {"pulsar://10.0.0.1:6650"}
    unknown = service.get(f"{path}?listenerName=nope")
    assert unknown.status == 500
    assert unknown.json["reason"].startswith(
        "\n --- An unexpected error occurred in the server ---\n\n"
        "Message: the broker do not have nope listener\n"
    )


def test_bundle_of_a_topic_is_unquoted_text_whether_owned_or_not(service: LookupService) -> None:
    for namespace, topic in (("acme/ns1", "t1"), ("acme/free", "t1")):
        path = f"/lookup/v2/topic/persistent/{namespace}/{topic}"
        reply = service.get(f"{path}/bundle")
        assert reply.status == 200
        assert reply.headers["content-type"] == "application/json"
        assert f"{namespace}/{reply.body.decode()}" == reply.headers["x-ballast-bundle"]
    v1 = service.get("/lookup/v2/destination/persistent/prop/cluster/v1/t1/bundle")
    assert v1.body == b"0x00000000_0xffffffff"


@pytest.mark.parametrize("path", ["acme/none/t1", "acme/none/t1/bundle"])
def test_lookup_in_a_missing_namespace_is_pulsars_404(service: LookupService, path: str) -> None:
    reply = service.get(f"/lookup/v2/topic/persistent/{path}")
    assert reply.status == 404
    assert reply.body == b'{"reason":"Namespace not found"}'
    assert int(reply.headers["content-length"]) == 32
    assert "x-ballast-age-ms" in reply.headers


@pytest.mark.parametrize("path", ["acme/free/t1", "acme/new/t1", "acme/new/t1/bundle"])
def test_lookup_without_an_owner_says_come_again(service: LookupService, path: str) -> None:
    reply = service.get(f"/lookup/v2/topic/persistent/{path}")
    assert reply.status == 503
    assert reply.headers["retry-after"] == "1"
    assert "No broker serves this topic" in reply.json["reason"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/lookup/v2/topic/persistent/acme/ns1", 404),
        ("GET", "/lookup/v2/topic/persistent/acme/ns1/", 404),
        ("GET", "/lookup/v2/topic/persistent//ns1/t1", 404),
        ("GET", "/lookup/v2/topic/persistent/acme/ns1/t1/bundles", 404),
        ("GET", "/lookup/v2/topic/persistent/acme/ns1/t1/x/bundle", 404),
        ("GET", "/lookup/v2/topic/kafka/acme/ns1/t1", 412),
        ("GET", "/lookup/v2/topic/persistent/ac%20me/ns1/t1", 412),
        ("GET", "/lookup/v2/topic/persistent/acme/ns1/%20", 404),
        ("POST", "/lookup/v2/topic/persistent/acme/ns1/t1", 405),
        ("DELETE", "/health", 405),
        ("PUT", "/metrics", 405),
    ],
)
def test_request_for_something_else_is_refused_with_a_reason(
    service: LookupService, method: str, path: str, status: int
) -> None:
    reply = service.get(path, method=method)
    assert reply.status == status
    assert reply.json["reason" if path.startswith(("/lookup/", "/admin/")) else "detail"]


def test_lookup_ignores_a_slash_at_the_end_and_tells_its_methods(service: LookupService) -> None:
    path = "/lookup/v2/topic/persistent/acme/ns1/t1"
    assert service.get(f"{path}/").body == service.get(path).body == ANSWER
    told = service.get(path, method="OPTIONS")
    assert (told.status, told.body, told.headers["allow"]) == (200, b"", "GET, HEAD, OPTIONS")


def test_head_of_a_lookup_has_the_headers_only(service: LookupService) -> None:
    reply = service.get("/lookup/v2/topic/persistent/acme/ns1/t1", method="HEAD")
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["content-length"] == str(len(ANSWER))


GET = b"GET /lookup/v2/topic/persistent/acme/ns1/t1 HTTP/1.1\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "beginning"),
    [
        (b"", b""),
        (b"\r\n\r\n\r\n", b""),
        (b"GET\r\n\r\n", b"HTTP/1.1 400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"HTTP/1.1 400"),
        (b"GET /health HTTP/9.9\r\n\r\n", b"HTTP/1.1 400"),
        (b"G\x00T /health HTTP/1.1\r\n\r\n", b"HTTP/1.1 400"),
        (GET + b"no colon\r\n\r\n", b"HTTP/1.1 400"),
        (GET + b"Content-Length: -1\r\n\r\n", b"HTTP/1.1 400"),
        (GET + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"HTTP/1.1"),
        (GET + b"Host: localhost\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 200"),
        (GET.replace(b"t1", b"t%zz") + b"Host: localhost\r\n\r\n", b"HTTP/1.1 200"),
        (GET.replace(b"t1", b"t%ff%00") + b"Host: localhost\r\n\r\n", b"HTTP/1.1 200"),
        (GET.replace(b"t1", b"x" * 20_000) + b"Host: localhost\r\n\r\n", b"HTTP/1.1 200"),
        (GET.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n", b"HTTP/1.1 200"),
    ],
)
def test_malformed_request_is_answered_or_dropped_and_the_next_is_served(
    service: LookupService, request_bytes: bytes, beginning: bytes
) -> None:
    assert service.send(request_bytes).startswith(beginning)
    assert service.get("/lookup/v2/topic/persistent/acme/ns1/t1").status == 200


def test_pipelined_requests_are_answered_in_order(service: LookupService) -> None:
    one = GET + b"Host: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as connection:
        connection.sendall(one + one.replace(b"ns1", b"none") + one)
        answer = b""
        while answer.count(b"brokerUrlSsl") < 2:
            answer += connection.recv(65536)
    statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"404", b"200"]


def test_metrics_count_lookups_by_what_they_came_to(service: LookupService) -> None:
    def counted(result: str) -> float:
        text = service.get("/metrics").body.decode()
        wanted = f'ballast_lookup_requests_total{{result="{result}"}} '
        lines = [line for line in text.splitlines() if line.startswith(wanted)]
        return float(lines[0].split()[1]) if lines else 0.0

    before = counted("found"), counted("namespace_not_found")
    service.get("/lookup/v2/topic/persistent/acme/ns1/t1")
    service.get("/lookup/v2/topic/persistent/acme/none/t1")
    assert (counted("found"), counted("namespace_not_found")) == (before[0] + 1, before[1] + 1)
    text = service.get("/metrics").body.decode()
    assert "ballast_snapshot_table_version 2.0" in text
    assert 'ballast_lookup_duration_seconds_bucket{le="+Inf"}' in text


def test_log_is_json_with_a_line_for_the_load(service: LookupService) -> None:
    lines = {line["event"]: line for line in service.log_lines()}
    assert lines["serving"]["port"] == service.port
    assert lines["tables_loaded"]["bundles"] == 10


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return tmp_path / "tables"


@pytest.fixture
def start(tables: Path) -> Iterator["type[LookupService]"]:
    """Starts services over `tables` that end with the test."""
    started: list[LookupService] = []

    def begin(*words: str) -> LookupService:
        started.append(LookupService(tables, *words))
        return started[-1]

    yield begin  # type: ignore[misc]
    for running in started:
        running.stop(signal.SIGKILL)


def test_service_without_tables_is_alive_but_not_ready(tables: Path, start: type) -> None:
    service = start()
    health = service.get("/health")
    assert (health.status, health.json["status"]) == (503, "waiting for the tables")
    early = service.get("/lookup/v2/topic/persistent/acme/ns1/t1")
    assert (early.status, early.headers["retry-after"]) == (503, "1")
    write_tables(tables)
    service.wait_ready()


def test_service_goes_on_when_the_writer_is_gone_and_the_tables_too(
    tables: Path, start: type
) -> None:
    write_tables(tables)
    service = start("--poll-ms", "20")
    service.wait_ready()
    tables.rename(tables.with_name("elsewhere"))
    service._wait(lambda: service.get("/health").json["errors"] > 0)  # noqa: SLF001 (ours)
    first = service.get("/lookup/v2/topic/persistent/acme/ns1/t1")
    threading.Event().wait(0.2)
    second = service.get("/lookup/v2/topic/persistent/acme/ns1/t1")
    assert first.body == second.body == ANSWER
    ages = [int(reply.headers["x-ballast-age-ms"]) for reply in (first, second)]
    assert ages[1] >= ages[0] + 200
    assert "can't be read" in service.get("/health").json["last_error"]
    tables.with_name("elsewhere").rename(tables)
    service._wait(lambda: service.get("/health").json["last_error"] == "")  # noqa: SLF001 (ours)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_service_ends_on_a_signal_after_answering_those_who_wait(
    tables: Path, start: type, number: int
) -> None:
    write_tables(tables)
    service = start("--wait-ms", "1000")
    service.wait_ready()
    with socket.create_connection(("127.0.0.1", service.port)), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(service.get, "/lookup/v2/topic/persistent/acme/free/t1")
        held = "ballast_lookup_waiting 1.0"
        service._wait(lambda: held in service.get("/metrics").body.decode())  # noqa: SLF001 (ours)
        assert service.stop(number) == 0
        assert waiting.result().status == 503
    assert not service.port_file.exists()
    assert service.log_lines()[-1]["event"] == "stopped"


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jobs.serve_lookup", "--cluster", "c1", *words]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "example.org"])  # noqa: S104 (refused)
def test_service_on_an_address_of_others_is_refused_unless_told(tables: Path, host: str) -> None:
    ended = _run("--tables", str(tables), "--host", host)
    assert ended.returncode == 2
    assert "--without-authentication" in ended.stderr


def test_service_whose_port_is_taken_says_so(tables: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = _run("--tables", str(tables), "--port", str(port))
    assert ended.returncode == 1
    assert "can't listen" in ended.stderr
