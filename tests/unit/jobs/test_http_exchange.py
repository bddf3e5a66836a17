"""Answers of a peer without end, headers of lookups, and sending in turns."""

import asyncio
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat

import pytest

from jobs.adapters.delta.table_location import table_place
from jobs.adapters.following.view import Changes
from jobs.adapters.following.watch_follower import WatchAddress, WatchFollower
from jobs.adapters.http.client import (
    HttpRequest,
    LookupConnection,
    TooLongError,
    connection_to,
    exchange,
)
from jobs.adapters.http.fair_scheduling import FairScheduler
from jobs.adapters.http.protocol import Flow
from jobs.lookup_client import AssignmentRequester
from jobs.service.changes import ChangeFeed
from lbcore.ownership.records import State
from lbcore.route.bundles import BundleRoute

HEAD = b"HTTP/1.1 200 OK\r\n"
FLOOD = b"x" * 65_536
ENDLESS = {
    "a body": [HEAD + b"\r\n", *repeat(FLOOD, 10_000)],
    "chunks": [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *repeat(b"10000\r\n" + FLOOD, 9_999)],
    "a chunk's size": [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *repeat(b"0" * 65_536, 9_999)],
    "headers": [HEAD, *repeat(b"X: y\r\n" * 1_000, 10_000)],
    "a header": [HEAD + b"X: ", *repeat(FLOOD, 10_000)],
    "a first line": repeat(FLOOD, 10_000),
    "answers on the way": repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 10_000),
}


class Server:
    """Answers each connection with the same bytes, a pause between the pieces; reads little."""

    def __init__(self, pieces: Iterable[bytes], pause_s: float) -> None:
        self._pieces, self._pause_s = list(pieces), pause_s
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while not self._ended.is_set():
                threading.Thread(
                    target=self._answer, args=(self._listener.accept()[0],), daemon=True
                ).start()

    def _answer(self, wire: socket.socket) -> None:
        with wire, suppress(OSError):
            self.asked.append(wire.recv(65_536))
            for piece in self._pieces:
                wire.sendall(piece)
                if self._ended.wait(self._pause_s):
                    return

    def close(self) -> None:
        self._ended.set()
        self._listener.close()


@contextmanager
def serving(pieces: Iterable[bytes], pause_s: float = 0.0) -> Iterator[Server]:
    server = Server(pieces, pause_s)
    try:
        yield server
    finally:
        server.close()


@pytest.mark.parametrize("what", ENDLESS)
def test_answer_without_end_is_given_up_and_counted_as_one_that_failed(what: str) -> None:
    with serving(ENDLESS[what]) as server:
        with pytest.raises((HTTPException, OSError, ValueError)):
            exchange(connection_to(server.url, 5.0), HttpRequest(target="/"), 1_000_000)
        assert LookupConnection(server.url, 5_000).look_up("persistent://acme/ns1/t").error


@pytest.mark.parametrize(
    "dripping", [[HEAD + b"\r\n", *repeat(b"x", 10_000)], [HEAD, *repeat(b"X", 10_000)]]
)
def test_answer_that_comes_byte_by_byte_is_given_up_in_time(dripping: list[bytes]) -> None:
    with serving(dripping, 0.02) as server, pytest.raises(TimeoutError, match="no whole answer"):
        exchange(connection_to(server.url, 0.3), HttpRequest(target="/"), 1_000_000)


def test_answer_as_long_as_it_may_be_is_whole() -> None:
    with serving([HEAD + b"Content-Length: 10\r\n\r\n0123456789"]) as server:
        asked = HttpRequest(target="/")
        assert exchange(connection_to(server.url, 5.0), asked, 10).content == b"0123456789"
        with pytest.raises(TooLongError):
            exchange(connection_to(server.url, 5.0), asked, 9)


def test_follower_gives_up_an_event_without_end() -> None:
    stream = [HEAD + b"\r\nevent: start\ndata: ", *repeat(FLOOD, 10_000)]
    many = [HEAD + b"\r\n", *(b"field%d: x\n" % number for number in range(100_000))]
    for pieces in (stream, many):
        with serving(pieces) as server:
            follower = WatchFollower(WatchAddress(url=server.url), "c1")
            stop = threading.Event()
            follower.on_change(stop.set)
            thread = threading.Thread(target=follower.run, args=(stop,))
            thread.start()
            while not follower.counts.errors:
                threading.Event().wait(0.02)
            stop.set()
            thread.join(10)
            assert "too long" in follower.counts.last_error


BUNDLE = "t/n/0x00000000_0xffffffff"
BODY = b'{"httpUrl": "http://broker-1:8080"}'


