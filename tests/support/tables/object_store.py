"""A real S3-compatible server of the tests' own, on a loopback port: moto's, all in memory.

With BALLAST_TEST_S3=1 the tests use the server that AWS_ENDPOINT_URL names instead, as the user of
the other AWS variables.
"""

import http.client
import http.server
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow.fs as arrow_fs
import pytest

from jobs.adapters.processes.preflight import free_ports

ROOT = Path(__file__).resolve().parents[3]
BUCKET = "ballast-tests"
SECRET = "not-to-be-logged-4711"  # noqa: S105 a word to look for
_START_TIMEOUT_S = 60.0


def aws_environment(port: int) -> Mapping[str, str]:
    """What a process needs to know of a server on a loopback port."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "ballast-tester",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStore:
    """An empty prefix in a bucket. process: the server's, None when it is not ours."""

    uri: str
    process: int | None


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A store that this process and its children can reach."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("BALLAST_TEST_S3"):
            yield ObjectStore(uri=_prefix(), process=None)
            return
        (port,) = free_ports(1)
        for name, value in aws_environment(port).items():
            patch.setenv(name, value)
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait_for(port, server)
            yield ObjectStore(uri=_prefix(), process=server.pid)
        finally:
            server.kill()
            server.wait()


def _prefix() -> str:
    arrow_fs.S3FileSystem(
        endpoint_override=os.environ["AWS_ENDPOINT_URL"], allow_bucket_creation=True
    ).create_dir(BUCKET)
    return f"s3://{BUCKET}/{uuid4().hex}"


def _wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while not _listens(port):
        assert server.poll() is None, "the server has ended"
        assert time.monotonic() < deadline_s, "the server does not listen"
        time.sleep(0.05)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class _Refuser(http.server.BaseHTTPRequestHandler):
    """Answers as S3 does to a user without rights."""

    def do_GET(self) -> None:
        body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_PUT = do_GET  # noqa: N815 the base class's names


class _Gatherer(http.server.BaseHTTPRequestHandler):
    """Passes everything on to another store, but commits only when two of them have come.

    So both have been begun before either is there, and the condition of the write alone decides.
    """

    protocol_version = "HTTP/1.1"
    together = threading.Barrier(2)
    keeps_condition = True

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.command == "PUT" and "_delta_log/0" in self.path:
            self.together.wait(_START_TIMEOUT_S)
        there = http.client.HTTPConnection(urlsplit(sys.argv[3]).netloc)
        dropped = "" if self.keeps_condition else "if-none-match"
        kept = {name: self.headers[name] for name in self.headers if name.lower() != dropped}
        there.request(self.command, self.path, body, kept)
        answer = there.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"connection", "date", "server", "transfer-encoding"}:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815 the base class's names


class _Careless(_Gatherer):
    """The same, but it forgets the condition, as an old store does."""

    keeps_condition = False


@contextmanager
def _served(*words: str) -> Iterator[int]:
    """A server of this module's in a process of its own: delta-rs holds threads up."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "tests.support.tables.object_store", str(port), *words]
    server = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, server)
        yield port
    finally:
        server.kill()
        server.wait()


def refusing_store() -> AbstractContextManager[int]:
    """A server that refuses everybody; its port."""
    return _served("refuse")


def gathering_store(kind: str, endpoint_url: str) -> AbstractContextManager[int]:
    """A server in front of another one, through which commits go in pairs; its port.

    kind: gather, or careless, which forgets the condition of a write.
    """
    return _served(kind, endpoint_url)


if __name__ == "__main__":
    _handlers = {"refuse": _Refuser, "gather": _Gatherer, "careless": _Careless}
    _address = ("127.0.0.1", int(sys.argv[1]))
    http.server.ThreadingHTTPServer(_address, _handlers[sys.argv[2]]).serve_forever()
