"""The simulated fleet: brokers that report load and serve bundles, on real Kafka.

Brokers are called broker-1, broker-2, ... Stops at SIGTERM or SIGINT, without a word to anybody, as
a power cut would. `make run` starts one; beside a job of your own it is

python -m jobs.run_fleet --bootstrap 127.0.0.1:9092 --state-dir var/fleet --brokers 6
    --namespace public/default:crc32:64 --load zipf

for a namespace that the job has or gets. It reads the command line, connects, and lets `jobs.fleet`
run.
"""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from kafka.errors import KafkaError

from jobs.adapters.kafka.clients import Sender, Tail
from jobs.adapters.kafka.connection import KafkaWatch, kafka_address
from jobs.adapters.processes.clocks import ForwardClock
from jobs.adapters.processes.settings import load_settings
from jobs.atomic_file import atomic_write
from jobs.console import CommandError, Exit, MisuseError, complain, json_line, say
from jobs.fleet.control import ControlServer
from jobs.fleet.fleet import (
    Fleet,
    FleetContext,
    FleetLoop,
    FleetSettings,
    Timetable,
)
from jobs.parser import Parser, add_settings_options, argument, arguments, group, port_number
from lbcore.config.ownership import FENCING_LEASE, FENCING_TOKEN, AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.model.bundles import HashFunction
from lbcore.sim.load.load import LoadModel, LoadProfile, LoadShape, NamespaceLoad
from lbcore.wire.messages import Topic

