"""The commands that a local run sends: its namespaces.

Decides their names and hash functions: every second one is hashed with murmur3_32, so that both are
always in use.
"""

from collections.abc import Sequence

from jobs.adapters.kafka.clients import KafkaAddress, Sender
from jobs.adapters.kafka.command_client import new_command
from jobs.console import CommandError
from jobs.local.layout import CLUSTER, Size
from lbcore.model.hashing import HashFunction
from lbcore.sim.load.load import NamespaceLoad
from lbcore.wire.format import format_message
from lbcore.wire.kinds.namespace_commands import CreateNamespace
from lbcore.wire.messages import Command

_SEND_TIMEOUT_MS = 20_000
_COMMAND_TIMEOUT_MS = 600_000  # the job may have to be started first


def namespaces_of(size: Size) -> tuple[NamespaceLoad, ...]:
    """The run's namespaces: name, hash function, number of bundles."""
    functions = (HashFunction.CRC32, HashFunction.MURMUR3_32)
    return tuple(
        NamespaceLoad(
            name=f"demo/{functions[index % 2].value.replace('_', '-')}-{index + 1}",
            hash_function=functions[index % 2],
            bundles=size.bundles_of(index),
        )
        for index in range(size.namespaces)
    )


def create_commands(namespaces: Sequence[NamespaceLoad]) -> tuple[Command, ...]:
    """One command a namespace, always with the same id: repeating it changes nothing."""
    return tuple(
        new_command(
            CLUSTER,
            CreateNamespace(
                namespace=namespace.name,
                hash=namespace.hash_function,
                bundles=namespace.bundles,
            ),
            command_id=f"run-local/create/{namespace.name}",
            principal="run-local",
            timeout_ms=_COMMAND_TIMEOUT_MS,
        )
        for namespace in namespaces
    )


def send_commands(address: KafkaAddress, commands: Sequence[Command]) -> None:
    """Send them and wait until Kafka has them; raises CommandError otherwise."""
    sender = Sender(address, "run-local")
    try:
        for command in commands:
            topic, key, value = format_message(command)
            sender.send(topic, key.decode(), value)
        is_sent = sender.flush(_SEND_TIMEOUT_MS) and sender.not_delivered == 0
    finally:
        sender.close()
    if not is_sent:
        raise CommandError(
            "the commands that create the namespaces were not delivered",
            why=f"Kafka at {address.bootstrap} did not acknowledge them in {_SEND_TIMEOUT_MS} ms",
            next_step="read the logs of Kafka in the state folder, then run the same command again",
        )
