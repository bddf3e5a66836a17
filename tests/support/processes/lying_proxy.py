"""A proxy in front of a web service that a test lets lie: answers of some path are altered."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_TIMEOUT_S = 120
_KEPT = ("Content-Type", "Location")


class LyingProxy:
    """Passes requests on. `alter`: (path, the body of a 200) → the body that is told instead."""

    def __init__(self, target_url: str) -> None:
        self.target = urlsplit(target_url).netloc
        self.alter: Callable[[str, bytes], bytes] | None = None
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server.server_address[1]}"


@contextmanager
def lying_proxy(target_url: str) -> Iterator[LyingProxy]:
    """A proxy, honest at first; gone at the end."""
    proxy = LyingProxy(target_url)
    try:
        yield proxy
    finally:
        proxy.server.shutdown()
        proxy.server.server_close()


def _handler(proxy: LyingProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {"Content-Type": "application/json"}
            far = http.client.HTTPConnection(proxy.target, timeout=_TIMEOUT_S)
            far.request(self.command, self.path, body=body, headers=headers)
            answer = far.getresponse()
            content = answer.read()
            if proxy.alter is not None and answer.status == http.client.OK:
                content = proxy.alter(self.path, content)
            self.send_response(answer.status)
            for name in _KEPT:
                if found := answer.getheader(name):
                    self.send_header(name, found)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            far.close()

        do_GET = do_PUT = do_POST = _pass_on  # noqa: N815 http.server calls them so

        def log_message(self, *_: object) -> None:
            """Nothing."""

    return Handler
