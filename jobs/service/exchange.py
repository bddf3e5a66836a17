"""A request as handlers read it, their answers, and how a large answer is sent.

Answers are JSON; errors are problems (RFC 9457), on Pulsar's own paths {"reason": ...}. Stands
between `app`, which speaks ASGI, and the handlers, which don't.
"""

import asyncio
import json
import math
import zlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from http import HTTPStatus
from typing import Any, NamedTuple, TypeAlias

from jobs.service.access import ANY, Caller, Role
from lbcore.route.slices import dumps, is_small, write_slices

Header: TypeAlias = tuple[bytes, bytes]

JSON: Header = (b"content-type", b"application/json")
PROBLEM: Header = (b"content-type", b"application/problem+json")
RETRY: Header = (b"retry-after", b"1")

VALUES_MAX = 25_000
"""Of a body of JSON, which is parsed in one call: so many keys with values take 13 ms."""

_DIGITS_MAX = 20
_KNOWN = b"if-none-match"
_SHOWN_CHARS = 30


class HttpError(Exception):
    """The request ends with this status and this reason; headers are added.

    principal: who has proven to be somebody before being refused, for the audit.
    """

    def __init__(self, status: int, reason: str, *headers: Header, principal: str = "") -> None:
        super().__init__(reason)
        self.principal = principal
        self.status = status
        self.reason = reason
        self.headers = headers


def require_role(caller: Caller, role: Role, cluster: str, tenant: str) -> None:
    """Raise HttpError 403 without this role on the tenant ("*": the cluster)."""
    if not caller.may(role, cluster, tenant):
        where = "the cluster" if tenant == ANY else f"tenant {tenant}"
        raise HttpError(403, f"{caller.name} is not {role.name.lower()} of {where}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole answer. parts: of a large one, made while it is sent, instead of `body`.

    tag: what names its content, for the entity tag; "" = its body, if that is whole and large.
    """

    status: int = 200
    body: bytes = b""
    headers: tuple[Header, ...] = ()
    parts: Iterable[bytes] | None = None
    tag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A continuing answer.

    `parts` is closed when the client leaves or the service stops. ends_at_s: when it ends in any
    case (seconds since 1970), None = never.
    """

    parts: AsyncIterator[bytes]
    headers: tuple[Header, ...] = ()
    ends_at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, read whole.

    path: as decoded text, for people; raw_path: as it came. params: the path's named parts,
    decoded. query: each name's values in order. headers: by lower-case name, the last of equal
    ones. reached_at: host:port of this service, never by what the caller says.
    """

    method: str
    path: str
    params: Mapping[str, str]
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes
    caller: Caller
    raw_path: str = ""
    reached_at: str = "localhost"
    notes: dict[str, str] = field(default_factory=dict)

    def first(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        return self.query.get(name, [default])[0]

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a query parameter as Java's boolean: "true" in any case, else False."""
        values = self.query.get(name)
        return default if not values else values[0].lower() == "true"

    def whole(self, name: str, default: int, *, minimum: int = 0, maximum: int = 1 << 53) -> int:
        """Return a query parameter as a whole number. Raises HttpError 400.

        Beyond [minimum, maximum].
        """
        text = self.first(name, str(default))
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) < 18:  # noqa: PLR2004 (fits 64 bits)
            number = int(text)
            if minimum <= number <= maximum:
                return number
        raise HttpError(400, f"{name} must be a whole number from {minimum} to {maximum}")

    def json(self) -> Any:
        """The body as JSON, None when there is none; raises HttpError 400."""
        if not self.body.strip():
            return None
        if sum(map(self.body.count, (b",", b"[", b"{"))) > VALUES_MAX:
            raise HttpError(400, f"the body must have at most {VALUES_MAX} values: send several")
        try:
            return strict_json(self.body)
        except (ValueError, RecursionError) as error:
            raise HttpError(400, f"the body must be JSON: {error}") from None


def strict_json(body: bytes) -> Any:
    """The value of a JSON text that can be written again as one, anywhere.

    Raises ValueError or RecursionError for what isn't JSON, and for what reads as JSON and is none
    later: numbers without end or of more than 64 bits, lone surrogates, nesting without end.
    """
    value = json.loads(
        body, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_short_int
    )
    if b"\\" in body or b"\0" in body or not body.isascii():  # else there can't be one
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("it has a lone surrogate, which no UTF-8 holds") from None
    return value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:_SHOWN_CHARS]} is more than a double holds")
    return number


def _short_int(text: str) -> int:
    if len(text) > _DIGITS_MAX:
        raise ValueError(f"{text[:_SHOWN_CHARS]}... has more digits than 64 bits hold")
    return int(text)


def json_reply(value: Any, status: int = 200, *headers: Header, tag: str = "") -> Reply:
    """A value as JSON without blanks, as Pulsar writes it; in slices when it is large.

    value: as `write_slices` takes it; must not change while it is sent.
    """
    found = Reply(status=status, headers=(JSON, *headers), tag=tag)
    if is_small(value):
        return replace(found, body=encode(value))
    return replace(found, parts=write_slices(value))


