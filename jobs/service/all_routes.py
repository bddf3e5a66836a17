"""All routes of the admin service, and the files of the console at `/`.

The files hold nothing of the cluster and are for everybody. The browser may do nothing with them
but ask this service, under the caller's own roles (Content Security Policy Level 3).
"""

from pathlib import Path

from jobs.service.context import AdminContext
from jobs.service.exchange import Header, Reply, Request
from jobs.service.pulsar.routes import PULSAR_ROUTES
from jobs.service.routes import Route
from jobs.service.v1.commands import COMMAND_ROUTES
from jobs.service.v1.openapi import openapi_route
from jobs.service.v1.ownership import OWNERSHIP_ROUTES, WATCH_ROUTES
from jobs.service.v1.planning import EXPLAINING_ROUTES, FORESEEING_ROUTES, PLANNING_ROUTES
from jobs.service.v1.showing import HISTORY_ROUTES, OVERVIEW_ROUTES, SHOWING_ROUTES

FOLDER = Path(__file__).with_name("page")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)
_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".md": b"text/plain; charset=utf-8",
    ".svg": b"image/svg+xml",
}


def _route(path: str, name: str) -> Route:
    body = (FOLDER / name).read_bytes()
    headers = ((b"content-type", _TYPES[Path(name).suffix]), *_HEADERS)

    async def serve(_request: Request, _context: AdminContext) -> Reply:
        return Reply(body=body, headers=headers)

    return Route(method="GET", path=path, handler=serve, is_open=True)


_NAMES = sorted(path.name for path in FOLDER.iterdir() if path.suffix in _TYPES)
PAGE_ROUTES = (
    _route("/", "index.html"),
    *(_route(f"/page/{name}", name) for name in _NAMES if name != "index.html"),
)


_DOCUMENTED = (
    *SHOWING_ROUTES,
    *OVERVIEW_ROUTES,
    *HISTORY_ROUTES,
    *EXPLAINING_ROUTES,
    *FORESEEING_ROUTES,
    *PLANNING_ROUTES,
    *OWNERSHIP_ROUTES,
    *WATCH_ROUTES,
    *COMMAND_ROUTES,
    *PULSAR_ROUTES,
)

ROUTES: tuple[Route, ...] = (*_DOCUMENTED, openapi_route(_DOCUMENTED), *PAGE_ROUTES)
