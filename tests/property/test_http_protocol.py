"""The HTTP protocol over bytes of any kind in pieces of any size: its account and its answers."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.config import Config as ServerConfig
from uvicorn.server import ServerState

from jobs.adapters.http.protocol import Account, Bounds
from tests.support.processes.agent_talk import Transport, bounded_protocol

HEAD_MAX, REQUEST_MAX = 600, 1_000
BOUNDS = Bounds(head_bytes=HEAD_MAX, request_bytes=REQUEST_MAX, unanswered_bytes=4_000)
NAMES = (
    b"Host",
    b"Content-Length",
    b"Transfer-Encoding",
    b"Connection",
    b"Expect",
    b"X",
    b"Upgrade",
)
VALUES = (
    b"a",
    b"localhost",
    b"0",
    b"3",
    b"9",
    b"chunked",
    b"close",
    b"keep-alive",
    b"100-continue",
)
LINE = st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)).map(b": ".join)
BODY = st.sampled_from(
    [
        b"",
        b"abc",
        b"3\r\nabc\r\n0\r\n\r\n",
        b"1;x=y\r\na\r\n0\r\nT: 1\r\n\r\n",
        b"0\r\n\r\n",
        b"ffff",
    ]
)
METHOD = st.sampled_from([b"GET", b"POST", b"HEAD", b"CONNECT", b"PUT"])
TARGET = st.sampled_from([b"/", b"/a?b", b"*", b"http://evil/x", b"//x", b"/%00", b"x:1"])
VERSION = st.sampled_from([b"1.1", b"1.0", b"1.1", b"2.0"])


@st.composite
def requests(draw: Any) -> bytes:
    """Nearly a request."""
    first = b"%s %s HTTP/%s" % (draw(METHOD), draw(TARGET), draw(VERSION))
    lines = draw(st.lists(LINE, max_size=4))
    if draw(st.integers(0, 3)):
        lines.append(b"Host: localhost")
    return b"\r\n".join([first, *lines, b"", draw(BODY)])


STREAMS = st.lists(requests() | st.binary(max_size=40) | st.just(b"\r\n"), min_size=1, max_size=5)


async def app(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """Reads the body of a PUT or POST, and says what it was asked."""
    body = b""
    more = scope["method"] in ("PUT", "POST")
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        more = message["more_body"]
    assert len(body) <= REQUEST_MAX
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    said = b"%s %s %s" % (scope["raw_path"], b",".join(hosts), body)
    length = (b"content-length", b"%d" % len(said))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": said})


async def converse(pieces: list[bytes], account: Account) -> bytes:
    """What comes back for pieces that come one after the other; the connection ends then."""
    config = ServerConfig(app, log_config=None, access_log=False, lifespan="off")
    config.load()
    state = ServerState()
    protocol: Any = bounded_protocol(BOUNDS, account)(config, state, {})  # type: ignore[call-arg]
    transport = Transport(protocol)
    protocol.connection_made(transport)
    for piece in pieces:
        for _ in range(50):
            if not transport.is_paused:
                break
            await asyncio.sleep(0)
        if transport.is_closed or transport.is_paused:
            break
        protocol.data_received(piece)
        assert account.unanswered_bytes <= REQUEST_MAX + HEAD_MAX + len(piece)
        for _ in range(5):
            await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    if not transport.is_closed:
        protocol.check_deadlines(asyncio.get_running_loop().time() + 1_000)
        transport.close()
    await asyncio.gather(*state.tasks)
    await asyncio.sleep(0)
    return transport.written


def answer_to(pieces: list[bytes]) -> bytes:
    account = Account()
    written = asyncio.run(converse(pieces, account))
    assert account.unanswered_bytes == account.unread_bytes == 0
    assert not account.of_peer
    return written


def statuses(written: bytes) -> list[bytes]:
    return [part[:3] for part in written.split(b"HTTP/1.1 ")[1:] if part[:3] != b"100"]


@settings(max_examples=300, deadline=None)
@given(stream=STREAMS, data=st.data())
def test_pieces_in_which_bytes_come_change_no_answer_and_leave_nothing_behind(
    stream: list[bytes], data: Any
) -> None:
    text = b"".join(stream)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    written = answer_to([piece for piece in pieces if piece])
    assert set(statuses(written)) <= {b"200", b"400", b"408", b"413", b"431", b"503"}
    wanted = statuses(answer_to([bytes([byte]) for byte in text]))
    found = statuses(written)
    # a body that comes with the next request's beginning may end the connection one answer earlier
    assert found[: len(wanted)] == wanted[: len(found)]


@settings(max_examples=200, deadline=None)
@given(pieces=st.lists(st.binary(max_size=200), max_size=20))
def test_bytes_of_any_kind_are_answered_with_an_error_or_not_at_all(pieces: list[bytes]) -> None:
    found = statuses(answer_to(pieces))
    assert len(found) <= 1
    assert set(found) <= {b"400", b"408", b"431"}


@pytest.mark.parametrize(
    ("target", "path", "host"),
    [
        (b"http://evil.example:81/x", b"/x", b"evil.example:81"),
        (b"http://127.0.0.1:8080/x", b"/x", b"127.0.0.1:8080"),
        (b"http://[::1]:8080/x", b"/x", b"[::1]:8080"),
        (b"http://[::1]/x", b"/x", b"[::1]"),
        (b"HTTPS://[fd00::7]:1/x?y=z", b"/x", b"[fd00::7]:1"),
        (b"http://localhost:8080", b"/", b"localhost:8080"),
        (b"http://[::1]", b"/", b"[::1]"),
        (b"http://[::1]?y=z", b"/", b"[::1]"),
        (b"//evil.example/x", b"//evil.example/x", b"localhost"),
        (b"/http://evil.example/x", b"/http://evil.example/x", b"localhost"),
    ],
)
def test_host_in_the_target_is_the_one_that_counts(target: bytes, path: bytes, host: bytes) -> None:
    text = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % target
    assert answer_to([text]).endswith(b"%b %b " % (path, host))