_POLL_MS = 200
_CATCH_UP_MS = 120_000
_ENDS_MS = 1_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run until stopped; 0 = stopped in order, 1 = failed with a message."""
    args = parser().parse_args(argv)
    # The loop hands a message to the producer's thread a thousand times a second: with the usual
    # 5 ms each of them may wait that long for the interpreter.
    sys.setswitchinterval(0.000_5)
    for number in (signal.SIGTERM, signal.SIGINT):
        # a power cut waits for nothing either
        signal.signal(number, lambda *_: os._exit(Exit.DONE))
    try:
        run(args)
    except CommandError as error:
        complain(error, as_json=False)
        return int(error.exit_code)


_LOAD = group(
    "load",
    argument(
        "--load",
        choices=[shape.value for shape in LoadShape],
        default=LoadShape.EVEN.value,
        help="its shape (even)",
    ),
    argument(
        "--namespace",
        action="append",
        required=True,
        metavar="TENANT/NS:HASH:BUNDLES",
        help="a namespace to be loaded, e.g. public/default:crc32:500; may be repeated",
    ),
    argument(
        "--topics-per-bundle", type=int, default=5, metavar="N", help="of those it was made with"
    ),
    argument("--speed", type=float, default=1.0, help="of load's time, not of protocols"),
    argument("--seed", type=int, default=2, help="of load, noise and delays"),
    argument("--utilisation", type=float, default=0.45, help="mean cpu, 1.0 = full"),
    argument("--hotspot-period-ms", type=int, default=600_000, help="virtual; 0 = it never moves"),
)


_LEASE_MS = AgentConfig().agent_lease_ms
_BROKERS = group(
    "brokers",
    argument("--brokers", type=int, default=10, metavar="N", help="how many (10)"),
    argument(
        "--capacity", action="append", default=[], metavar="BROKER=X", help="e.g. broker-3=2.0"
    ),
    argument("--heartbeat-interval-ms", type=int, default=3_000, metavar="MS", help="(3000)"),
    argument(
        "--report-interval-ms", type=int, default=10_000, metavar="MS", help="of load (10000)"
    ),
    argument(
        "--bundle-report-interval-ms",
        type=int,
        default=0,
        metavar="MS",
        help="of the bundles' load; 0 = with the broker's (0)",
    ),
    argument(
        "--callback-ms", default="50-300", metavar="MIN-MAX", help="time to open, close or split"
    ),
    argument(
        "--fencing",
        choices=(FENCING_TOKEN, FENCING_LEASE),
        default=FENCING_TOKEN,
        help="as the job's",
    ),
    argument(
        "--agent-lease-ms",
        type=int,
        default=_LEASE_MS,
        metavar="MS",
        help=f"with a lease ({_LEASE_MS})",
    ),
    argument(
        "--topics-per-read",
        type=int,
        default=10,
        help="bundles whose topics a broker reads with its load, 0 = no topic-load messages",
    ),
)
_ARGUMENTS = arguments(
    argument("--bootstrap", required=True, help="Kafka's host:port"),
    argument("--topic-prefix", default="", help="put before every topic's name"),
    add_settings_options,
    argument("--cluster", default="local", help="the cluster that the brokers belong to"),
    argument("--state-dir", type=Path, required=True, help="for the event log and clock"),
    argument("--port", type=port_number, default=0, help="of the control server, 0 = any"),
    argument("--port-file", type=Path, help="written with the port once all is ready"),
    _LOAD,
    _BROKERS,
)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = Parser(
        prog="run_fleet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _ARGUMENTS(made)
    return made


def run(args: argparse.Namespace) -> NoReturn:
    """Connect, catch up with ownership, start the brokers, and work until stopped."""
    settings, model = settings_of(args), model_of(args)
    config = load_settings(args.config, args.set)
    address = replace(kafka_address(config, args.bootstrap), topic_prefix=args.topic_prefix)
    clock = ForwardClock()
    tail = Tail(address, Topic.OWNERSHIP, f"fleet-{args.cluster}-ownership")
    sender = Sender(address, f"fleet-{args.cluster}")
    KafkaWatch(address, f"fleet of {args.cluster}").start()
    args.state_dir.mkdir(parents=True, exist_ok=True)
    # a line is flushed at once
    with (args.state_dir / "fleet-events.jsonl").open("a", buffering=1, encoding="utf-8") as log:
        context = FleetContext(
            settings=settings,
            model=model,
            sender=sender,
            timetable=Timetable(),
            note=lambda event: log.write(json.dumps(event, separators=(",", ":")) + "\n"),
            origin_ms=_origin_ms(args.state_dir, clock.now_ms()),
        )
        loop = FleetLoop(Fleet(context), clock)
        threading.Thread(target=_follow, args=(tail, loop, args), daemon=True).start()
        loop.run()


def _follow(tail: Tail, loop: FleetLoop, args: argparse.Namespace) -> None:
    """In its own thread: read ownership to its end, start everybody, read on."""
    clock = ForwardClock()
    try:
        _catch_up(tail, loop)
        for number in range(1, args.brokers + 1):
            loop.call(lambda fleet, now_ms: fleet.start(f"broker-{number}", now_ms))  # noqa: B023 (called at once)
        server = ControlServer(loop, args.port)
        if args.port_file is not None:
            atomic_write(args.port_file, str(server.port), is_durable=False)
        _say("the fleet is ready", port=server.port)
        asked_ms = 0
        while True:
            _poll_once(tail, loop)
            is_due = clock.now_ms() - asked_ms >= args.heartbeat_interval_ms
            if args.fencing == FENCING_LEASE and is_due:
                asked_ms = clock.now_ms()
                _confirm_end(tail, loop)
    except Exception as error:  # noqa: BLE001 - the outermost of this thread: the loop raises it
        loop.fail(error)


def _confirm_end(tail: Tail, loop: FleetLoop) -> None:
    """Read what is committed by now, then tell all brokers so."""
    asked_ms = loop.call(lambda _, now_ms: now_ms)
    ends = tail.ends(_ENDS_MS)
    while ends is not None and not tail.has_read(ends):
        _poll_once(tail, loop)
    if ends is not None:
        loop.call(lambda fleet, now_ms: fleet.confirm_end(asked_ms, now_ms))


def _poll_once(tail: Tail, loop: FleetLoop) -> None:
    try:
        messages = tail.poll(_POLL_MS)
    except KafkaError as error:
        _say("ownership can't be read now", reason=f"{type(error).__name__}: {error}")
        return
    if messages:
        loop.call(lambda fleet, now_ms: fleet.take_records(messages, now_ms))


def _catch_up(tail: Tail, loop: FleetLoop) -> None:
    clock = ForwardClock()
    deadline_ms = clock.now_ms() + _CATCH_UP_MS
    while not tail.read_to_end(_POLL_MS * 10):
        if clock.now_ms() > deadline_ms:
            raise CommandError(
                "the ownership topic could not be read to its end",
                why=f"Kafka did not give all of it within {_CATCH_UP_MS // 1000} s",
                next_step="check that Kafka is up and not overloaded, then start the fleet again",
            )
        _poll_once(tail, loop)


def settings_of(args: argparse.Namespace) -> FleetSettings:
    """Return the settings of the brokers. Raises MisuseError."""
    interval_ms = args.report_interval_ms
    if args.fencing == FENCING_LEASE and args.agent_lease_ms < 2 * args.heartbeat_interval_ms:
        raise MisuseError(
            f"--agent-lease-ms {args.agent_lease_ms} can't be used",
            why=f"it is less than two heartbeats of {args.heartbeat_interval_ms} ms: brokers would"
            " stop serving in normal operation",
            next_step="take a longer lease, or a shorter --heartbeat-interval-ms",
        )
    return FleetSettings(
        cluster=args.cluster,
        agent=AgentConfig(
            heartbeat_interval_ms=args.heartbeat_interval_ms,
            agent_lease_ms=args.agent_lease_ms,
        ),
        # The rule is "longer ago than": one less makes it the interval itself.
        signals=SignalsConfig(
            report_check_ms=min(SignalsConfig().report_check_ms, interval_ms),
            report_max_interval_ms=interval_ms - 1,
            bundle_report_interval_ms=args.bundle_report_interval_ms,
        ),
        seed=args.seed,
        speed=args.speed,
        callback_ms=_callback_ms(args.callback_ms),
        topics_per_read=args.topics_per_read,
        capacities=_capacities(args.capacity),
        fencing=args.fencing,
    )


def model_of(args: argparse.Namespace) -> LoadModel:
    """The load."""
    profile = LoadProfile(
        shape=LoadShape(args.load),
        brokers=args.brokers,
        seed=args.seed,
        utilisation=args.utilisation,
        topics_per_bundle=args.topics_per_bundle,
        hotspot_period_ms=args.hotspot_period_ms,
    )
    return LoadModel([parse_namespace(text) for text in args.namespace], profile)


def parse_namespace(text: str) -> NamespaceLoad:
    """One --namespace; raises MisuseError when it isn't TENANT/NS:HASH:BUNDLES."""
    try:
        name, function, bundles = text.split(":")
        return NamespaceLoad(name=name, hash_function=HashFunction(function), bundles=int(bundles))
    except ValueError as error:
        raise MisuseError(
            f"--namespace {text} can't be read",
            why=str(error),
            next_step="write it as TENANT/NS:HASH:BUNDLES, e.g. public/default:crc32:500",
        ) from error


