"""The fleet's control server on the loopback, and its client.

Each request is carried out by the fleet's own thread.

GET  /health                   counts, for the supervisor
GET  /brokers[?bundles=1]      life, true load (msg/s in + out), bundles with their tokens
GET  /truth                    bundle → [[broker, token], ...] that serve it right now
POST /kill/BROKER              at once and without a word; answers what a `Crash` is made of
POST /start/BROKER             a new incarnation; a new name joins (also /restart/BROKER)
POST /pause/BROKER, /hang/BROKER, /resume/BROKER, /drain/BROKER
"""

import json
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from jobs.console import CommandError
from jobs.fleet.fleet import Fleet, FleetLoop, UnknownBrokerError
from lbcore.sim.summary import Crash, LoadSample


class EventLog:
    """Appends one line an event; every line is in the file when `note` returns."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", buffering=1, encoding="utf-8")

    def note(self, event: Mapping[str, Any]) -> None:
        """Write one event."""
        self._file.write(json.dumps(event, separators=(",", ":")) + "\n")

    def __enter__(self) -> "EventLog":  # noqa: PYI034 (Self is 3.11's)
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self._file.close()


_ACTIONS: Mapping[str, Callable[[Fleet, str, int], object]] = {
    "kill": Fleet.kill,
    "start": Fleet.start,
    "restart": Fleet.start,
    "pause": Fleet.pause,
    "hang": Fleet.hang,
    "resume": Fleet.resume,
    "drain": Fleet.drain,
}
_OWN_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
_OF_PAGES = ("Origin", "Referer", "Sec-Fetch-Site")
_BODY_MAX_BYTES = 65_536
_TIMEOUT_S = 30.0
_SERVING = frozenset({"alive", "draining", "hanging", "paused"})


class ControlServer:
    """Serves until closed, in threads of its own."""

    def __init__(self, loop: FleetLoop, port: int = 0) -> None:
        """Listen on a port, 0 = any free one; see the attribute `port`."""
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", port), type("Handler", (_Handler,), {"loop": loop})
        )
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more requests."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """One connection's requests; `loop` is set in a subclass."""

    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT_S
    loop: FleetLoop

    def parse_request(self) -> bool:
        """Refuse what a web page has sent: none is meant to."""
        if not super().parse_request():
            return False
        length = self.headers.get("Content-Length", "0")
        is_ours = _is_own(self.headers.get("Host", "localhost")) and not any(
            name in self.headers for name in _OF_PAGES
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
            "/truth": lambda fleet, now_ms: fleet.truth(now_ms),
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
        if action not in _ACTIONS or not name:
            self._refuse(f"POST /ACTION/BROKER, where ACTION is one of {sorted(_ACTIONS)}")
            return
        try:
            self._answer(
                self.loop.call(lambda fleet, now_ms: _ACTIONS[action](fleet, name, now_ms))
            )
        except UnknownBrokerError:
            self._refuse(f"the fleet has no broker {name}")

    def _refuse(self, reason: str) -> None:
        self._answer({"reason": reason}, HTTPStatus.NOT_FOUND)

    def _answer(self, body: object, status: HTTPStatus = HTTPStatus.OK) -> None:
        text = json.dumps({} if body is None else body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Requests are not logged: what they do is."""


def _is_own(authority: str) -> bool:
    try:
        return urlsplit(f"//{authority}").hostname in _OWN_NAMES
    except ValueError:
        return False


class FleetClient:
    """Talks to a fleet's control server; a connection each time, so any thread may."""

    def __init__(self, port: int, timeout_ms: int = 30_000) -> None:
        """port: what the fleet wrote into its --port-file."""
        self._port = port
        self._timeout_s = timeout_ms / 1000.0

    def kill(self, broker: str) -> Crash:
        """Kill a broker without a word."""
        return crash_of(self._ask("POST", f"/kill/{quote(broker)}"))

    def act(self, action: str, broker: str) -> None:
        """start, restart, pause, hang, resume or drain a broker."""
        self._ask("POST", f"/{action}/{quote(broker)}")

    def health(self) -> dict[str, Any]:
        """Counts."""
        return self._ask("GET", "/health")

    def brokers(self, *, with_bundles: bool = False) -> dict[str, Any]:
        """Each broker's life, true load and bundles."""
        return self._ask("GET", "/brokers?bundles=1" if with_bundles else "/brokers")

    def truth(self) -> dict[str, list[tuple[str, int]]]:
        """Return the brokers that serve each bundle right now."""
        served = self._ask("GET", "/truth")
        return {
            bundle: [(broker, token) for broker, token in found] for bundle, found in served.items()
        }

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
        found: dict[str, Any] = body
        return found


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
