"""Runs one broker's agent around a service written in Python, until it is told to stop.

Decides nothing: it finds the service's callbacks, connects, and waits. SIGTERM or SIGINT asks for
the bundles to be moved away first; a second one ends at once. `docs/agent.md` shows a service.
Source: ours.
"""

import argparse
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from secrets import token_hex

from jobs import VERSION
from jobs.adapters.json_log import log_json_lines
from jobs.adapters.kafka_settings import kafka_address
from jobs.adapters.settings import load_settings
from jobs.agent import Agent, Callbacks, Identity, Options
from jobs.console import CommandError, Exit, MisuseError, complain, note
from lbcore.config.tree import Config

_POLL_MS = 500
_URLS = ("web-service-url", "web-service-url-tls", "pulsar-service-url", "pulsar-service-url-tls")


def main(argv: Sequence[str] | None = None) -> int:
    """Run until stopped; 0 = every bundle was handed on, 1 = ended without."""
    args = parser().parse_args(argv)
    log_json_lines()
    try:
        return run(args)
    except CommandError as error:
        complain(error, as_json=False)
        return error.exit_code


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="run_agent", description=__doc__)
    made.add_argument(
        "--service",
        required=True,
        metavar="MODULE:FUNCTION",
        help="a function without arguments that returns the service's jobs.agent.Callbacks",
    )
    made.add_argument("--cluster", required=True, help="the cluster that the broker belongs to")
    made.add_argument("--broker", required=True, help="the broker's name, e.g. host:port")
    for url in _URLS:
        made.add_argument(f"--{url}", default="", metavar="URL", help="what lookups answer with")
    made.add_argument("--failure-domain", default="", help="label: rack, zone and the like")
    made.add_argument("--capacity", type=float, default=1.0, help="label: 1.0 = like the others")
    made.add_argument("--threads", type=int, default=8, help="callbacks at once")
    made.add_argument("--bootstrap", default="", help="Kafka's host:port, if not from --config")
    made.add_argument("--config", action="append", default=[], help="overlay or file (repeat)")
    made.add_argument("--set", action="append", default=[], help="section.name=value (repeat)")
    return made


def run(args: argparse.Namespace) -> int:
    """Start the agent, wait for a signal, stop in order."""
    config = load_settings(args.config or None, args.set)
    options = options_of(config.for_cluster(args.cluster), args.threads)
    callbacks = find_service(args.service)()
    agent = Agent(identity_of(args), kafka_address(config, args.bootstrap), callbacks, options)
    stops = _Stops(agent)
    agent.start()
    note(f"the agent of {args.broker} runs")
    while not agent.wait(_POLL_MS) and not stops.is_urgent:
        pass
    agent.close()
    if stops.is_urgent:
        note(f"{args.broker} ended at once; its bundles are taken over when it is missed")
    return Exit.FAILED if stops.is_urgent else Exit.DONE


def options_of(config: Config, threads: int) -> Options:
    """How the agent of a cluster behaves under a configuration."""
    return Options(
        agent=config.agent,
        signals=config.signals,
        fencing=config.ownership.fencing,
        threads=threads,
    )


class _Stops:
    """Signals: the first asks the agent to stop, another one does not wait for it."""

    def __init__(self, agent: Agent) -> None:
        self.is_urgent = False
        self._is_asked = False
        self._agent = agent
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        if self._is_asked:
            self.is_urgent = True
            return
        self._is_asked = True
        self._agent.ask_to_stop()


def find_service(name: str) -> Callable[[], Callbacks]:
    """The function that MODULE:FUNCTION names; raises MisuseError when there is none."""
    module_name, _, function_name = name.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise MisuseError(
            f"the service {name} can't be loaded",
            why=f"{type(error).__name__}: {error}",
            next_step="name it as MODULE:FUNCTION, with the module's folder on PYTHONPATH",
        ) from error
    made: Callable[[], Callbacks] = found
    return made


def identity_of(args: argparse.Namespace) -> Identity:
    """Who the agent is: an incarnation of the broker that nobody has had before."""
    return Identity(
        cluster=args.cluster,
        broker=args.broker,
        incarnation=f"{time.time_ns() // 1_000_000}-{os.getpid()}-{token_hex(4)}",
        web_service_url=args.web_service_url,
        web_service_url_tls=args.web_service_url_tls,
        pulsar_service_url=args.pulsar_service_url,
        pulsar_service_url_tls=args.pulsar_service_url_tls,
        broker_version=VERSION,
        failure_domain=args.failure_domain,
        capacity=args.capacity,
    )


if __name__ == "__main__":
    sys.exit(main())
