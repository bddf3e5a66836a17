"""Fake Pulsar brokers with recorded answers over real HTTP, and proxies before them."""

import json
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
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
        return f"http://127.0.0.1:{self.ports[0]}"

    def broker(self, number: int) -> str:
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


USAGES = (80.0, 5.0)


@dataclass
class Front:
    """A front at `url`, which hands each question to one broker after the other.

    names: of the brokers, as they are listed; addresses: where they answer themselves. follows: it
    follows redirects itself, as a Pulsar proxy does; without, its clients see them.
    """

    fake: FakePulsar
    names: tuple[str, ...]
    addresses: tuple[str, ...]
    follows: bool
    url: str = ""
    count: int = 0
    asked: list[str] = field(default_factory=list)


@contextmanager
def fronted_brokers(*, is_reachable: bool = True, follows: bool = True) -> Iterator[Front]:
    """Two brokers at 80 % and 5 % behind a front. is_reachable: under the names that are listed."""
    with recorded_cluster() as fake:
        own = tuple(fake.broker(number) for number in range(2))
        names = own if is_reachable else ("broker-0.invalid:8080", "broker-1.invalid:8080")
        _name(fake, names)
        addresses = tuple(f"http://{one}" for one in own)
        front = Front(fake=fake, names=names, addresses=addresses, follows=follows)
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_fronts(front))
        server.daemon_threads = True
        front.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield front
        finally:
            server.shutdown()
            server.server_close()


def _name(fake: FakePulsar, names: tuple[str, ...]) -> None:
    """Let the brokers be called so, in every answer."""
    fake.redirects.clear()
    fake.put(f"/admin/v2/brokers/{CLUSTER}", list(names))
    set_loads(fake, 0)
    held = (BUNDLES[:HOT_COUNT], BUNDLES[HOT_COUNT:])
    for number, name in enumerate(names):
        path = f"/admin/v2/brokers/{CLUSTER}/{name}/ownedNamespaces"
        fake.put(f"{fake.ports[number]}{path}", dict.fromkeys(held[number], STATUS))
        fake.redirects[f"{fake.ports[1 - number]}{path}"] = f"http://{name}{path}"
        place = f"{fake.ports[number]}{REPORT_PATH}"
        report = json.loads(fake.answers[place][1])
        usage = {"usage": USAGES[number], "limit": 100.0}
        start = 1_700_000_000_000 + number
        changes = {"webServiceUrl": f"http://{name}", "cpu": usage, "startTimestamp": start}
        fake.put(place, {**report, **changes})


def _handler_fronts(front: Front) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            front.count += 1
            front.asked.append(self.path)
            number = front.count % 2
            status, location, content = _ask(front.fake.ports[number], self.path)
            if location and front.follows:
                status, location, content = _ask(front.fake.ports[1 - number], self.path)
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    return Handler


