"""A request as handlers read it, and what they answer with.

Decides the written form of answers and errors: JSON, errors as {"reason": ...} as Pulsar's. Stands
between `app`, which speaks ASGI, and the handlers, which don't. Source: ours.
"""

import json
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from jobs.service.access import Caller
from lbcore.route.slices import dumps, is_small, write_slices

Header: TypeAlias = tuple[bytes, bytes]

JSON: Header = (b"content-type", b"application/json")
RETRY: Header = (b"retry-after", b"1")

VALUES_MAX = 25_000
"""Of a body of JSON, which is parsed in one call: so many keys with values take 13 ms."""

_DIGITS_MAX = 20
_SHOWN_CHARS = 30


class HttpError(Exception):
    """The request ends with this status and {"reason": reason}; headers are added.

    principal: who has proven to be somebody before being refused, for the audit.
    """

    def __init__(self, status: int, reason: str, *headers: Header, principal: str = "") -> None:
        super().__init__(reason)
        self.principal = principal
        self.status = status
        self.reason = reason
        self.headers = headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole answer. parts: of a large one, made while it is sent, instead of `body`."""

    status: int = 200
    body: bytes = b""
    headers: tuple[Header, ...] = ()
    parts: Iterable[bytes] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """An answer that goes on; `parts` is closed when the client leaves or the service stops.

    ends_at_s: when it ends in any case (seconds since 1970), None = never.
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
        """A query parameter as Java reads a boolean: "true" in any case, anything else is not."""
        values = self.query.get(name)
        return default if not values else values[0].lower() == "true"

    def whole(self, name: str, default: int, *, minimum: int = 0, maximum: int = 1 << 53) -> int:
        """A query parameter as a whole number; raises HttpError 400 beyond [minimum, maximum]."""
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


def json_reply(value: Any, status: int = 200, *headers: Header) -> Reply:
    """A value as JSON without blanks, as Pulsar writes it; in slices when it is large.

    value: as `write_slices` takes it; must not change while it is sent.
    """
    if is_small(value):
        return Reply(status=status, body=encode(value), headers=(JSON, *headers))
    return Reply(status=status, headers=(JSON, *headers), parts=write_slices(value))


def no_content() -> Reply:
    """204: it has happened."""
    return Reply(status=204)


def error_reply(error: HttpError) -> Reply:
    """The error as Pulsar writes one."""
    return json_reply({"reason": error.reason}, error.status, *error.headers)


def encode(value: Any) -> bytes:
    """A small value as JSON without blanks, in the order of the fields."""
    return dumps(value).encode("utf-8", "replace")
