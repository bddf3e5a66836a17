"""One lookup over a real socket, and what the prober makes of the answer."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from jobs.adapters.http.client import LookupConnection

BUNDLE = "t/n/0x00000000_0xffffffff"
BODY = b'{"httpUrl": "http://broker-1:8080"}'


class _Service(BaseHTTPRequestHandler):
    """Answers as the lookup service does: the names of its headers in lower case."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("x-ballast-bundle", BUNDLE)
        self.send_header("x-ballast-table-version", "7")
        self.send_header("x-ballast-age-ms", "12")
        self.send_header("content-length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_answer_says_what_the_headers_say_in_whatever_case_they_are_written(url: str) -> None:
    connection = LookupConnection(url, 5_000)
    answer = connection.look_up("persistent://t/n/topic")
    connection.close()
    assert (answer.broker, answer.bundle) == ("broker-1", BUNDLE)
    assert (answer.table_version, answer.age_ms) == (7, 12)