def _ask(port: int, path: str) -> tuple[int, str, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Location") or "", answer.read()
    finally:
        connection.close()


FOLDER = Path(__file__).parents[2] / "recordings"
STACK_TRACE = "Stacktrace:\n\n"
_URL = re.compile(r"(pulsar|http)(\+ssl|s)?://[\w.-]+(:\d+)?/?")
_CUT = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and Pulsar's answer to it. body: decoded when it was JSON."""

    name: str
    mode: str
    method: str
    path: str
    query: str
    request_body: str
    status: int
    content_type: str
    body: Any

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path


def read_recording(name: str) -> Exchange:
    """The last exchange of a recording: those before it are redirects between brokers."""
    recorded = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    exchange = recorded["exchanges"][-1]
    body = exchange["responseJson"] if "responseJson" in exchange else exchange["responseBody"]
    return Exchange(
        name=name,
        mode=recorded["mode"],
        method=exchange["method"],
        path=exchange["path"],
        query=exchange["query"].replace("authoritative=true&", ""),
        request_body=exchange["requestBody"],
        status=exchange["status"],
        content_type=exchange["responseHeaders"].get("Content-Type", ""),
        body=body,
    )


NOT_REPLAYED = {
    "65-namespaces-split-bundle-positions-hex-rejected": "the tool refuses it and sends nothing",
}
"""The recordings that can't be sent to the stack, each with the reason."""


def recorded_names() -> list[str]:
    return sorted({path.stem for path in FOLDER.glob("*.json")} - NOT_REPLAYED.keys())


def differences(recorded: Any, answered: Any, where: str = "") -> Iterator[str]:
    """Where an answer's form is another than the recorded one's."""
    if isinstance(recorded, Mapping) and isinstance(answered, Mapping):
        for name in sorted(recorded.keys() ^ answered.keys()):
            side = "missing" if name in recorded else "surplus"
            yield f"{where}/{name} is {side}"
        for name in sorted(recorded.keys() & answered.keys()):
            yield from differences(recorded[name], answered[name], f"{where}/{name}")
    elif isinstance(recorded, list) and isinstance(answered, list):
        if recorded and answered:
            yield from differences(recorded[0], answered[0], f"{where}/0")
    elif _kind(recorded) != _kind(answered):
        yield f"{where} is {answered!r}, was {recorded!r}"


def _kind(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return repr(type(value))
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str) and _URL.fullmatch(value):
        return value.partition(":")[0]
    return type(value).__name__


def same_reason(recorded: str, answered: str) -> bool:
    """Whether two error texts are the same; of a stack trace only its first line counts."""
    head, mark, trace = recorded.partition(STACK_TRACE)
    if not mark:
        return recorded == answered
    return answered.startswith(head + mark + trace.splitlines()[0])


def decode(body: Any) -> Any:
    """A recorded body that is JSON text; None for one that was cut."""
    if not isinstance(body, str) or not body.startswith(("{", "[")):
        return body
    return None if len(body) >= _CUT - 20 else json.loads(body)


REPORTS = Path(__file__).parents[2] / "unit" / "wire" / "pulsar_reports"
ANSWERS = Path(__file__).parents[2] / "unit" / "bridge" / "pulsar_answers"
REPORT_PATH = "/admin/v2/broker-stats/load-report"
TOPICS_PATH = "/admin/v2/broker-stats/topics"
RUNTIME_PATH = "/admin/v2/brokers/configuration/runtime"
NAMESPACE = "acme/ns"
EDGES = [f"0x{at << 28:08x}" for at in range(16)] + ["0xffffffff"]
BUNDLES = [f"{NAMESPACE}/{low}_{high}" for low, high in pairwise(EDGES)]
HOT_COUNT = 12
_ONE = "acme/ns2/0x80000000_0xc0000000"


@contextmanager
def recorded_cluster() -> Iterator[FakePulsar]:
    """The first twelve of sixteen bundles are at broker 0."""
    with fake_pulsar() as fake:
        fake.own(
            {
                0: BUNDLES[:HOT_COUNT],
                1: BUNDLES[HOT_COUNT:],
            }
        )
        fake.put("/admin/v2/tenants", ["acme", "pulsar"])
        fake.put("/admin/v2/namespaces/acme", [NAMESPACE])
        fake.put("/admin/v2/namespaces/pulsar", ["pulsar/system"])
        edges = {"boundaries": EDGES, "numBundles": len(BUNDLES)}
        fake.put(f"/admin/v2/namespaces/{NAMESPACE}/bundles", edges)
        fake.put(RUNTIME_PATH, (ANSWERS / "runtime.json").read_bytes())
        fake.put("/metrics/", (ANSWERS / "metrics-broker-1.txt").read_bytes())
        fake.put(TOPICS_PATH, (ANSWERS / "topics-with-traffic.json").read_bytes())
        set_loads(fake, 0)
        yield fake


def set_loads(fake: FakePulsar, number: int) -> None:
    """What brokers report at the number-th time: the recorded rates, a little more each time."""
    recorded = json.loads((REPORTS / "busy-broker-3.json").read_text())
    for broker, bundles in enumerate(
        (
            BUNDLES[:HOT_COUNT],
            BUNDLES[HOT_COUNT:],
        )
    ):
        one = recorded["lastStats"][_ONE]
        stats = {
            name: {**one, "msgRateIn": one["msgRateIn"] + at + number}
            for at, name in enumerate(bundles)
        }
        usage = 8.0 * len(bundles)
        report: dict[str, Any] = {
            **recorded,
            "webServiceUrl": f"http://{fake.broker(broker)}",
            "lastStats": stats,
            "bundles": bundles,
            "numBundles": len(bundles),
            "cpu": {"usage": usage, "limit": 100.0},
            "msgRateIn": sum(row["msgRateIn"] for row in stats.values()),
        }
        fake.put(f"{fake.ports[broker]}{REPORT_PATH}", report)


def broker_list(fake: FakePulsar, names: list[str]) -> None:
    fake.put(f"/admin/v2/brokers/{CLUSTER}", names)
