"""Brokers that answer as a test tells them: slowly, with garbage, with a refusal, or not at all."""

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CLUSTER = "standalone"
NOT_TO_BE_USED = (
    (401, b"", "does not let us in"),
    (403, b"", "does not let us in"),
    (404, b"<html>", "does not answer as Pulsar's"),
    (200, b"<html>hello</html>", "does not answer as Pulsar's"),
)
"""Answers of an address that is no Pulsar or lets nobody in: status, content, what is said."""
STATUS = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}


@dataclass
class FakePulsar:
    """Two brokers at two ports. Answers stand by path, of one broker or of both.

    hang: paths that wait until `release` is set; half: paths of which half an answer comes.
    requests: (method, path) as they came.
    """

    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    hang: set[str] = field(default_factory=set)
    half: set[str] = field(default_factory=set)
    release: threading.Event = field(default_factory=threading.Event)
    requests: list[tuple[str, str]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Of the first broker."""
        return f"http://127.0.0.1:{self.ports[0]}"

    def broker(self, number: int) -> str:
        """A broker's name."""
        return f"127.0.0.1:{self.ports[number]}"

    def put(self, path: str, value: Any, status: int = 200) -> None:
        """Answer a path so: bytes as they are, anything else as JSON."""
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.answers[path] = (status, content)

    def own(self, held: Mapping[int, list[str]]) -> None:
        """Who owns what; the others' addresses are found by redirects, as in Pulsar."""
        self.put("/admin/v2/clusters", [CLUSTER])
        self.put(f"/admin/v2/brokers/{CLUSTER}", [self.broker(n) for n in sorted(held)])
        for number, bundles in held.items():
            path = f"/admin/v2/brokers/{CLUSTER}/{self.broker(number)}/ownedNamespaces"
            self.put(f"{self.ports[number]}{path}", dict.fromkeys(bundles, STATUS))
            for port in self.ports:
                if port != self.ports[number]:
                    self.redirects[f"{port}{path}"] = f"http://{self.broker(number)}{path}"


@contextmanager
def fake_pulsar(tls: ssl.SSLContext | None = None) -> Iterator[FakePulsar]:
    """Two running brokers; gone at the end. tls: they speak https."""
    fake = FakePulsar()
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake)) for _ in range(2)]
    for server in servers if tls else ():
        server.socket = tls.wrap_socket(server.socket, server_side=True)  # type: ignore[union-attr]
    fake.ports = [server.server_address[1] for server in servers]
    for server in servers:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield fake
    finally:
        fake.release.set()
        for server in servers:
            server.shutdown()
            server.server_close()


def _handler(fake: FakePulsar) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(length)
            fake.requests.append((self.command, self.path))
            fake.tokens.append(self.headers.get("Authorization") or "")
            path = self.path.partition("?")[0].replace("%3A", ":")
            own = f"{self.server.server_address[1]}{path}"
            if path in fake.hang or own in fake.hang:
                fake.release.wait(30)
            if own in fake.redirects:
                self.send_response(307)
                self.send_header("Location", fake.redirects[own])
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            status, content = fake.answers.get(own, fake.answers.get(path, (404, b"{}")))
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            is_half = path in fake.half or own in fake.half
            self.wfile.write(content[: len(content) // 2] if is_half else content)

        do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 http.server calls them so

        def log_message(self, *_: object) -> None:
            """Nothing."""

    return Handler
