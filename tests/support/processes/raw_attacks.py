"""What hostile clients send, as bytes without end, and a connection that sends them."""

import contextlib
import socket
from collections.abc import Iterable, Iterator
from itertools import count, repeat

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