LARGE_BYTES = 1_024
_GZIP = 31  # zlib's window bits for a gzip header
_LEVEL = 1


def negotiated(reply: Reply, headers: Iterable[tuple[bytes, bytes]]) -> Reply:
    """Return a large answer as the client takes it: known already (304), or packed.

    Sources: RFC 9110, 8.8.3 and 12.5.3.
    """
    if reply.status != HTTPStatus.OK or (reply.parts is None and len(reply.body) < LARGE_BYTES):
        return reply
    asked = dict(headers)
    told: tuple[Header, ...] = (*reply.headers, (b"vary", b"accept-encoding"))
    tag = reply.tag or (blake2b(reply.body, digest_size=8).hexdigest() if reply.body else "")
    if tag:
        told = (*told, (b"etag", b'W/"%s"' % tag.encode()))
        known = {one.strip().removeprefix(b"W/") for one in asked.get(_KNOWN, b"").split(b",")}
        if known & {b"*", b'"%s"' % tag.encode()}:
            return Reply(status=304, headers=told)
    if not _takes_gzip(asked.get(b"accept-encoding", b"")):
        return replace(reply, headers=told)
    told = (*told, (b"content-encoding", b"gzip"))
    if reply.parts is None:
        return replace(reply, headers=told, body=b"".join(_packed((reply.body,))))
    return replace(reply, headers=told, parts=_packed(reply.parts))


def _takes_gzip(accepted: bytes) -> bool:
    """True if gzip is named with no weight, or with one above 0."""
    for one in accepted.lower().split(b","):
        coding, _, weight = one.replace(b" ", b"").partition(b";q=")
        if coding == b"gzip":
            return weight.strip(b"0.") != b"" or not weight
    return False


def _packed(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The parts in gzip's form; some are empty."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


def no_content() -> Reply:
    """204: it has happened."""
    return Reply(status=204)


def is_pulsar(raw_path: bytes) -> bool:
    """True for one of Pulsar's own paths, whose errors its clients read."""
    return raw_path.startswith((b"/admin/", b"/lookup/"))


def error_body(raw_path: bytes, status: int, reason: str, **more: Any) -> tuple[Header, bytes]:
    """Content type and body of an error: Pulsar's own on its paths, else of RFC 9457."""
    if is_pulsar(raw_path):
        return JSON, encode({"reason": reason})
    title = HTTPStatus(status).phrase
    told = {"type": "about:blank", "title": title, "status": status, "detail": reason}
    return PROBLEM, encode({**told, **more})


def problem(status: int, detail: str, **more: Any) -> Reply:
    """An error of our own paths. more: members beside those of RFC 9457."""
    kind, body = error_body(b"", status, detail, **more)
    return Reply(status=status, body=body, headers=(kind,))


def encode(value: Any) -> bytes:
    """A small value as JSON without blanks, in the order of the fields."""
    return dumps(value).encode("utf-8", "replace")


Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

SEND_TIMEOUT_S = 20.0


class ClientConnection(NamedTuple):
    """A client's connection.

    seconds: how long the answer may go on, None = as long as it likes.
    """

    receive: Receive
    send: Send
    seconds: float | None = None


async def send_parts(
    parts: AsyncIterator[bytes], wire: ClientConnection, streams: "set[asyncio.Future[None]]"
) -> None:
    """Send parts until they end, time is up, or the client leaves or is slow.

    streams: holds, while this runs, the future whose cancellation ends the answer properly; of no
    use to one that is not whole before its end.
    """
    send = wire.send
    gone = asyncio.ensure_future(until_gone(wire.receive))
    streams.add(gone)
    end = None
    if wire.seconds is not None:
        end = asyncio.get_running_loop().call_later(wire.seconds, gone.cancel)
    try:
        while (part := await _next(parts, gone)) is not None:
            message = {"type": "http.response.body", "body": part, "more_body": True}
            await asyncio.wait_for(send(message), SEND_TIMEOUT_S)
        if gone.cancelled() or not gone.done():
            await send({"type": "http.response.body", "body": b""})
    except asyncio.TimeoutError:
        return  # the server closes the connection of an answer that was not ended
    finally:
        if end is not None:
            end.cancel()
        streams.discard(gone)
        gone.cancel()
        close = getattr(parts, "aclose", None)
        if close is not None:
            await close()


async def _next(parts: AsyncIterator[bytes], gone: "asyncio.Future[None]") -> bytes | None:
    """The next part, None after the last one or when the client has left."""
    step = asyncio.ensure_future(_take(parts))
    try:
        waited: set[asyncio.Future[Any]] = {step, gone}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not step.done():
            step.cancel()
            await asyncio.wait({step})
    return None if step.cancelled() else step.result()


async def _take(parts: AsyncIterator[bytes]) -> bytes | None:
    async for part in parts:
        return part
    return None


async def until_gone(receive: Receive) -> None:
    """Return when the client has closed the connection.

    Whatever it sends besides is dropped.
    """
    while (await receive())["type"] != "http.disconnect":
        pass