class _Service(BaseHTTPRequestHandler):
    """Answers as the lookup service does: the names of its headers in lower case."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("x-ballast-bundle", BUNDLE)
        self.send_header("x-ballast-table-version", "7")
        self.send_header("x-ballast-age-ms", "12")
        self.send_header("content-length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_answer_says_what_the_headers_say_in_whatever_case_they_are_written(url: str) -> None:
    connection = LookupConnection(url, 5_000)
    answer = connection.look_up("persistent://t/n/topic")
    connection.close()
    assert (answer.broker, answer.bundle) == ("broker-1", BUNDLE)
    assert (answer.table_version, answer.age_ms) == (7, 12)


CLIENTS, AT_ONCE = 100, 8


def test_answers_go_on_a_few_at_a_time_however_many_clients_have_read_on() -> None:
    async def run() -> list[int]:
        turns, gone_on = FairScheduler(budget_s=0.0), 0
        flows = [Flow(asyncio.Transport(), turns) for _ in range(CLIENTS)]

        async def send_on(flow: Flow) -> None:
            nonlocal gone_on
            await flow.drain()
            gone_on += 1

        for flow in flows:
            flow.pause_writing()
        sending = [asyncio.ensure_future(send_on(flow)) for flow in flows]
        await asyncio.sleep(0)
        for flow in flows:
            flow.resume_writing()
        counts = []
        while not all(one.done() for one in sending):
            before = gone_on
            await asyncio.sleep(0)
            counts.append(gone_on - before)
        return counts

    counts = asyncio.run(run())
    assert sum(counts) == CLIENTS
    assert max(counts) <= AT_ONCE


class _SlowCommit:
    """Records of a commit; while they are read, somebody looks for what was there before."""

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self.was_answered = False

    def __iter__(self) -> Iterator[BundleRoute]:
        reader = threading.Thread(target=self._feed.after, args=((0, 0), 1), daemon=True)
        reader.start()
        reader.join(5)
        self.was_answered = not reader.is_alive()
        yield BundleRoute(
            bundle="t/n/0x00000000_0xffffffff",
            namespace="t/n",
            lower=0,
            upper=1 << 32,
            state=State.OWNED,
            version_id=1,
            source="",
            destination="a",
        )


def test_watchers_read_on_while_a_large_commit_is_taken_over() -> None:
    feed = ChangeFeed(table_place("unused"), "c1", 10)
    commit = _SlowCommit(feed)
    feed.add(Changes(version=1, commits=((1, commit),)))
    assert commit.was_answered
    assert [change.place for change in feed.after((0, 0), 9) or ()] == [(1, 0)]


def route(number: int, state: State = State.FREE) -> BundleRoute:
    return BundleRoute(
        bundle=f"a/b/{number}", namespace="a/b", lower=0, upper=1, state=state, version_id=1
    )


def test_lookups_go_on_while_nobody_answers_and_what_waits_is_left_at_the_end() -> None:
    asked: list[str] = []
    is_asked, may_go_on, is_over = threading.Event(), threading.Event(), threading.Event()

    def ask(one: BundleRoute, _: str) -> None:
        asked.append(one.bundle)
        is_asked.set()
        (may_go_on if len(asked) == 1 else is_over).wait(60)

    ended: list[int] = []
    asker = AssignmentRequester(ask, lambda: ended.append(len(asked)))
    asker.found_free(route(0), "t")
    assert is_asked.wait(60)
    for number in range(1, 20_000):  # more than may wait
        asker.found_free(route(number), "t")
    closing = threading.Thread(target=asker.close)
    closing.start()
    may_go_on.set()
    closing.join(60)
    is_over.set()
    assert asked[:1] == ["a/b/0"]
    assert len(asked) <= 2  # the next may have begun before the end was asked for
    assert ended == [len(asked)]


@pytest.mark.parametrize("error", [OSError("nobody there"), ValueError("no token in the file")])
def test_what_fails_is_left_and_the_next_is_asked_for(error: Exception) -> None:
    asked, is_done = [], threading.Event()

    def ask(one: BundleRoute, topic: str) -> None:
        asked.append((one.bundle, topic))
        if len(asked) == 1:
            raise error
        is_done.set()

    asker = AssignmentRequester(ask)
    asker.found_free(route(1, State.OWNED), "owned")
    asker.found_free(route(2), "first")
    asker.found_free(route(3), "second")
    assert is_done.wait(60)
    asker.close()
    assert asked == [("a/b/2", "first"), ("a/b/3", "second")]
