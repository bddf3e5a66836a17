"""The fleet's control server on the loopback, and its client.

Requests are carried out one at a time (`FleetLoop.call`).

GET  /health                   counts, for the supervisor
GET  /brokers[?bundles=1]      life, true load (msg/s in + out), bundles with their tokens
GET  /truth                    bundle → [[broker, token], ...] that serve it right now
POST /kill/BROKER              at once, without notice; answers the fields of a `Crash`
POST /start/BROKER             a new incarnation; a new name joins (also /restart/BROKER)
POST /pause/BROKER, /hang/BROKER, /resume/BROKER, /drain/BROKER
"""

import json
import re
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from jobs.console import CommandError
from jobs.fleet.fleet import ACTIONS, Fleet, FleetLoop, UnknownBrokerError
from lbcore.sim.summary import Crash, LoadSample

_OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", re.IGNORECASE)
_OF_PAGES = ("Origin", "Referer", "Sec-Fetch-Site")
_BODY_MAX_BYTES = 65_536
_TIMEOUT_S = 30.0
_SERVING = frozenset({"alive", "draining", "hanging", "paused"})


class ControlServer:
    """HTTP server of the fleet, in threads of its own."""

    def __init__(self, loop: FleetLoop, port: int = 0) -> None:
        """Listen on a port, 0 = any free one; see the attribute `port`."""
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", port), type("Handler", (_Handler,), {"loop": loop})
        )
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """One connection's requests; `loop` is set in a subclass."""

    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT_S
    loop: FleetLoop

    def parse_request(self) -> bool:
        """Refuse requests of web pages."""
        if not super().parse_request():
            return False
        length = self.headers.get("Content-Length", "0")
        is_ours = not any(name in self.headers for name in _OF_PAGES) and bool(
            _OWN_HOST.fullmatch(self.headers.get("Host", "localhost"))
        )
        is_short = length.isascii() and length.isdigit() and int(length[:9]) <= _BODY_MAX_BYTES
        if is_ours and is_short and "Transfer-Encoding" not in self.headers:
            return True
        self.close_connection = True
        self.send_error(
            HTTPStatus.FORBIDDEN if not is_ours else HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        )
        return False

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        is_long = bool(parse_qs(parts.query).get("bundles"))
        readings: Mapping[str, Callable[[Fleet, int], object]] = {
            "/health": lambda fleet, _: fleet.health(),
            "/truth": Fleet.truth,
            "/brokers": lambda fleet, now_ms: fleet.describe(now_ms, with_bundles=is_long),
        }
        if parts.path in readings:
            self._answer(self.loop.call(readings[parts.path]))
        else:
            self._refuse(f"there is no {parts.path}")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        _, _, rest = unquote(urlsplit(self.path).path).partition("/")
        action, _, name = rest.partition("/")
        if action not in ACTIONS or not name:
            self._refuse(f"POST /ACTION/BROKER, where ACTION is one of {sorted(ACTIONS)}")
            return
        try:
            self._answer(self.loop.call(lambda fleet, now_ms: fleet.act(action, name, now_ms)))
        except UnknownBrokerError:
            self._refuse(f"the fleet has no broker {name}")

    def _refuse(self, reason: str) -> None:
        self._answer({"reason": reason}, HTTPStatus.NOT_FOUND)

    def _answer(self, body: object, status: HTTPStatus = HTTPStatus.OK) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Log no requests; their effects are logged."""


class FleetClient:
    """Client of a fleet's control server, a connection per request; thread-safe."""

    def __init__(self, port: int, timeout_ms: int = 30_000) -> None:
        """port: the content of the fleet's --port-file."""
        self._port = port
        self._timeout_s = timeout_ms / 1000.0

    def kill(self, broker: str) -> Crash:
        """Kill a broker at once."""
        return crash_of(self._ask("POST", f"/kill/{quote(broker)}"))

    def act(self, action: str, broker: str) -> None:
        """Carry out start, restart, pause, hang, resume or drain of a broker."""
        self._ask("POST", f"/{action}/{quote(broker)}")

    def health(self) -> dict[str, Any]:
        """Return the counts."""
        return self._ask("GET", "/health")

    def brokers(self, *, with_bundles: bool = False) -> dict[str, Any]:
        """Return each broker's life, true load and bundles."""
        return self._ask("GET", "/brokers?bundles=1" if with_bundles else "/brokers")

    def truth(self) -> dict[str, list[tuple[str, int]]]:
        """Return the brokers that serve each bundle right now."""
        served = self._ask("GET", "/truth")
        return {bundle: [*map(tuple, found)] for bundle, found in served.items()}

    def _ask(self, method: str, path: str) -> dict[str, Any]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=self._timeout_s)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            body = json.loads(response.read())
        except (OSError, HTTPException, ValueError) as error:
            raise CommandError(
                f"the fleet's control server did not answer {method} {path}",
                why=f"{type(error).__name__}: {error}",
                next_step="see whether the fleet's process runs, and what its log says",
            ) from error
        finally:
            connection.close()
        if response.status != HTTPStatus.OK:
            raise CommandError(
                f"the fleet refused {method} {path}",
                why=str(body.get("reason", response.status)),
                next_step="GET /brokers lists the brokers it has",
            )
        return dict(body)


def crash_of(body: Mapping[str, Any]) -> Crash:
    """Parse the answer to a kill."""
    return Crash(
        broker=body["broker"],
        killed_at_ms=body["killed_at_ms"],
        last_report_ms=body["last_report_ms"],
        bundles=tuple(body["bundles"]),
    )


def sample_of(body: Mapping[str, Any]) -> LoadSample:
    """Parse the load in the answer to /brokers."""
    serving = [row for row in body["brokers"] if row["life"] in _SERVING]
    return LoadSample(
        at_ms=body["at_ms"],
        broker_loads={row["broker"]: row["load"] / row["capacity"] for row in serving},
        hottest_bundle=body["hottest_bundle"],
        bundles_open=body["bundles_open"],
    )
