"""A request as handlers read it, and their answers.

Answers are JSON; errors are problems (RFC 9457), on Pulsar's own paths {"reason": ...}. Stands
between `app`, which speaks ASGI, and the handlers, which don't.
"""

import json
import re
import zlib
from collections.abc import (
    AsyncGenerator,
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
from typing import Any, TypeAlias

import orjson

from jobs.service.access import ANY, Caller, Role
from lbcore.route.slices import dumps, is_small, write_slices

Header: TypeAlias = tuple[bytes, bytes]

JSON: Header = (b"content-type", b"application/json")
PROBLEM: Header = (b"content-type", b"application/problem+json")
RETRY: Header = (b"retry-after", b"1")

VALUES_MAX = 25_000
"""Maximum values of a JSON body, which is parsed in one call: so many take 13 ms."""

_DIGITS_MAX = 20
_LONG = re.compile(rb"\d{21}")
_IF_NONE_MATCH = b"if-none-match"


class HttpError(Exception):
    """The request ends with this status and this reason; headers are added.

    principal: the refused caller's name, if authenticated, for the audit. Can be pickled: reads of
    the tables raise it in another process.
    """

    def __init__(self, status: int, reason: str, *headers: Header, principal: str = "") -> None:
        super().__init__(status, reason, *headers)
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
    """An answer: `body`, or what is sent piece by piece instead of it.

    parts: of a large answer, made while it is sent. stream: of an answer that goes on; closed when
    the client leaves or the service stops, and at `ends_at_s` (seconds since 1970; None = never).
    tag: identifies the content, for the ETag; "" = a hash of the body, if that is whole and large.
    """

    status: int = 200
    body: bytes = b""
    headers: tuple[Header, ...] = ()
    parts: Iterable[bytes] | None = None
    stream: AsyncGenerator[bytes, None] | None = None
    ends_at_s: float | None = None
    tag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, read whole.

    raw_path: as received. params: the path's named parts, decoded. query: each name's values in
    order. headers: by lower-case name, the last of equal ones. reached_at: host:port of this
    service, never from the caller's headers.
    """

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

    def flag(self, name: str) -> bool:
        """Return a query parameter as Java's boolean: "true" in any case, else False."""
        return self.first(name).lower() == "true"

    def json(self) -> Any:
        """The body as JSON, None when there is none; raises HttpError 400."""
        if not self.body.strip():
            return None
        if sum(map(self.body.count, (b",", b"[", b"{"))) > VALUES_MAX:
            raise HttpError(400, f"the body must have at most {VALUES_MAX} values: send several")
        try:
            if _LONG.search(self.body):  # which orjson would make a double
                json.loads(self.body, parse_int=_short_int)
            return orjson.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise HttpError(400, f"the body must be JSON: {error}") from None


def _short_int(text: str) -> int:
    if len(text) > _DIGITS_MAX:
        raise ValueError(f"{text[:_DIGITS_MAX]}... has more digits than 64 bits hold")
    return int(text)


def json_reply(value: Any, status: int = 200, tag: str = "") -> Reply:
    """A value as JSON without blanks, as Pulsar writes it; in slices when it is large.

    value: as `write_slices` takes it; must not change while it is sent.
    """
    found = Reply(status=status, headers=(JSON,), tag=tag)
    if is_small(value):
        return replace(found, body=encode(value))
    return replace(found, parts=write_slices(value))


LARGE_BYTES = 1_024
_GZIP = 31  # zlib's window bits for a gzip header
_LEVEL = 1


def negotiated(reply: Reply, headers: Iterable[tuple[bytes, bytes]]) -> Reply:
    """Return a large answer as the client accepts it: 304 if known, or in gzip.

    Sources: RFC 9110, 8.8.3 and 12.5.3.
    """
    is_short = reply.parts is None and len(reply.body) < LARGE_BYTES
    if reply.status != HTTPStatus.OK or is_short or reply.stream is not None:
        return reply
    asked = dict(headers)
    shown: tuple[Header, ...] = (*reply.headers, (b"vary", b"accept-encoding"))
    tag = reply.tag or (blake2b(reply.body, digest_size=8).hexdigest() if reply.body else "")
    if tag:
        shown = (*shown, (b"etag", b'W/"%s"' % tag.encode()))
        known = {
            one.strip().removeprefix(b"W/") for one in asked.get(_IF_NONE_MATCH, b"").split(b",")
        }
        if known & {b"*", b'"%s"' % tag.encode()}:
            return Reply(status=304, headers=shown)
    if not _takes_gzip(asked.get(b"accept-encoding", b"")):
        return replace(reply, headers=shown)
    shown = (*shown, (b"content-encoding", b"gzip"))
    if reply.parts is None:
        return replace(reply, headers=shown, body=b"".join(_packed((reply.body,))))
    return replace(reply, headers=shown, parts=_packed(reply.parts))


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


def is_pulsar(raw_path: bytes) -> bool:
    """True for one of Pulsar's own paths, whose errors its clients read."""
    return raw_path.startswith((b"/admin/", b"/lookup/"))


def error_body(raw_path: bytes, status: int, reason: str, **more: Any) -> tuple[Header, bytes]:
    """Content type and body of an error: Pulsar's own on its paths, else of RFC 9457.

    more: members beside those of RFC 9457.
    """
    if is_pulsar(raw_path):
        return JSON, encode({"reason": reason})
    title = HTTPStatus(status).phrase
    shown = {"type": "about:blank", "title": title, "status": status, "detail": reason}
    return PROBLEM, encode({**shown, **more})


def encode(value: Any) -> bytes:
    """A small value as JSON without blanks, in the order of the fields."""
    return dumps(value).encode("utf-8", "replace")


Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


async def until_gone(receive: Receive) -> None:
    """Wait until the client has closed the connection; drop what else it sends."""
    while (await receive())["type"] != "http.disconnect":
        pass
