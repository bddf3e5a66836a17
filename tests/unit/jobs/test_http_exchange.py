"""Answers that are too long, too slow, or lead elsewhere: what a client of ours makes of them."""

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from itertools import repeat

import pytest

from jobs.adapters.following.watch_follower import WatchAddress, WatchFollower
from jobs.adapters.http.client import (
    HttpQuestion,
    LookupConnection,
    TooLongError,
    connection_to,
    exchange,
)

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
def test_answer_without_end_is_given_up(what: str) -> None:
    with serving(ENDLESS[what]) as server, pytest.raises((HTTPException, OSError, ValueError)):
        exchange(connection_to(server.url, 5.0), HttpQuestion(target="/"), 1_000_000)


@pytest.mark.parametrize(
    "dripping", [[HEAD + b"\r\n", *repeat(b"x", 10_000)], [HEAD, *repeat(b"X", 10_000)]]
)
def test_answer_that_comes_byte_by_byte_is_given_up_in_time(dripping: list[bytes]) -> None:
    with serving(dripping, 0.02) as server, pytest.raises(TimeoutError, match="no whole answer"):
        exchange(connection_to(server.url, 0.3), HttpQuestion(target="/"), 1_000_000)


def test_answer_as_long_as_it_may_be_is_whole() -> None:
    with serving([HEAD + b"Content-Length: 10\r\n\r\n0123456789"]) as server:
        asked = HttpQuestion(target="/")
        assert exchange(connection_to(server.url, 5.0), asked, 10).content == b"0123456789"
        with pytest.raises(TooLongError):
            exchange(connection_to(server.url, 5.0), asked, 9)


@pytest.mark.parametrize("what", ENDLESS)
def test_prober_counts_an_endless_answer_as_one_that_failed(what: str) -> None:
    with serving(ENDLESS[what]) as server:
        found = LookupConnection(server.url, 5_000).look_up("persistent://acme/ns1/t")
        assert found.error


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
