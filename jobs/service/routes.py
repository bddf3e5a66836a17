"""Routes: handler of a method and path, required role, and OpenAPI page.

Literal parts of a path win over named ones, part by part, wherever both lead to a route.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import unquote

from jobs.service.access import Role
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError, Reply, Request, Stream

Schema: TypeAlias = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
OBJECT: Schema = {"type": "object"}
TEXTS: Schema = {"type": "array", "items": TEXT}


def whole(minimum: int, maximum: int) -> Schema:
    """A whole number from minimum to maximum."""
    return {**WHOLE, "minimum": minimum, "maximum": maximum}


@dataclass(frozen=True, slots=True)
class Maybe:
    """Shape of a value that may be null."""

    shape: Any


@dataclass(frozen=True, slots=True)
class MapOf:
    """Shape of an object whose values have a shape, under any names."""

    shape: Any


@dataclass(frozen=True, slots=True)
class Left:
    """Shape of a record without some of its fields."""

    record: type[Any]
    without: str


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A query parameter."""

    name: str
    doc: str
    schema: Schema = field(default_factory=lambda: TEXT)


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
        return whole(self.minimum, self.maximum)

    def of(self, request: Request) -> int:
        """Its value in a request; raises HttpError 400 beyond its range."""
        bounds = {"minimum": self.minimum, "maximum": self.maximum}
        return request.whole(self.name, self.default, **bounds)


@dataclass(frozen=True, slots=True)
class Example:
    """A request of the example world; the query in the path. body: None = none."""

    path: str
    status: int = 200
    body: Any = None


Handler: TypeAlias = Callable[[Request, AdminContext], Awaitable[Reply | Stream]]

TENANT = "tenant"
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
    depends on the body or the query. A route that isn't read (GET) is written to the audit table,
    unless is_recorded says otherwise; refusals of any route always are.

    The page in the OpenAPI document: summary "" = the handler's docstring. answer: shape of the
    body of 200, as `openapi.Schemas` reads it; None = no body. body: JSON Schema of the request's.
    statuses: status → what it means, beside those that any route has. example: of our own paths.
    """

    method: str
    path: str
    handler: Handler
    role: Role = Role.ADMIN
    is_for_superuser: bool = False
    checks_itself: bool = False
    is_recorded: bool | None = None
    is_open: bool = False
    summary: str = ""
    answer: Any = None
    queries: tuple[TextQuery | WholeQuery, ...] = ()
    body: Schema | None = None
    statuses: Mapping[int, str] = field(default_factory=dict)
    media_type: str = "application/json"
    example: Example | None = None

    @property
    def recorded(self) -> bool:
        """True if an allowed request is written to the audit table."""
        if self.is_recorded is not None:
            return self.is_recorded
        return self.method not in READING


def reading(path: str, handler: Handler, summary: str, answer: Any, **more: Any) -> Route:
    """A route of ours that is read by viewers; its example is the path itself."""
    known = {"method": "GET", "role": Role.VIEWER, "example": Example(path)}
    return Route(path=path, handler=handler, summary=summary, answer=answer, **{**known, **more})


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A route and the decoded values of its named parts."""

    route: Route
    params: Mapping[str, str]


@dataclass(slots=True)
class _Node:
    literals: dict[str, "_Node"] = field(default_factory=dict)
    named: "_Node | None" = None
    routes: dict[str, Route] = field(default_factory=dict)

    def find(self, parts: list[str], at: int = 0) -> "_Node | None":
        """The node with routes that the parts from `at` on lead to."""
        if at == len(parts):
            return self if self.routes else None
        literal = self.literals.get(parts[at])
        if literal is not None and (found := literal.find(parts, at + 1)) is not None:
            return found
        return self.named.find(parts, at + 1) if self.named and parts[at] else None


class Router:
    """All routes as a tree of path parts; a match costs the length of the path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Raises ValueError when two routes are the same."""
        self.routes = tuple(routes)
        self._root = _Node()
        for route in self.routes:
            node = self._root
            for part in _parts(route.path):
                if part.startswith("{"):
                    node.named = node = node.named or _Node()
                else:
                    node = node.literals.setdefault(part, _Node())
            if route.method in node.routes:
                raise ValueError(f"routes must differ, got {route.method} {route.path} twice")
            node.routes[route.method] = route

    def match(self, method: str, raw_path: bytes) -> Match:
        """The route for a request; HEAD is served as GET, OPTIONS tells the methods.

        Raises HttpError 404 or 405.
        """
        parts = [unquote(part) for part in _parts(raw_path.decode("utf-8", "replace"))]
        found = self._root.find(parts)
        if found is None:
            raise HttpError(404, "HTTP 404 Not Found")
        route = found.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            more = {"HEAD", OPTIONS} if "GET" in found.routes else {OPTIONS}
            allow = (b"allow", ", ".join(sorted(found.routes.keys() | more)).encode())
            if method == OPTIONS:
                return Match(route=_options_route(Reply(headers=(allow,))), params={})
            raise HttpError(405, "HTTP 405 Method Not Allowed", allow)
        named = zip(_parts(route.path), parts, strict=True)
        params = {name[1:-1]: part for name, part in named if name.startswith("{")}
        return Match(route=route, params=params)


def _options_route(methods: Reply) -> Route:
    """Answers with the methods alone."""

    async def answer_options(request: Request, context: AdminContext) -> Reply:
        del request, context
        return methods

    return Route(
        method=OPTIONS, path="", handler=answer_options, checks_itself=True, is_recorded=False
    )


def _parts(path: str) -> list[str]:
    return path.strip("/").split("/")
