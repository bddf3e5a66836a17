"""The process that answers "who serves this topic?" over HTTP, from the Delta tables alone.

Decides where it listens and when it ends. It needs neither Spark nor Kafka: when they are down, it
goes on answering and says how old its answers are. Run one or many; each follows the tables itself.
Source: ours.
"""

import argparse
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from jobs.adapters.delta_follower import DeltaFollower
from jobs.adapters.json_log import log_json_lines
from jobs.adapters.lookup_http import LookupApp
from jobs.adapters.settings import load_settings
from jobs.admin.all_routes import ROUTES
from jobs.admin.app import AdminApp
from jobs.admin.context import AdminContext
from jobs.admin.views import TableViews
from jobs.console import CommandError, Exit, MisuseError, complain

logger = logging.getLogger(__name__)

_BACKLOG = 2048
_KEEP_ALIVE_S = 60
_STOP_TIMEOUT_S = 2
_SWITCH_INTERVAL_S = 0.000_5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the service can be told."""
    parser.add_argument("--tables", type=Path, required=True, help="folder of the Delta tables")
    parser.add_argument("--cluster", required=True, help="cluster whose bundles are looked up")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8080, help="port to listen on, 0 = any free")
    parser.add_argument("--port-file", type=Path, help="file to write the port to when listening")
    parser.add_argument("--poll-ms", type=int, default=200, help="pause between looks at the log")
    parser.add_argument(
        "--wait-ms", type=int, default=2_000, help="how long a lookup waits for an owner"
    )
    parser.add_argument(
        "--without-authentication",
        action="store_true",
        help="listen on an address that others can reach, although everybody may ask everything",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; raises MisuseError, CommandError before it listens."""
    check_address(args.host, is_open=args.without_authentication)
    log_json_lines()
    listener = _listen(args.host, args.port)
    port = listener.getsockname()[1]
    following = _Following.start(args)
    server = _server(following.app)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _stop(server))
    _write_port(args.port_file, port)
    _log("serving", host=args.host, port=port, tables=str(args.tables), cluster=args.cluster)
    try:
        server.run(sockets=[listener])
    finally:
        following.stop()
        if args.port_file:
            args.port_file.unlink(missing_ok=True)
    _log("stopped", port=port)
    return Exit.DONE


def check_address(host: str, *, is_open: bool) -> None:
    """Raises MisuseError for an address beyond this machine, unless it is meant to be open."""
    if is_open or host == "localhost":
        return
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise MisuseError(
            f"the lookup service does not listen on {host}",
            why="others could reach it there, and it has no authentication",
            next_step="use --host 127.0.0.1, or add --without-authentication if that is meant",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Following:
    """The follower and the views in their threads, and the application over them."""

    app: LookupApp
    threads: tuple[threading.Thread, ...]
    stopped: threading.Event

    @classmethod
    def start(cls, args: argparse.Namespace) -> "_Following":
        """Begin to load the tables at once, while the server is still starting."""
        # The event loop must get the interpreter back quickly while a load or a commit is parsed.
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        stopped = threading.Event()
        follower = DeltaFollower(args.tables, args.cluster)
        views = TableViews(args.tables, args.cluster)
        context = AdminContext(
            cluster=args.cluster, follower=follower, views=views, config=load_settings()
        )
        app = LookupApp(follower, wait_ms=args.wait_ms, others=AdminApp(context, ROUTES))
        follower.on_change(app.notice_change)
        threads = (
            threading.Thread(
                target=follower.run, args=(stopped,), kwargs={"poll_ms": args.poll_ms}, daemon=True
            ),
            threading.Thread(target=views.run, args=(stopped,), daemon=True),
        )
        for thread in threads:
            thread.start()
        return cls(app=app, threads=threads, stopped=stopped)

    def stop(self) -> None:
        """End the threads; what they read at the moment is finished first."""
        self.stopped.set()
        for thread in self.threads:
            thread.join(_STOP_TIMEOUT_S)


def _server(app: LookupApp) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        http="httptools",
        loop="auto",  # uvloop where there is one
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_STOP_TIMEOUT_S,
    )
    return uvicorn.Server(config)


def _stop(server: uvicorn.Server) -> None:
    server.should_exit = True


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)  # who comes before the server is up waits, and is served
    except OSError as error:
        listener.close()
        raise CommandError(
            f"the lookup service can't listen on {host} port {port}",
            why=f"{error.strerror or error}",
            next_step="choose another with --port (0 takes any free one), or end what uses it",
        ) from error
    listener.set_inheritable(True)
    return listener


def _write_port(path: Path | None, port: int) -> None:
    """Whole or not at all: a reader never sees half a number."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(f"{port}\n", encoding="ascii")
    part.replace(path)


def _log(event: str, **fields: object) -> None:
    logger.info(event, extra={"fields": fields})


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="serve_lookup", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_arguments(parser)
    args = parser.parse_args(argv)
    try:
        return run(args)
    except CommandError as error:
        complain(error, as_json=False)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
