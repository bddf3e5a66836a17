"""Routes: handler of a method and path, required role, and OpenAPI page.

Literal parts of a path win over named ones, part by part, wherever both lead to a route.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeAlias
from urllib.parse import unquote

from jobs.service.access import Role
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError, Reply, Request

Schema: TypeAlias = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
OBJECT: Schema = {"type": "object"}
TEXTS: Schema = {"type": "array", "items": TEXT}


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A query parameter. choices: what it may be, () = any text. default: without it."""

    name: str
    doc: str
    choices: Collection[str] = ()
    default: str = ""
    schema: Schema = field(default_factory=lambda: TEXT)

    def of(self, request: Request) -> str:
        """Its value in a request; raises HttpError 400 for none of the choices."""
        text = request.first(self.name) or self.default
        if self.choices and text not in self.choices:
            known = ", ".join(self.choices)
            raise HttpError(400, f"{self.name} must be one of {known}, got {text[:100]}")
        return text


@dataclass(frozen=True, slots=True)
class TextsQuery(TextQuery):
    """A query parameter that may come several times."""

    def of(self, request: Request) -> tuple[str, ...]:  # type: ignore[override]
        """Its values in a request."""
        return tuple(request.query.get(self.name, ()))


@dataclass(frozen=True, slots=True)
class WholeQuery:
    """A query parameter that is a whole number; without it, `default`."""

    name: str
    doc: str
    minimum: int
    maximum: int
    default: int = 0

    @property
    def schema(self) -> Schema:
        """Its JSON Schema."""
        return {**WHOLE, "minimum": self.minimum, "maximum": self.maximum}

    def of(self, request: Request) -> int:
        """Its value in a request; raises HttpError 400 beyond its range."""
        text = request.first(self.name, str(self.default))
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) < 18:  # noqa: PLR2004 (fits 64 bits)
            number = int(text)
            if self.minimum <= number <= self.maximum:
                return number
        bounds = f"{self.minimum} to {self.maximum}"
        raise HttpError(400, f"{self.name} must be a whole number from {bounds}")


Query: TypeAlias = TextQuery | TextsQuery | WholeQuery

MAX_AGE = WholeQuery("max_age_ms", "Refuse an answer that is older than this.", 0, 1 << 53)
"""Taken by every request."""


@dataclass(frozen=True, slots=True)
class Example:
    """A request that tests send. path: with the query. body: None = none."""

    path: str
    status: int = 200
    body: Any = None


Handler: TypeAlias = Callable[[Request, AdminContext], Any]
"""Gives an answer, or waits for one: a value for JSON, a Reply, None = 204, or a refusal."""

TENANT = "tenant"
_NAMED = "{}"
READING = frozenset({"GET", "HEAD"})
OPTIONS = "OPTIONS"
SAFE = READING | {OPTIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One thing that can be asked for.

    path: "/v1/bundles/{tenant}/{namespace}"; a part in braces matches any one part, decoded.
    is_open: for everybody, without a proof of who asks: nothing of the cluster is in the answer.
    role: what it takes, on the tenant that the path names in {tenant}, or on the whole cluster
    when there is none or is_for_superuser; with checks_itself the handler judges, because it
    depends on the body or the query. Requests other than GET are written to the audit table, unless
    is_recorded is False; refused ones of any route always are.

    The page in the OpenAPI document: summary "" = the handler's docstring. answer: shape of the
    body of 200, as `all_routes.Schemas` reads it; None = no body. body: JSON Schema of the
    request. statuses: status → what it means, beside those that any route has. example: of our own
    paths.
    """

    method: str
    path: str
    handler: Handler
    role: Role = Role.ADMIN
    is_for_superuser: bool = False
    checks_itself: bool = False
    is_recorded: bool = True
    is_open: bool = False
    summary: str = ""
    answer: Any = None
    queries: tuple[Query, ...] = ()
    body: Schema | None = None
    statuses: Mapping[int, str] = field(default_factory=dict)
    media_type: str = "application/json"
    example: Example | None = None

    @property
    def recorded(self) -> bool:
        """True if an allowed request is written to the audit table."""
        return self.is_recorded and self.method not in READING


def reading(path: str, handler: Handler, summary: str, answer: Any, **more: Any) -> Route:
    """A route of ours that is read by viewers; its example is the path itself."""
    known = {"method": "GET", "role": Role.VIEWER, "example": Example(path)}
    return Route(path=path, handler=handler, summary=summary, answer=answer, **{**known, **more})


class Router:
    """All routes by the parts of their paths, "{}" for a named part."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Raises ValueError when two routes are the same."""
        self.routes = tuple(routes)
        self._known: dict[tuple[str, ...], dict[str, Route]] = {}
        for route in self.routes:
            parts = tuple(_NAMED if part[:1] == "{" else part for part in _parts(route.path))
            methods = self._known.setdefault(parts, {})
            if route.method in methods:
                raise ValueError(f"routes must differ, got {route.method} {route.path} twice")
            methods[route.method] = route
        self._longest = max(map(len, self._known))

    def match(self, method: str, raw_path: bytes) -> tuple[Route, Mapping[str, str]]:
        """The route for a request, and the decoded values of its named parts.

        HEAD is served as GET, OPTIONS tells the methods. Raises HttpError 404 or 405.
        """
        parts = [unquote(part) for part in _parts(raw_path.decode("utf-8", "replace"))]
        either = [(part, _NAMED) if part else ("",) for part in parts]
        tried = product(*either) if len(parts) <= self._longest else ()
        found = next((self._known[one] for one in tried if one in self._known), None)
        if found is None:
            raise HttpError(404, "HTTP 404 Not Found")
        route = found.get("GET" if method == "HEAD" else method)
        if route is None:
            more = {"HEAD", OPTIONS} if "GET" in found else {OPTIONS}
            allow = (b"allow", ", ".join(sorted(found.keys() | more)).encode())
            if method == OPTIONS:
                return Route(
                    method=OPTIONS,
                    path="",
                    handler=lambda *_: Reply(headers=(allow,)),
                    checks_itself=True,
                    is_recorded=False,
                ), {}
            raise HttpError(405, "HTTP 405 Method Not Allowed", allow)
        named = zip(_parts(route.path), parts, strict=True)
        return route, {name[1:-1]: part for name, part in named if name[:1] == "{"}


def _parts(path: str) -> list[str]:
    return path.strip("/").split("/")
