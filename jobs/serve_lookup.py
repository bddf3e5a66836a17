"""The process that answers lookups over HTTP and takes operators' requests.

Decides where it listens and when it ends. Lookups need neither Spark nor Kafka: when they are down,
it goes on answering and says how old its answers are; requests that change something go to the
balancer by way of Kafka. Run one or many; each follows the tables itself. Several processes answer
on one port (SO_REUSEPORT) and are kept running.
"""

import argparse
import asyncio
import logging
import resource
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, cast

import uvicorn

from jobs.adapters.delta.table_location import table_place
from jobs.adapters.delta.table_scan import block_pandas
from jobs.adapters.http.protocol import BoundedProtocol, Bounds
from jobs.adapters.http.tls import ServerTls
from jobs.adapters.processes.json_log import log_json_lines
from jobs.adapters.processes.paths import private_directory
from jobs.adapters.processes.processes import ProcessSpec, Supervisor
from jobs.adapters.processes.settings import load_settings
from jobs.adapters.processes.signals import on_signals
from jobs.atomic_file import atomic_write
from jobs.console import CommandError, Exit, MisuseError, note
from jobs.parser import Parser, add_settings_options, argument, arguments, run_process
from jobs.service.access import is_loopback
from jobs.service.app import Service, start_service
from jobs.service.lookup_metrics import SharedMetrics
from lbcore.config.lookup import LookupConfig
from lbcore.config.tree import Config

logger = logging.getLogger(__name__)

_ROOT = Path(__file__).parents[1]
_POLL_S = 0.2
_GRACE_MS = 10_000
_BACKLOG = 2048
_TICKS_PER_S = 10
_KEEP_ALIVE_S = 60
_STOP_TIMEOUT_S = 2
_SWITCH_INTERVAL_S = 0.000_5
_SHORT = {
    "host": "lookup.host",
    "port": "lookup.port",
    "poll_ms": "lookup.poll_interval_ms",
    "wait_ms": "lookup.wait_timeout_ms",
    "workers": "lookup.workers",
}


