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

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
OBJECT: Schema = {"type": "object"}
TEXTS: Schema = {"type": "array", "items": TEXT}


def whole(minimum: int, maximum: int) -> Schema:
    """A whole number from minimum to maximum."""
    return {**WHOLE, "minimum": minimum, "maximum": maximum}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParameter:
    """A query parameter."""

    name: str
    doc: str
    schema: Schema = field(default_factory=lambda: TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Request of the example world and its answer; None: values that vary.

    path: with its query. body: None = none.
    """

    path: str
    status: int
    answer: Any = None
    body: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """A route's page. answers: status → what it means, beside 400, 401, 403, 429, 503."""

    summary: str
    example: Example
    queries: tuple[QueryParameter, ...] = ()
    body: Schema | None = None
    answers: Mapping[int, str] = field(default_factory=lambda: {200: "The answer."})
    media_type: str = "application/json"


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
    depends on the body or the query. about: its page in the OpenAPI document, of our own paths. A
    route that isn't read (GET) is written to the audit table, unless is_recorded says otherwise;
    refusals of any route always are.
    """

    method: str
    path: str
    handler: Handler
    role: Role = Role.ADMIN
    is_for_superuser: bool = False
    checks_itself: bool = False
    about: About | None = None
    is_recorded: bool | None = None
    is_open: bool = False

    @property
    def recorded(self) -> bool:
        """True if an allowed request is written to the audit table."""
        if self.is_recorded is not None:
            return self.is_recorded
        return self.method not in READING


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


class Router:
    """All routes as a tree of path parts; a match costs the length of the path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Raises ValueError when two routes are the same."""
        self.routes = tuple(routes)
        self._root = _Node()
        for route in self.routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        node = self._root
        for part in _parts(route.path):
            if part.startswith("{"):
                node.named = node.named or _Node()
                node = node.named
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
        found = _find(self._root, parts, 0)
        if found is None:
            raise HttpError(404, "HTTP 404 Not Found")
        route = found.routes.get("GET" if method == "HEAD" else method)
        if route is None and method == OPTIONS:
            return Match(route=_options_handler(_allowed(found)), params={})
        if route is None:
            raise HttpError(405, "HTTP 405 Method Not Allowed", (b"allow", _allowed(found)))
        names = _parts(route.path)
        named = {
            name[1:-1]: part
            for name, part in zip(names, parts, strict=True)
            if name.startswith("{")
        }
        return Match(route=route, params=named)


def _allowed(node: _Node) -> bytes:
    """The methods that a path is served with, as Jersey names them."""
    more = {"HEAD", OPTIONS} if "GET" in node.routes else {OPTIONS}
    return ", ".join(sorted(node.routes.keys() | more)).encode()


def _options_handler(allowed: bytes) -> Route:
    """Answers with the methods alone."""

    async def answer_options(request: Request, context: AdminContext) -> Reply:
        del request, context
        return Reply(headers=((b"allow", allowed),))

    return Route(
        method=OPTIONS, path="", handler=answer_options, checks_itself=True, is_recorded=False
    )


def _parts(path: str) -> list[str]:
    return path.strip("/").split("/")


def _find(node: _Node, parts: list[str], at: int) -> _Node | None:
    """The node with routes that these parts lead to."""
    if at == len(parts):
        return node if node.routes else None
    literal = node.literals.get(parts[at])
    if literal is not None and (found := _find(literal, parts, at + 1)) is not None:
        return found
    if node.named is not None and parts[at]:
        return _find(node.named, parts, at + 1)
    return None
