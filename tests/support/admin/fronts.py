"""Fronts that answer for several brokers: a Pulsar proxy, a Kubernetes Service, a load balancer."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.admin.assessed import (
    BUNDLES,
    HOT_COUNT,
    REPORT_PATH,
    recorded_cluster,
    set_loads,
)
from tests.support.admin.fake_pulsar import CLUSTER, STATUS, FakePulsar

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
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(front))
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


def _handler(front: Front) -> type[BaseHTTPRequestHandler]:
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
