"""Balance a real Pulsar cluster: observe it, take it over, give it back.

`bridge pulsar` runs until it is stopped. It observes only, unless --act is given: then decisions
are carried out through Pulsar's admin interface, as long as Pulsar's own shedding is off. `bridge
give-back` switches that on again and makes Ballast observe only; `bridge rolling-restart` restarts
brokers one after the other. `bridge verify` checks Pulsar's own bundle channel, `bridge
specification` prints its protocol. docs/pulsar.md and docs/bundle-channel.md have the steps.
"""

import argparse
import logging
from contextlib import suppress
from functools import partial
from types import ModuleType

from jobs.adapters.kafka.clients import Sender
from jobs.adapters.kafka.command_client import new_command
from jobs.adapters.processes.json_log import log_json_lines
from jobs.adapters.processes.signals import on_signals
from jobs.bridge import rolling_restart, verify
from jobs.bridge.actuator import RequestLimits
from jobs.bridge.admin_address import PulsarAdminError
from jobs.bridge.attachment import add_access_options, add_network_option, admin_at
from jobs.bridge.bridge import (
    OBSERVE_ONLY,
    Bridge,
    BridgeOptions,
    active_brokers,
    brokers_settings,
    only_cluster,
    require_brokers_apart,
    switch_shedding,
)
from jobs.bridge.collector import PollOptions
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.console import CommandError, Exit, answer
from jobs.operating.connection_options import STACK_OPTIONS, connection_options
from jobs.parser import Argument, action, actions, argument, carry_out, either, group, whole_number
from jobs.telemetry import exposition
from lbcore.bridge.acting import SHEDDING, reason_not_to_act
from lbcore.config.cluster import EXTERNAL
from lbcore.ownership.specification import mermaid_text, tla_text
from lbcore.ownership.states import BALLAST, RULES
from lbcore.wire.format import format_message
from lbcore.wire.kinds.balancing_commands import SetConfig

_FLUSH_MS = 15_000
_FORMATS = {"tla": tla_text, "mermaid": lambda _: mermaid_text()}


def _run(args: argparse.Namespace) -> int:
    log_json_lines()
    where = connection_options(args)
    config = where.config.for_cluster(where.cluster)
    log_json_lines(is_otel=config.telemetry.otel_logs)
    if config.cluster.authority != EXTERNAL:
        raise CommandError(
            f"the settings have Ballast as the authority of the cluster {where.cluster}",
            why="a Pulsar cluster behind a bridge owns its bundles itself",
            next_step="start the bridge and the job with the same overlay: --conf pulsar",
        )
    admin = admin_at(args.admin_url, args)
    cluster = args.pulsar_cluster or only_cluster(admin)
    with suppress(PulsarAdminError):  # a cluster that is away may come back
        require_brokers_apart(admin, cluster, admin.brokers(cluster))
    if args.switch_shedding_off:
        switch_shedding(admin, is_on=False)
    elif args.act and (reason := _reason_not_to_act(admin, cluster)):
        raise CommandError(
            "the bridge does not act",
            why=f"{reason}; two balancers would move bundles back and forth",
            next_step="add --switch-shedding-off, or start with --observe-only",
        )
    options = BridgeOptions(
        cluster=where.cluster,
        pulsar_cluster=cluster,
        acts=args.act,
        polling=PollOptions(
            look_ms=args.look_ms,
            load_ms=args.load_ms,
            namespaces_ms=args.namespaces_ms,
            network_bytes_per_s=args.network_mbytes * 1e6,
            quiet_ms=args.quiet_ms,
        ),
        limits=RequestLimits(in_flight=args.max_in_flight, per_minute=args.max_per_minute),
    )
    bridge = Bridge(admin, where.address(), config, options)
    on_signals(bridge.stop)
    shown = exposition.MetricsPort(config.telemetry.host, args)
    shown.show(bridge.metrics.registry)
    logging.getLogger(__name__).info("started", extra={"fields": {"acts": args.act}})
    bridge.run()
    shown.stop()
    return Exit.DONE


def _specify(args: argparse.Namespace) -> int:
    text = _FORMATS[args.format](RULES[args.rules])
    answer(args, {"format": args.format, "text": text}, text.splitlines())
    return Exit.DONE


def _give_back(args: argparse.Namespace) -> int:
    where = connection_options(args)
    switch_shedding(admin_at(args.admin_url, args), is_on=True)
    # never expires
    command = new_command(where.cluster, SetConfig(values={OBSERVE_ONLY: True}), timeout_ms=0)
    topic, key, value = format_message(command)
    sender = Sender(where.address(), "bridge-give-back")
    sender.send(topic, key.decode(), value)
    is_sent = sender.flush(_FLUSH_MS) and sender.not_delivered == 0
    sender.close()
    if not is_sent:
        raise CommandError(
            "Pulsar balances itself again, but Ballast was not told",
            why="Kafka did not take the command",
            next_step="a bridge that runs sees it by itself within 15 s and moves nothing more",
        )
    text = f"{SHEDDING}=true: Pulsar balances itself again; Ballast is told to observe only"
    answer(args, {"shedding": True, "observe_only": True}, text)
    return Exit.DONE


def _reason_not_to_act(admin: PulsarAdmin, cluster: str) -> str:
    brokers = active_brokers(admin, cluster)
    return reason_not_to_act(brokers_settings(admin, cluster, brokers)[0])


_ADMIN = group(
    "Pulsar",
    argument("--admin-url", required=True, metavar="URL", help="web service of any broker"),
    add_access_options,
)


def _number(option: str, default: int, about: str, least: int = 1) -> Argument:
    about = f"{about} (default {default})"
    reads = partial(whole_number, least=least)
    return argument(option, type=reads, default=default, metavar="N", help=about)


def _from(module: ModuleType, name: str) -> Argument:
    """An action with its own module, whose docstring describes it."""
    about = module.__doc__ or ""
    return action(name, about.partition("\n")[0], module.run, module.add_options, about=about)


add_arguments = actions(
    action(
        "pulsar",
        "observe a Pulsar cluster, or act on it with --act",
        _run,
        _ADMIN,
        either(
            argument(
                "--observe-only",
                action="store_true",
                help="decide and explain, move nothing (default)",
            ),
            argument("--act", action="store_true", help="carry decisions out"),
        ),
        argument("--switch-shedding-off", action="store_true", help=f"set {SHEDDING}=false first"),
        _number("--look-ms", 5_000, "time between two looks at who owns what"),
        _number(
            "--quiet-ms",
            10_000,
            "time without a look after a broker came or went, modular manager",
            least=0,
        ),
        _number("--load-ms", 10_000, "time between two looks at a broker's load"),
        _number("--namespaces-ms", 30_000, "time between two looks at all namespaces and policies"),
        add_network_option,
        _number("--max-in-flight", 4, "unloads and splits at once"),
        _number("--max-per-minute", 60, "unloads and splits in a minute"),
        exposition.add_arguments,
        STACK_OPTIONS,
    ),
    action("give-back", "let Pulsar balance itself again", _give_back, _ADMIN, STACK_OPTIONS),
    _from(rolling_restart, "rolling-restart"),
    _from(verify, "verify"),
    action(
        "specification",
        "the bundle channel as TLA+ or Mermaid",
        _specify,
        argument("--format", choices=sorted(_FORMATS), default="tla"),
        argument(
            "--rules", choices=sorted(RULES), default=BALLAST.name, help="of the resolver, in TLA+"
        ),
    ),
    metavar="WHAT",
)
run = carry_out
