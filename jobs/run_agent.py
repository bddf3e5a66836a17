"""Runs one broker's agent around a service written in Python.

The first SIGTERM or SIGINT asks the balancer to move the broker's bundles away and waits for it,
agent.shutdown_timeout_ms and a sixth of it at most; a later one ends at once. Exit codes: 0
every bundle was handed on, 1 ended without, 2 misuse. It finds the service's callbacks, connects,
and waits. Example, with the service of `docs/agent.md`:

ballast run-agent --service word_store:make --cluster local --broker store-1
    --web-service-url http://127.0.0.1:8081 --bootstrap 127.0.0.1:9092
"""

import argparse
import importlib
import os
import re
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial

from jobs import VERSION
from jobs.adapters.kafka.connection import kafka_address
from jobs.adapters.processes.json_log import log_json_lines
from jobs.adapters.processes.settings import load_settings
from jobs.adapters.processes.signals import on_signals
from jobs.agent import Agent, Callbacks, Identity, Options, failure_of, new_incarnation
from jobs.console import CommandError, Exit, MisuseError, note
from jobs.parser import (
    Parser,
    add_settings_options,
    argument,
    arguments,
    group,
    positive_number,
    run_process,
    whole_number,
)
from jobs.telemetry import exposition
from lbcore.wire.fields import NAME_PATTERN

_POLL_MS = 500
_SHOWN = 3
_SAME_S = 1.0  # wrappers such as timeout pass a signal on that the whole group has had already
_URLS = {
    "web-service-url": "for HTTP clients",
    "web-service-url-tls": "for HTTPS clients",
    "pulsar-service-url": "for clients of another protocol",
    "pulsar-service-url-tls": "for those over TLS",
}


def main(argv: Sequence[str] | None = None) -> int:
    """As the verb `run-agent`."""
    made = Parser(
        prog="run_agent",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(made)
    return run_process(made, run, argv)


add_arguments = arguments(
    argument(
        "--service",
        required=True,
        metavar="MODULE:FUNCTION",
        help="a function without arguments that returns the service's jobs.agent.Callbacks; the "
        "module is looked for in the current folder and on PYTHONPATH",
    ),
    argument("--threads", type=whole_number, default=8, help="callbacks at once (8)"),
    exposition.add_arguments,
    group(
        "the broker",
        argument("--cluster", required=True, help="the cluster that it belongs to"),
        argument("--broker", required=True, help="its name, e.g. host:port; keep it"),
        *(
            argument(f"--{name}", default="", metavar="URL", help=f"in lookups: {who}")
            for name, who in _URLS.items()
        ),
        argument("--failure-domain", default="", help="label: rack, zone and the like"),
        argument(
            "--capacity",
            type=positive_number,
            default=1.0,
            help="label: 2.0 = twice as strong as most (1.0)",
        ),
    ),
    group(
        "Kafka and settings",
        argument("--bootstrap", default="", help="Kafka's host:port, if not from --conf"),
        partial(
            add_settings_options,
            help_of_set="section.name=value (repeat); they must be those of the job",
        ),
    ),
)


def run(args: argparse.Namespace) -> int:
    """Start the agent, wait for a signal, stop in order."""
    log_json_lines()
    identity = identity_of(args)
    config = load_settings(args.config or None, args.set).for_cluster(args.cluster)
    log_json_lines(is_otel=config.telemetry.otel_logs)
    address = kafka_address(config, args.bootstrap)
    options = Options(
        agent=config.agent,
        signals=config.signals,
        fencing=config.ownership.fencing,
        threads=args.threads,
    )
    agent = Agent(identity, address, make_callbacks(args.service), options)
    is_urgent = _stop_on_signals(agent)
    shown = exposition.MetricsPort(config.telemetry.host, args)
    shown.show(agent.metrics.registry)
    agent.start()
    note(f"the agent of {args.broker} runs")
    while not agent.wait(_POLL_MS) and not is_urgent.is_set():
        pass
    agent.close()
    shown.stop()
    if is_urgent.is_set():
        note(f"{args.broker} ended at once; its bundles are taken over when it is missed")
        return Exit.FAILED
    if agent.left:
        names = ", ".join(agent.left[:_SHOWN]) + (", ..." if len(agent.left) > _SHOWN else "")
        raise CommandError(
            f"{args.broker} ended while {len(agent.left)} of its bundles had no new owner: {names}",
            why="the balancer did not move them within agent.shutdown_timeout_ms ="
            f" {config.agent.shutdown_timeout_ms}: it is away, held back, or there is no other"
            " broker",
            next_step="nothing for these bundles: they were given back, and get an owner as soon as"
            " one can be had. `ballast status` says what holds the balancer",
        )
    note(f"{args.broker} has handed on every bundle and ended")
    return Exit.DONE


def _stop_on_signals(agent: Agent) -> threading.Event:
    """Ask the agent to stop at the first signal; set the event at one a second later."""
    is_urgent = threading.Event()
    asked_s: list[float] = []

    def act() -> None:
        asked_s.append(time.monotonic())
        if len(asked_s) == 1:
            agent.ask_to_stop()
        elif asked_s[-1] - asked_s[0] > _SAME_S:
            is_urgent.set()

    on_signals(act)
    return is_urgent


def make_callbacks(service: str) -> Callbacks:
    """Call the function that MODULE:FUNCTION names and return its callbacks.

    Raises MisuseError when there is none, CommandError when it fails.
    """
    module_name, _, function_name = service.partition(":")
    here = os.getcwd()  # noqa: PTH109 sys.path wants text
    if here not in sys.path and "" not in sys.path:  # the command `ballast` doesn't look there
        sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (Exception, SystemExit) as error:  # whatever the module does when it is imported
        raise MisuseError(
            f"the service {service} can't be loaded",
            why=failure_of(error),
            next_step="name it as MODULE:FUNCTION, e.g. word_store:make for the function make of"
            " word_store.py, and start this in the module's folder or put it on PYTHONPATH",
        ) from error
    try:
        made: object = function()
    except (Exception, SystemExit) as error:
        raise CommandError(
            f"the service {service} could not be started",
            why=failure_of(error),
            next_step="correct what it needs (ports, files, variables), then start it again",
        ) from error
    if not isinstance(made, Callbacks):
        raise MisuseError(
            f"the service {service} can't be used",
            why=f"it returned {type(made).__name__}, not jobs.agent.Callbacks",
            next_step="return Callbacks(load=..., open=..., close=..., split=...) from it, as"
            " docs/agent.md shows",
        )
    return made


def identity_of(args: argparse.Namespace) -> Identity:
    """Return the agent's identity: a new incarnation of the broker.

    Raises MisuseError for a name that no message may carry.
    """
    for option, name in (("cluster", args.cluster), ("broker", args.broker)):
        if not re.fullmatch(NAME_PATTERN, name):
            raise MisuseError(
                f"--{option} {name!r} can't be used",
                why="names have no blank, no slash and no control character, and no leading ~",
                next_step="take another one, e.g. the broker's host:port",
            )
    urls = {name: getattr(args, name) for name in (url.replace("-", "_") for url in _URLS)}
    if not any(urls.values()):
        note(f"{args.broker} has no URL: lookups of its topics can't say where it is (--help)")
    return Identity(
        cluster=args.cluster,
        broker=args.broker,
        incarnation=new_incarnation(),
        **urls,
        broker_version=VERSION,
        failure_domain=args.failure_domain,
        capacity=args.capacity,
    )


if __name__ == "__main__":
    sys.exit(main())
