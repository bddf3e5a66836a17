"""HTTP server of a process's metrics on a port of its own: /metrics, and /ready.

/ready answers probes without rendering thousands of lines of metrics.
"""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from jobs.atomic_file import atomic_write
from jobs.console import CommandError
from jobs.parser import argument, arguments, port_number

add_arguments = arguments(
    argument(
        "--metrics-port",
        type=port_number,
        metavar="PORT",
        help="expose metrics for Prometheus there, at telemetry.host; 0 = any free port",
    ),
    argument(
        "--metrics-port-file",
        type=Path,
        metavar="FILE",
        help="file for the port, written once it is open",
    ),
)


class MetricsPort(Collector):
    """A process's metrics on one port; the registry may change.

    host, args: address, args of `add_arguments`; without a port nothing is served.
    """

    def __init__(self, host: str, args: argparse.Namespace) -> None:
        self._host, self._args = host, args
        self._shown = CollectorRegistry()
        self._server: Any = None

    def show(self, registry: CollectorRegistry) -> None:
        """Serve these from now on. Raises CommandError when the port can't be opened."""
        self._shown = registry
        port = self._args.metrics_port
        if self._server is not None or port is None:
            return
        served = CollectorRegistry()
        served.register(self)
        try:
            self._server, _ = start_http_server(port, addr=self._host, registry=served)
        except OSError as error:
            raise CommandError(
                f"metrics can't be given out on {self._host} port {port}",
                why=f"{error.strerror or error}",
                next_step="choose another --metrics-port (0 takes any free one), or end what uses "
                "it",
            ) from error
        metrics = self._server.get_app()

        def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
            if environ.get("PATH_INFO") != "/ready":
                found: Iterable[bytes] = metrics(environ, start)
                return found
            start("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"ready\n"]

        self._server.set_app(answer)
        if self._args.metrics_port_file is not None:
            text = f"{self._server.server_port}\n"
            atomic_write(self._args.metrics_port_file, text, is_durable=False)

    def stop(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics shown now; called by the server."""
        yield from self._shown.collect()
