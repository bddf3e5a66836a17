"""A real S3-compatible server of the tests' own, on a loopback port: moto's, all in memory.

With BALLAST_TEST_S3=1 the tests use the server that AWS_ENDPOINT_URL names instead, as the user of
the other AWS variables.
"""

import http.server
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pyarrow.fs as arrow_fs
import pytest

from jobs.adapters.preflight import free_ports

ROOT = Path(__file__).resolve().parents[1]
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


@contextmanager
def object_store() -> Iterator[str]:
    """A bucket; gives s3://bucket/prefix. This process and its children can reach it."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("BALLAST_TEST_S3"):
            yield _prefix()
            return
        (port,) = free_ports(1)
        for name, value in aws_environment(port).items():
            patch.setenv(name, value)
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait_for(port, server)
            yield _prefix()
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


@contextmanager
def refusing_store() -> Iterator[int]:
    """A server that refuses everybody, in a process of its own: delta-rs holds threads up."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "tests.object_store", str(port)]
    server = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, server)
        yield port
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Refuser).serve_forever()
