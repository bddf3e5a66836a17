"""What a client can make the service hold, by raw bytes and without a token: next to nothing."""

import contextlib
import socket
from collections.abc import Iterable, Iterator
from itertools import count, repeat
from pathlib import Path

import psutil
import pytest

from tests.support.processes.lookup_service import LookupService
from tests.support.processes.programs import until
from tests.support.tables.lookup_tables import TablesWriter, owned
from tests.support.values.clusters import few
from tests.support.values.tokens import SECRET, token

PIECE = 65_536
LOOKUP = b"/lookup/v2/topic/persistent/acme/ns1/t1"


def head(method: bytes, path: bytes, *lines: bytes, version: bytes = b"1.1") -> bytes:
    """A first line and headers, to a host that is the service's own."""
    first = b"%s %s HTTP/%s" % (method, path, version)
    return b"\r\n".join([first, b"Host: 127.0.0.1", *lines, b"", b""])


def chunked(method: bytes, path: bytes) -> bytes:
    """The head of a request whose body comes in chunks."""
    kind = b"Content-Type: application/json"
    return head(method, path, b"Transfer-Encoding: chunked", kind)


def after(beginning: bytes, pieces: Iterable[bytes]) -> Iterator[bytes]:
    yield beginning
    yield from pieces


def many(line: bytes) -> Iterator[bytes]:
    """A line again and again, many to a piece; %d in it is a number that grows."""
    for number in count():
        each = line.replace(b"%d", b"%d" % number)
        yield each * (1 + PIECE // len(each))


FLOODS = {
    "trailers": lambda m, p: after(chunked(m, p) + b"0\r\n", many(b"X-%d: aaaaaaaaaaaaaaaa\r\n")),
    "one trailer": lambda m, p: after(chunked(m, p) + b"0\r\nX: ", repeat(b"a" * PIECE)),
    "a trailer's name": lambda m, p: after(chunked(m, p) + b"0\r\nX", repeat(b"a" * PIECE)),
    "an extension": lambda m, p: after(chunked(m, p) + b"1;a=", repeat(b"a" * PIECE)),
    "extensions": lambda m, p: after(chunked(m, p), many(b"1;a=b;c=d;eeeeeeeeeeeeeeee\r\nx\r\n")),
    "tiny chunks": lambda m, p: after(chunked(m, p), many(b"1\r\nx\r\n")),
    "large chunks": lambda m, p: after(
        chunked(m, p), repeat(b"%x\r\n" % PIECE + b"x" * PIECE + b"\r\n")
    ),
    "a chunk's size": lambda m, p: after(chunked(m, p), repeat(b"0" * PIECE)),
    "a long body": lambda m, p: after(
        head(m, p, b"Content-Length: 1000000000"), repeat(b"x" * PIECE)
    ),
    "the target": lambda m, p: after(m + b" " + p + b"?", repeat(b"a" * PIECE)),
    "the method": lambda m, _: after(m, repeat(b"A" * PIECE)),
    "a header": lambda m, p: after(head(m, p)[:-2] + b"X: ", repeat(b"a" * PIECE)),
    "a header's name": lambda m, p: after(head(m, p)[:-2] + b"X", repeat(b"a" * PIECE)),
    "headers": lambda m, p: after(head(m, p)[:-2], many(b"a:\r\n")),
    "empty lines": lambda *_: many(b"\r\n"),
    "empty lines after a request": lambda _, p: after(head(b"GET", p), many(b"\r\n")),
    "requests": lambda _, p: many(head(b"GET", p)),
    "requests with bodies": lambda _, p: many(
        head(b"POST", p, b"Content-Length: 1000") + b"x" * 1_000
    ),
    "after an upgrade": lambda m, p: after(
        head(m, p, b"Connection: Upgrade", b"Upgrade: websocket"), repeat(b"\x81\xff" * 9_999)
    ),
    "after CONNECT": lambda *_: after(head(b"CONNECT", b"x:443"), repeat(b"x" * PIECE)),
    "after the last request": lambda _, p: after(
        head(b"GET", p, b"Connection: close"), repeat(b"x" * PIECE)
    ),
    "after HTTP/1.0": lambda _, p: after(head(b"GET", p, version=b"1.0"), repeat(b"x" * PIECE)),
}
"""Name → (method, path) → pieces without end."""


def pour(port: int, pieces: Iterable[bytes], most_bytes: int, wait_s: float = 10.0) -> int:
    """Send until the service has had enough, or most_bytes; how many went off. Reads nothing."""
    sent = 0
    with contextlib.suppress(OSError), opened(port, wait_s) as wire:
        for piece in pieces:
            wire.sendall(piece)
            sent += len(piece)
            if sent >= most_bytes:
                break
    return sent


def opened(port: int, wait_s: float = 10.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=wait_s)


def is_cut(wire: socket.socket) -> bool:
    """Whether the service has ended the connection, by what can be read now."""
    wire.settimeout(0.01)
    try:
        while wire.recv(PIECE):
            pass
    except (TimeoutError, BlockingIOError):
        return False
    except OSError:
        return True
    return True


MB = 1 << 20
POURED_MAX_BYTES = 100 * MB
TAKEN_MAX_BYTES = 24 * MB  # what the service may read and the two kernels hold, far below 100 MB
GROWTH_MAX_BYTES = 40 * MB
UNANSWERED_MAX_BYTES = 8 * MB
SLOW_S = 2.0
COMMANDS = b"/v1/commands/pause"
ANSWER = b"/v1/openapi.json"
TINY = {
    "request_timeout_ms": int(SLOW_S * 1000),
    "answer_timeout_ms": int(SLOW_S * 1000),
    "max_unanswered_bytes": UNANSWERED_MAX_BYTES,
    "max_unread_bytes": 16 * MB,
}
CHANGED = {
    "max_connections_per_peer": 400,
    "open_metrics": "true",
    "authentication": "token",
    "token_audience": "ballast",
    "poll_interval_ms": 20,
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LookupService]:
    tables: Path = tmp_path_factory.mktemp("bounds") / "tables"
    writer = TablesWriter(tables)
    writer.namespaces({"acme/ns1": "crc32"})
    writer.brokers("broker-1:8080")
    writer.batch(owned("acme/ns1", 4, ["broker-1:8080"]))
    words = [
        word for name, value in CHANGED.items() for word in ("--set", f"lookup.{name}={value}")
    ]
    secret = {"BALLAST_TOKEN_SECRET": SECRET}
    running = LookupService(tables, *words, environment=secret, constants=TINY)
    running.wait_ready()
    yield running
    assert running.stop() == 0


def rss(service: LookupService) -> int:
    return psutil.Process(service.process.pid).memory_info().rss


def measured(service: LookupService, name: str) -> float:
    text = service.get("/metrics").body.decode()
    return float(text.split(f"\n{name} ")[1].split("\n")[0])


def is_free_of_everything(service: LookupService) -> bool:
    asked = measured(service, "ballast_requests_unanswered_bytes")
    return asked < 1_000 and not measured(service, "ballast_answers_unread_bytes")


@pytest.fixture(autouse=True)
def _it_lives_on(service: LookupService) -> Iterator[None]:
    yield
    text = token(SECRET, "HS256")
    assert service.get(LOOKUP.decode(), Authorization=f"Bearer {text}").status == 200
    until(lambda: is_free_of_everything(service), within_s=20)


@pytest.mark.parametrize("name", FLOODS)
@pytest.mark.parametrize("path", [COMMANDS, pytest.param(LOOKUP, marks=pytest.mark.long)])
def test_flood_is_cut_and_not_kept(service: LookupService, name: str, path: bytes) -> None:
    before = rss(service)
    method = b"POST" if path == COMMANDS else b"GET"
    sent = pour(service.port, FLOODS[name](method, path), POURED_MAX_BYTES)
    assert sent < TAKEN_MAX_BYTES
    assert rss(service) - before < GROWTH_MAX_BYTES


@pytest.mark.parametrize(
    "beginning",
    few(
        [
            b"GET /",
            head(b"POST", COMMANDS, b"Content-Length: 1000"),
            chunked(b"GET", LOOKUP) + b"0\r\nX: ",
            head(b"GET", b"/alive") + b"\r\n",
            b"",
            b"\r\n",
            head(b"GET", LOOKUP)[:-2],
            head(b"GET", LOOKUP, b"Content-Length: 1000"),
            chunked(b"POST", COMMANDS) + b"1\r\nx\r\n",
            chunked(b"GET", LOOKUP) + b"1;a",
            head(b"GET", b"/alive") + b"GET /alive",
            head(b"POST", COMMANDS, b"Expect: 100-continue", b"Content-Length: 1000"),
        ],
        4,
    ),
)
def test_request_that_comes_byte_by_byte_is_ended_in_time(
    service: LookupService, beginning: bytes
) -> None:
    wires = [opened(service.port) for _ in range(20)]
    drip = b"\r\n" if not beginning.strip() or beginning.endswith(b"\r\n\r\n\r\n") else b"1"
    for wire in wires:
        wire.sendall(beginning)

    def are_cut() -> bool:
        for wire in wires:
            with contextlib.suppress(OSError):
                wire.sendall(drip)
        return all(map(is_cut, wires))

    until(are_cut, within_s=5 * SLOW_S)
    for wire in wires:
        wire.close()


@pytest.mark.parametrize(
    "kept",
    [head(b"GET", LOOKUP)[:-2] + b"X: " + b"a" * 60_000, b"POST /v1/x?" + b"a" * 60_000],
)
def test_heads_that_many_connections_hold_back_are_bounded_together(
    service: LookupService, kept: bytes
) -> None:
    before = rss(service)
    wires = [opened(service.port) for _ in range(350)]
    for wire in wires:
        with contextlib.suppress(OSError):
            wire.sendall(kept)
    assert measured(service, "ballast_requests_unanswered_bytes") <= UNANSWERED_MAX_BYTES + MB
    assert service.get("/alive").status == 200
    assert rss(service) - before < GROWTH_MAX_BYTES
    for wire in wires:
        wire.close()


@pytest.mark.parametrize("times", [1, 60])
def test_answers_that_nobody_reads_are_given_up(service: LookupService, times: int) -> None:
    before = rss(service)
    bearer = b"Authorization: Bearer " + token(SECRET, "HS256").encode()
    wires = [opened(service.port) for _ in range(100)]
    for wire in wires:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        with contextlib.suppress(OSError):
            wire.sendall(head(b"GET", ANSWER, bearer) * times)
    until(lambda: measured(service, "ballast_answers_unread_bytes") == 0, within_s=8 * SLOW_S)
    assert rss(service) - before < 2 * GROWTH_MAX_BYTES
    for wire in wires:
        wire.close()


def test_peer_has_so_many_connections_and_no_more(service: LookupService) -> None:
    wires = [opened(service.port) for _ in range(401)]
    until(lambda: is_cut(wires[-1]), within_s=20)
    assert not any(map(is_cut, wires[:10]))
    for wire in wires:
        wire.close()
    until(lambda: service.get("/alive").status == 200, within_s=20)


def test_body_is_not_read_before_somebody_wants_it(service: LookupService) -> None:
    with opened(service.port) as wire:
        wire.sendall(head(b"POST", COMMANDS, b"Expect: 100-continue", b"Content-Length: 9"))
        assert wire.recv(100).startswith(b"HTTP/1.1 401")


def test_body_and_trailers_of_an_honest_client_are_taken(service: LookupService) -> None:
    bearer = b"Authorization: Bearer " + token(SECRET, "HS256", roles=["admin"]).encode()
    lines = (b"Transfer-Encoding: chunked", b"Content-Type: application/json", bearer)
    one = head(b"POST", b"/v1/commands/pause", *lines) + b"2;a=b\r\n{}\r\n0\r\nX-Sum: 1\r\n\r\n"
    with opened(service.port) as wire:
        for _ in range(3):
            wire.sendall(one)
            assert b"without Kafka" in read_answer(wire)


def read_answer(wire: socket.socket) -> bytes:
    found = b""
    while b"\r\n\r\n" not in found or not found.endswith(b"}"):
        part = wire.recv(65_536)
        assert part, found
        found += part
    return found


CHUNKED = b"Transfer-Encoding: chunked"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"GET /alive HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /alive HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (b"GET /alive HTTP/1.0\r\n\r\n", b"200"),
        (head(b"GET", b"/alive", b"Content-Length: 3", b"Transfer-Encoding: chunked"), b"400"),
        (head(b"GET", b"/alive", b"Content-Length: 3", b"Content-Length: 4"), b"400"),
        (head(b"GET", b"/alive", b"Content-Length: +3"), b"400"),
        (head(b"GET", b"/alive", b"Transfer-Encoding: xchunked"), b"400"),
        (head(b"GET", b"/alive", b"Transfer-Encoding: chunked, identity"), b"400"),
        (head(b"GET", b"/alive", b"Transfer-Encoding : chunked"), b"400"),
        (head(b"GET", b"/alive", b"Transfer-Encoding: gzip, chunked"), b"400"),
        (head(b"GET", b"/alive", b"Transfer-Encoding: gzip", CHUNKED), b"400"),
        (head(b"GET", b"/alive", CHUNKED, version=b"1.0"), b"400"),
        (b"GET /alive\r\n\r\n", b"400"),
        (head(b"GET", b"/alive", b"X: a\rHost: b"), b"400"),
        (head(b"GET", b"/alive", b"X: a\nHost: b"), b"400"),
        (head(b"GET", b"/alive", b" folded"), b"400"),
        (chunked(b"GET", b"/alive") + b"3\nabc\n0\n\n", b"400"),
        (head(b"GET", b"/alive", b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c"), b"200"),
    ],
)
def test_request_that_could_be_read_in_two_ways_is_refused(
    service: LookupService, text: bytes, status: bytes
) -> None:
    with opened(service.port) as wire:
        wire.sendall(text)
        found = wire.recv(65_536)
        assert found[9:12] == status
        assert found.count(b"HTTP/1.1 ") == 1


def test_log_has_a_bound_whatever_is_sent(service: LookupService) -> None:
    before = service.log_path.stat().st_size
    for _ in range(300):
        pour(service.port, [b"\x16\x03\x01"], 1)
        pour(service.port, [head(b"GET", b"/alive", b"Connection: Upgrade", b"Upgrade: x")], 1)
    assert service.log_path.stat().st_size - before < 20_000
    assert pour(service.port, many(b"\x00"), 10 * MB) < TAKEN_MAX_BYTES
