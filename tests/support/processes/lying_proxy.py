"""Proxies that lie, delay or cut connections."""

import contextlib
import http.client
import socket
import threading
import time
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


_CHUNK_BYTES = 65_536
_AGAIN_S = 0.1
_TRIES = 10


class Forwarder:
    """Passes bytes between one loopback port and another, both ways, until it is cut.

    While it is cut connections stay, as behind a broken switch: what is sent waits, and arrives
    when it is mended, and new connections wait too. Those whose target is gone are closed.
    """

    def __init__(self, port: int, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._is_whole = threading.Event()
        self._is_whole.set()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_whole.clear()

    def mend(self) -> None:
        self._is_whole.set()

    def close(self) -> None:
        self._listener.close()
        for each in list(self._open):
            each.close()
        self._is_whole.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self._is_whole.wait()
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._kept(near))
            far = self._reached()
            if far is None:
                return
            stack.enter_context(self._kept(far))
            back = threading.Thread(target=self._pump, args=(far, near), daemon=True)
            back.start()
            self._pump(near, far)
            back.join()

    def _reached(self) -> socket.socket | None:
        """A connection to the target; None = it does not listen, found out slowly.

        At once would have clients try again without any pause: to them it is a connection that
        was made and lost.
        """
        for _ in range(_TRIES):
            far = socket.socket()
            if far.connect_ex(self._target) == 0:
                return far
            far.close()
            time.sleep(_AGAIN_S)
        return None

    @contextlib.contextmanager
    def _kept(self, one: socket.socket) -> Iterator[socket.socket]:
        self._open.add(one)
        try:
            yield one
        finally:
            self._open.discard(one)
            one.close()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while passed := source.recv(_CHUNK_BYTES):
                self._is_whole.wait()
                sink.sendall(passed)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
