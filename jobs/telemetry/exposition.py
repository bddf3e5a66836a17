"""Gives a process's metrics out over HTTP, on a port of their own.

Decides nothing. Source: prometheus-client's own server.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server

from jobs.console import CommandError
from jobs.whole_file import write_whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What a process that gives out metrics can be told."""
    parser.add_argument(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="give out metrics for Prometheus there, at telemetry.host; 0 = any free port",
    )
    parser.add_argument(
        "--metrics-port-file", type=Path, metavar="FILE", help="written with the port once it is"
    )


def give_out(
    registry: CollectorRegistry, host: str, args: argparse.Namespace
) -> Callable[[], None]:
    """Serve until the function that is returned is called; nothing without a port.

    Raises CommandError when the port can't be had.
    """
    if args.metrics_port is None:
        return lambda: None
    try:
        server, _ = start_http_server(args.metrics_port, addr=host, registry=registry)
    except OSError as error:
        raise CommandError(
            f"metrics can't be given out on {host} port {args.metrics_port}",
            why=f"{error.strerror or error}",
            next_step="choose another --metrics-port (0 takes any free one), or end what uses it",
        ) from error
    if args.metrics_port_file is not None:
        write_whole(args.metrics_port_file, f"{server.server_port}\n")

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return stop