def _callback_ms(text: str) -> tuple[int, int]:
    shortest, _, longest = text.partition("-")
    try:
        found = int(shortest), int(longest or shortest)
    except ValueError:
        found = (1, 0)
    if not 0 <= found[0] <= found[1]:
        raise MisuseError(
            f"--callback-ms {text} can't be read",
            why="it is no pair of whole numbers, the smaller one first",
            next_step="write it as MIN-MAX, e.g. 50-300, or as one number",
        )
    return found


def _capacities(texts: Sequence[str]) -> Mapping[str, float]:
    try:
        return {name: float(value) for name, value in (text.split("=") for text in texts)}
    except ValueError as error:
        raise MisuseError(
            f"--capacity {' '.join(texts)} can't be read",
            why=str(error),
            next_step="write each as BROKER=X, e.g. broker-3=2.0",
        ) from error


def _origin_ms(state_dir: Path, now_ms: int) -> int:
    """Return the start of virtual time, ms.

    It is kept, so that load continues after a restart.
    """
    path = state_dir / "load-origin.json"
    if not path.exists():
        atomic_write(path, json.dumps({"origin_ms": now_ms}))
    return int(json.loads(path.read_text())["origin_ms"])


def _say(event: str, **more: object) -> None:
    say(json_line({"pid": os.getpid(), "event": event, **more}))


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # without waiting for what Kafka's clients still want to send