add_arguments = arguments(
    argument(
        "--tables",
        type=table_place,
        required=True,
        help="folder of the Delta tables, or a URI: s3://, abfss://, gs:// or hdfs://",
    ),
    argument("--cluster", required=True, help="cluster whose bundles are looked up"),
    add_settings_options,
    argument("--bootstrap", default="", help="Kafka's address, for commands and audit"),
    argument("--host", help="address to listen on"),
    argument("--port", type=int, help="port to listen on, 0 = any free"),
    argument("--port-file", type=Path, help="file to write the port to when listening"),
    argument("--poll-ms", type=int, help="pause between looks at the log"),
    argument("--wait-ms", type=int, help="how long a lookup waits for an owner"),
    argument("--workers", type=int, help="processes that answer"),
    argument("--worker", type=int, help=argparse.SUPPRESS),
    argument("--worker-folder", type=Path, help=argparse.SUPPRESS),
    argument(
        "--without-authentication",
        action="store_true",
        help="listen on an address that others can reach, although everybody may ask everything",
    ),
)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT.

    Raises MisuseError, CommandError before it listens.
    """
    given = [(key, getattr(args, name)) for name, key in _SHORT.items()]
    short = [f"{key}={value}" for key, value in given if value is not None]
    config = load_settings(args.config or None, [*args.set, *short])
    lookup = config.lookup
    is_guarded = lookup.authentication != "none" or is_loopback(lookup.host)
    if not is_guarded and not args.without_authentication:
        raise MisuseError(
            f"the lookup service does not listen on {lookup.host}",
            why="others could reach it there, and it has no authentication",
            next_step="use --host 127.0.0.1, set lookup.authentication, or add "
            "--without-authentication if that is meant",
        )
    log_json_lines(is_otel=config.telemetry.otel_logs)
    if lookup.workers > 1 and args.worker is None:
        return _run_workers(args, lookup)
    return _serve(args, config)


def _run_workers(args: argparse.Namespace, lookup: LookupConfig) -> int:
    """Keep workers running until SIGTERM or SIGINT, on a port that is held meanwhile."""
    stop, supervisor = threading.Event(), Supervisor()
    folder = str(private_directory("ballast-metrics"))
    with _bound(lookup, is_shared=True) as holder:
        port = holder.getsockname()[1]
        on_signals(stop.set)
        _write_port(args.port_file, port)
        _log("serving", host=lookup.host, port=port, workers=lookup.workers)
        words = (*args.words, "--port", str(port), "--worker-folder", folder, "--worker")
        try:
            for worker in range(lookup.workers):
                spec = ProcessSpec(
                    name=f"serve_lookup-{worker}",
                    command=(sys.executable, "-m", "jobs.cli", "serve", *words, str(worker)),
                    log_path=Path("/dev/stderr"),
                    environment={"PYTHONPATH": str(_ROOT)},
                    grace_ms=lookup.stop_delay_ms + _GRACE_MS,
                )
                supervisor.start(spec)
            while not stop.wait(_POLL_S):
                for event in supervisor.watch():
                    note(f"{event.name} {event.what} (exit code {event.exit_code})")
        finally:
            supervisor.stop_all()
            if args.port_file:
                args.port_file.unlink(missing_ok=True)
    _log("stopped", port=port)
    return Exit.DONE


def _serve(args: argparse.Namespace, config: Config) -> int:
    block_pandas()
    lookup = config.lookup
    tls = ServerTls(lookup) if lookup.certificate_file else None
    listener = _bound(lookup, is_shared=args.worker is not None, backlog=_BACKLOG)
    port = listener.getsockname()[1]
    # The event loop must get the interpreter back quickly while a load or a commit is parsed.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    service = start_service(config, args.tables, args.cluster, bootstrap=args.bootstrap)
    if tls is not None:
        service.run_beside(tls.keep_up)
    if args.worker_folder is not None:  # each worker answers with the metrics of all
        app = service.app
        app.shared = SharedMetrics(args.worker_folder, args.worker, app.metrics.text)
        service.run_beside(app.shared.keep_up)
    server = Server(service, lookup, tls)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    port_file = None if args.worker is not None else args.port_file
    _write_port(port_file, port)
    _log("serving", host=lookup.host, port=port, tables=str(args.tables), cluster=args.cluster)
    if lookup.authentication != "none" and tls is None and not is_loopback(lookup.host):
        _log("tokens_in_the_clear", advice="set lookup.certificate_file, or serve behind TLS")
    try:
        server.run(sockets=[listener])
    finally:
        service.stop()
        if port_file:
            port_file.unlink(missing_ok=True)
    _log("stopped", port=port)
    return Exit.DONE


class Server(uvicorn.Server):
    """HTTP server.

    After a signal /health answers 503, and the server stops lookup.stop_delay_ms later: it ends
    the streams of watchers and answers waiting lookups, within 2 s.
    """

    def __init__(self, service: Service, lookup: LookupConfig, tls: ServerTls | None) -> None:
        options: dict[str, Any] = {}
        bounds = {
            "bounds": Bounds.of(lookup, _open_files_max()),
            "account": service.account,
        }
        if tls is not None:
            context = tls.context
            options["ssl_context_factory"] = lambda *_: context
        super().__init__(
            uvicorn.Config(
                service.app,
                http=type("ServiceProtocol", (BoundedProtocol,), bounds),
                ws="none",
                loop="auto",  # uvloop where there is one
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_STOP_TIMEOUT_S,
                **options,
            )
        )
        self._service = service
        self._delay_s = lookup.stop_delay_ms / 1000
        self._heard: list[int] = []
        self._end_s = 0.0

    async def on_tick(self, counter: int) -> bool:
        """End overdue connections once a second, and the service after its delay.

        Called ten times a second.
        """
        now_s = asyncio.get_running_loop().time()
        if not counter % _TICKS_PER_S:
            for connection in tuple(self.server_state.connections):
                cast("BoundedProtocol", connection).check_deadlines(now_s)
        if self._heard:
            self._stop(now_s)
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle SIGTERM or SIGINT; a second one ends at once.

        A signal handler, so without any lock.
        """
        if self.should_exit:
            super().handle_exit(sig, frame)
        else:
            self._heard.append(sig)

    def _stop(self, now_s: float) -> None:
        if not self._service.app.is_stopping:
            self._service.app.is_stopping = True  # health says so from now on
            self._end_s = now_s + self._delay_s
        if now_s >= self._end_s or len(self._heard) > 1:
            self._service.end_waits()
            super().handle_exit(self._heard[-1], None)


def _open_files_max() -> int:
    """Raise the limit of open files and sockets to its maximum and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def _bound(lookup: LookupConfig, *, is_shared: bool, backlog: int = 0) -> socket.socket:
    """Return a socket that has the port, with other workers if it is shared.

    backlog: clients that may wait before the server is up, 0 = it does not listen.
    """
    family = socket.AF_INET6 if ":" in lookup.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, is_shared)
    try:
        made.bind((lookup.host, lookup.port))
        if backlog:
            made.listen(backlog)
    except OSError as error:
        made.close()
        raise CommandError(
            f"the lookup service can't listen on {lookup.host} port {lookup.port}",
            why=f"{error.strerror or error}",
            next_step="choose another with --port (0 takes any free one), or end what uses it",
        ) from error
    return made


def _write_port(path: Path | None, port: int) -> None:
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, f"{port}\n", is_durable=False)


def _log(event: str, **fields: object) -> None:
    logger.info(event, extra={"fields": fields})


def main(argv: Sequence[str] | None = None) -> int:
    """As the verb `serve`."""
    parser = Parser(prog="serve_lookup", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_arguments(parser)
    words = list(sys.argv[1:] if argv is None else argv)
    parser.set_defaults(words=words)
    return run_process(parser, run, words)


if __name__ == "__main__":
    sys.exit(main())
