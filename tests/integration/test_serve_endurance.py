"""The service under requests of every kind, many watchers, slow clients, and a restart."""

import asyncio
import contextlib
import http.client
import random
import re
import signal
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.processes.lookup_service import LookupService
from tests.support.processes.programs import until
from tests.support.tables.lookup_tables import Row, TablesWriter, bundles_of, owned

BROKER = "127.0.0.1:28080"
LOOKUP = "/lookup/v2/topic/persistent/acme/ns1/t1"
REQUESTS, CONNECTIONS, WATCHERS = 3_200, 16, 300
GROWTH_MAX_BYTES = 15_000_000
LISTED = {200, 202, 204, 400, 404, 405, 406, 409, 412, 413, 415, 503}
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)

PATHS = (
    LOOKUP,
    f"{LOOKUP}/bundle",
    f"{LOOKUP}?max_age_ms=0",
    f"{LOOKUP}?max_age_ms=soon",
    "/lookup/v2/topic/persistent/acme/none/t",
    "/lookup/v2/topic/persistent/acme/free/t",
    "/lookup/v2/topic/kafka/acme/ns1/t",
    "/lookup/v2/topic/%00/%ff/%c3%28/%",
    "/health",
    "/alive",
    "/metrics",
    "/",
    "/v1/openapi.json",
    "/v1/ownership?limit=2",
    "/v1/ownership?limit=none",
    "/v1/ownership?as_of=v1",
    "/v1/brokers",
    "/v1/commands/pause",
    "/v1/commands/nothing",
    "/v1/bundles/acme/ns1/x/history",
    "/v1/lookups",
    "/admin/v2/clusters",
    "/admin/v2/namespaces/acme",
    "/admin/v2/namespaces/acme/ns1/bundles",
    "/admin/v2/persistent/acme/ns1/t/partitions",
    "/admin/v2/brokers/health",
)
METHODS = ("GET",) * 8 + ("HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
BODIES = (b"", b"", b"{}", b"[]", b"null", b"{", b"\xff\xfe", b'{"topics":["t",1]}', b"[" * 5_000)
POST = b"POST /v1/commands/pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BROKEN = (
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"G\x00T / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET /%s HTTP/1.1\r\nHost: localhost\r\n" % (b"a" * 70_000),
    POST + b"Content-Length: -1\r\n\r\n",
    POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    POST + b"Content-Length: 10\r\n\r\nabc",
    b"CONNECT x:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("endurance") / "tables"


@pytest.fixture(scope="module")
def writer(tables: Path) -> TablesWriter:
    made = TablesWriter(tables)
    made.namespaces({"acme/ns1": "crc32", "acme/free": "crc32"})
    made.brokers(BROKER)
    free = Row(bundle=bundles_of("acme/free", 1)[0], version=1, state="Free")
    made.batch([*owned("acme/ns1", 4, [BROKER]), free])
    return made


@pytest.fixture(scope="module")
def service(tables: Path, writer: TablesWriter) -> Iterator[LookupService]:
    assert writer.batch_id == 0
    running = LookupService(tables, "--poll-ms", "20", "--wait-ms", "0")
    running.wait_ready()
    yield running
    assert running.stop() == 0


def request_of(generator: random.Random) -> tuple[bytes, bool]:
    """A whole request, and whether its answer has no body."""
    method, path = generator.choice(METHODS), generator.choice(PATHS)
    body = b"" if method in ("GET", "HEAD") else generator.choice(BODIES)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"X-Odd: {generator.randbytes(4).hex()}\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body, method == "HEAD"


async def converse(port: int, seed: int, count: int) -> Counter[int]:
    """So many requests on one connection that is made again whenever the service closes it."""
    generator, statuses = random.Random(seed), Counter[int]()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(count):
        text, is_bare = request_of(generator)
        writer.write(text)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        length = _LENGTH.search(head)
        if length is not None and not is_bare:
            await asyncio.wait_for(reader.readexactly(int(length[1])), 30)
        statuses[int(head[9:12])] += 1
        if b"connection: close" in head.lower():
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    return statuses


def torture(port: int, seed: int, count: int) -> Counter[int]:
    async def run() -> Counter[int]:
        each = count // CONNECTIONS
        found = await asyncio.gather(
            *(converse(port, seed + number, each) for number in range(CONNECTIONS))
        )
        return sum(found, Counter())

    return asyncio.run(run())


def open_files(service: LookupService) -> int:
    return psutil.Process(service.process.pid).num_fds()


@pytest.mark.long
def test_requests_of_every_kind_get_a_listed_status_and_leave_nothing_behind(
    service: LookupService,
) -> None:
    process = psutil.Process(service.process.pid)
    torture(service.port, 1, 800)
    for text in BROKEN:
        service.send(text)
    rss, files, threads = process.memory_info().rss, open_files(service), process.num_threads()
    statuses = torture(service.port, 100, REQUESTS)
    for text in BROKEN * 3:
        with contextlib.suppress(ConnectionError):
            assert service.send(text)[9:12] in (b"", b"200", b"400", b"404", b"405", b"431", b"503")
    assert set(statuses) <= LISTED, statuses
    assert sum(statuses.values()) == REQUESTS // CONNECTIONS * CONNECTIONS
    until(lambda: open_files(service) <= files)
    assert process.num_threads() <= threads + 8
    assert process.memory_info().rss - rss < GROWTH_MAX_BYTES
    assert service.get(LOOKUP).status == 200


def watch(port: int) -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", port), timeout=30)
    opened.sendall(b"GET /v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
    read_until(opened, b"event: start")
    return opened


def read_until(opened: socket.socket, text: bytes) -> None:
    found = b""
    while text not in found:
        part = opened.recv(65_536)
        assert part, found
        found += part


def streams(service: LookupService) -> float:
    text = service.get("/metrics").body.decode()
    return float(text.split("\nballast_admin_streams ")[1].split("\n")[0])


def test_many_watchers_are_told_and_those_who_vanish_cost_nothing(
    service: LookupService, writer: TablesWriter
) -> None:
    files = open_files(service)
    watchers = [watch(service.port) for _ in range(WATCHERS)]
    assert streams(service) == WATCHERS
    writer.batch([Row(bundle=bundles_of("acme/ns1", 4)[0], version=2, destination=BROKER)])
    for opened in watchers:
        read_until(opened, b'"version_id":2')
    assert service.get(LOOKUP).status == 200
    for number, opened in enumerate(watchers):
        if number % 2:  # the others say goodbye
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        opened.close()
    until(lambda: streams(service) == 0)
    until(lambda: open_files(service) <= files)


def test_clients_that_send_or_read_slowly_hold_nobody_up(service: LookupService) -> None:
    slow = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(50)]
    for number, opened in enumerate(slow):
        if number % 2:  # a body that does not come
            opened.sendall(POST + b"Content-Length: 9\r\n\r\n{")
        else:  # answers that are not read
            opened.sendall(b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
    try:
        for _ in range(20):
            assert service.get(LOOKUP).status == 200
    finally:
        for opened in slow:
            opened.close()


class Balanced:
    """A client behind a load balancer: asks the replicas whose /health is 200, in turn."""

    def __init__(self, *ports: int) -> None:
        self.failures: list[str] = []
        self.answered = 0
        self._healthy: dict[int, bool] = dict.fromkeys(ports, True)
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask)]
        self._threads += [threading.Thread(target=self._look, args=(port,)) for port in ports]

    def __enter__(self) -> "Balanced":  # noqa: PYI034 typing.Self came with Python 3.11
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def is_healthy(self, port: int) -> bool:
        return self._healthy[port]

    def _look(self, port: int) -> None:
        while not self._stop.wait(0.05):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            try:
                connection.request("GET", "/health")
                self._healthy[port] = connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                self._healthy[port] = False
            finally:
                connection.close()

    def _ask(self) -> None:
        kept = {p: http.client.HTTPConnection("127.0.0.1", p, timeout=10) for p in self._healthy}
        while not self._stop.wait(0.002):
            for port in [port for port, is_healthy in self._healthy.items() if is_healthy]:
                self._ask_one(kept[port])

    def _ask_one(self, connection: http.client.HTTPConnection) -> None:
        try:
            connection.request("GET", LOOKUP)
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException) as error:
            self.failures.append(repr(error))
            connection.close()
            return
        self.answered += 1
        if response.status != 200:
            self.failures.append(str(response.status))


@pytest.mark.long
def test_replicas_restarted_in_turn_fail_no_lookup(
    service: LookupService, tables: Path, tmp_path: Path
) -> None:
    link = tmp_path / "tables"
    link.symlink_to(tables)
    words = ("--set", "lookup.stop_delay_ms=1500", "--poll-ms", "20")
    other = LookupService(link, *words)
    try:
        other.wait_ready()
        with Balanced(service.port, other.port) as client:
            until(lambda: client.answered > 100)
            assert other.stop(signal.SIGTERM) == 0
            other = LookupService(link, *words, "--port", str(other.port))
            until(lambda: client.is_healthy(other.port))
            before = client.answered
            until(lambda: client.answered > before + 100)
        assert client.failures == []
    finally:
        other.stop(signal.SIGKILL)
