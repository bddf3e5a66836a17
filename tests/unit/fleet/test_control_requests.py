"""Who the simulated fleet's control server listens to: its clients, and no web page."""

import http.client
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from jobs.fleet.control import ControlServer, FleetClient


class Loop:
    """Counts what is asked of the fleet."""

    calls = 0

    def call(self, work: Any) -> object:
        """Not carried out: nobody is there."""
        del work
        self.calls += 1
        return {}


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def server(loop: Loop) -> Iterator[ControlServer]:
    running = ControlServer(loop)  # type: ignore[arg-type]
    yield running
    running.close()


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Referer": "http://evil.example/x"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Length": "1000000000"}, 413),
        ({"Content-Length": "x"}, 413),
        ({"Content-Length": "-1"}, 413),
        ({"Transfer-Encoding": "chunked"}, 413),
    ],
)
def test_page_and_endless_body_are_refused_before_anything_happens(
    server: ControlServer, loop: Loop, method: str, headers: dict[str, str], status: int
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    path = "/health" if method == "GET" else "/kill/broker-1"
    given = {"Host": f"127.0.0.1:{server.port}", **headers}
    connection.putrequest(method, path, skip_host=True)
    for name, value in given.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == status
    assert loop.calls == (status == 200)
    connection.close()


def test_its_own_client_is_served(server: ControlServer, loop: Loop) -> None:
    client = FleetClient(server.port)
    client.health()
    client.act("drain", "broker-1")
    assert loop.calls == 2


def test_request_without_a_host_is_its_clients(server: ControlServer, loop: Loop) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as wire:
        wire.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert b" 200 " in wire.recv(1_000)
    assert loop.calls == 1
