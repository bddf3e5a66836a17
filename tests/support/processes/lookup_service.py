"""The lookup service as a process of its own, asked over real sockets."""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.processes.programs import json_lines
from tests.support.tables.lookup_tables import CLUSTER

ROOT = Path(__file__).resolve().parents[3]
_START_TIMEOUT_S = 60.0
_WITH_CONSTANTS = """
import runpy
from lbcore.config.lookup import LookupConfig
LookupConfig.__init__.__kwdefaults__.update({})
runpy.run_module({!r}, run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class LookupService:
    """A running service; `port` is known once it listens."""

    module = "jobs.serve_lookup"

    def __init__(
        self,
        tables: Path,
        *words: str,
        environment: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        constants: Mapping[str, int] | None = None,
    ) -> None:
        """constants: of LookupConfig, in place of its own."""
        self.tls = tls
        port_file = tables.with_name(f"{tables.name}.port")
        self.log_path = tables.with_name(f"{tables.name}.log")
        self.port_file = port_file
        program = ["-m", self.module]
        if constants:
            program = ["-c", _WITH_CONSTANTS.format(dict(constants), self.module)]
        command = [sys.executable, *program, "--tables", str(tables)]
        command += ["--cluster", CLUSTER, "--port", "0", "--port-file", str(port_file), *words]
        with self.log_path.open("wb") as log:
            variables = {**os.environ, **(environment or {})}
            self.process = subprocess.Popen(
                command, cwd=ROOT, stderr=log, env=variables, **self.pipes()
            )
        try:
            self._wait(port_file.exists)
        except AssertionError:  # nobody has it yet who could stop it
            self.stop(signal.SIGKILL)
            raise
        self.port = int(port_file.read_text())

    def pipes(self) -> dict[str, Any]:
        return {}

    def get(self, path: str, *, method: str = "GET", **headers: str) -> Reply:
        connection = self._connection()
        try:
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=names)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(status=response.status, headers=found, body=response.read())
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=self.tls)

    def send(self, request: bytes, *, timeout_s: float = 10.0) -> bytes:
        """Whatever comes back for raw bytes until the service closes or falls silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while part := connection.recv(65536):
                answer += part
            return answer

    def wait_ready(self) -> None:
        self._wait(lambda: self.get("/health").status == 200)

    def log_lines(self) -> list[dict[str, Any]]:
        return json_lines(self.log_path)

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 20.0) -> int:
        """Send the signal; the exit code."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def _wait(self, is_reached: Any) -> None:
        pause = threading.Event()
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while not is_reached():
            assert self.process.poll() is None, self.log_path.read_text()
            assert time.monotonic() < deadline_s, self.log_path.read_text()
            pause.wait(0.02)
