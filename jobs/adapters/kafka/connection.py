"""Connections to Kafka: settings, start offsets, reachability, lost topics."""

import contextlib
import logging
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.cluster import collect_hosts
from kafka.errors import KafkaError, UnknownTopicOrPartitionError

from jobs.adapters.kafka.clients import PASSWORD, KafkaAddress, SecretToken, open_client
from jobs.adapters.processes.settings import read_secret
from jobs.console import CommandError, MisuseError
from lbcore.config.pipeline import KafkaConfig
from lbcore.config.tree import Config


def kafka_address(
    config: Config, bootstrap: str = "", environment: Mapping[str, str] | None = None
) -> KafkaAddress:
    """Return the clients' address; bootstrap wins over kafka.bootstrap_servers.

    Raises MisuseError without a readable one, CommandError without a password that is needed.
    """
    servers = bootstrap or ",".join(config.kafka.bootstrap_servers)
    if not servers:
        raise MisuseError(
            "Kafka's address is not known",
            why="neither --bootstrap nor kafka.bootstrap_servers names a broker",
            next_step="add --bootstrap host:port, or kafka.bootstrap_servers to an overlay",
        )
    try:
        collect_hosts(servers)
    except ValueError:
        raise MisuseError(
            "Kafka's address can't be read",
            why=f"{servers} is no list of host:port",
            next_step="write --bootstrap or kafka.bootstrap_servers as host:port,host:port",
        ) from None
    return KafkaAddress(
        bootstrap=servers,
        topic_prefix=config.pipeline.topic_prefix,
        security=_security(config.kafka, environment),
    )


def _security(kafka: KafkaConfig, environment: Mapping[str, str] | None) -> Mapping[str, Any]:
    options: dict[str, Any] = {"security_protocol": kafka.security_protocol}
    files = {
        "ssl_cafile": kafka.ca_file,
        "ssl_certfile": kafka.certificate_file,
        "ssl_keyfile": kafka.key_file,
    }
    if kafka.security_protocol.endswith("SSL"):
        options.update({key: path for key, path in files.items() if path})
    if not kafka.security_protocol.startswith("SASL"):
        return options
    password = read_secret(PASSWORD, environment)
    if not password:
        raise CommandError(
            "Kafka's password is missing",
            why=f"kafka.security_protocol is {kafka.security_protocol} and {PASSWORD} is not set",
            next_step=f"set {PASSWORD}, or {PASSWORD}_FILE to a file that holds it",
        )
    options["sasl_mechanism"] = kafka.sasl_mechanism
    if kafka.sasl_mechanism == "OAUTHBEARER":
        given = os.environ if environment is None else environment
        names = [name for name in (PASSWORD, f"{PASSWORD}_FILE") if name in given]
        token = SecretToken({name: given[name] for name in names})
        return {**options, "sasl_oauth_token_provider": token}
    return {
        **options,
        "sasl_plain_username": kafka.sasl_username,
        "sasl_plain_password": password,
    }


logger = logging.getLogger(__name__)

_API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_TIMEOUT_S = 1.0
_CHECK_S = 2.0


def _ask_kafka(host: str, port: int, *, is_encrypted: bool) -> str:
    """Send an ApiVersions request; return why there is no answer, "" = one."""
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((host, port), _TIMEOUT_S))
            if is_encrypted:
                context = ssl.create_default_context()  # a probe: it sends no secret
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                connection = stack.enter_context(context.wrap_socket(connection))
            connection.sendall(_API_VERSIONS_REQUEST)
            return "" if connection.recv(8) else "the connection was closed"
    except TimeoutError:
        return f"no answer within {_TIMEOUT_S:.0f} s"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)


def kafka_trouble(address: KafkaAddress) -> str:
    """Return `Kafka does not answer at HOST:PORT (why)`; "" when a broker answers.

    It is asked for its ApiVersions, as every client does first.
    Takes a second for each named broker that hangs.
    """
    is_encrypted = "SSL" in str(address.security.get("security_protocol", ""))
    reasons = []
    for host, port, _ in collect_hosts(address.bootstrap, randomize=False):
        reason = _ask_kafka(host, port, is_encrypted=is_encrypted)
        if not reason:
            return ""
        reasons.append(reason)
    return f"Kafka does not answer at {address.bootstrap} ({reasons[0]})"


class KafkaWatch:
    """Check of Kafka every two seconds, in a thread.

    It logs when answers end and when they are back. trouble: `kafka_trouble` of the last check.
    whose: the process that asks, for the log.
    """

    def __init__(
        self, address: KafkaAddress, whose: str, tell: Callable[[str], None] = logger.warning
    ) -> None:
        """tell: called with a line when the result changes."""
        self.address, self.trouble = address, ""
        self._whose, self._tell = whose, tell
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="kafka-watch")

    def start(self) -> "KafkaWatch":
        """Begin to check."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop checking."""
        self._is_ended.set()

    def _run(self) -> None:
        while not self._is_ended.is_set():
            self.check()
            self._is_ended.wait(_CHECK_S)

    def check(self) -> None:
        """Check now."""
        before, self.trouble = self.trouble, kafka_trouble(self.address)
        if self.trouble and not before:
            self._tell(f"{self._whose}: {self.trouble}; nothing is sent or read until it does")
        elif before and not self.trouble:
            self._tell(f"{self._whose}: Kafka answers again at {self.address.bootstrap}")


Ends = dict[str, dict[str, int]]
"""Topic → partition, as text → next offset to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPlace:
    """A Kafka cluster at a start of the job.

    topics: name → id, of all topics asked for. bounds: input topic → partition → (earliest offset,
    offset after the last).
    """

    cluster_id: str
    topics: Mapping[str, str]
    bounds: Mapping[str, Mapping[int, tuple[int, int]]]

    def ends_after(self, last_commit: Mapping[str, Any] | None) -> Ends:
        """Return the start offsets: after the last committed batch, or the earliest.

        last_commit: its metadata, with `offsets` and the `topics` that they belong to.
        """
        recorded = last_commit or {}
        offsets, ids = recorded.get("offsets", {}), recorded.get("topics", {})
        found: Ends = {}
        for topic, partitions in sorted(self.bounds.items()):
            is_same = ids.get(topic, self.topics[topic]) == self.topics[topic]
            ends = offsets.get(topic, {}) if is_same else {}
            found[topic] = {}
            for partition, (earliest, latest) in sorted(partitions.items()):
                end = ends.get(str(partition), 0)
                found[topic][str(partition)] = end if earliest <= end <= latest else earliest
        return found

    def ends_beyond(self, skipped: str, last_commit: Mapping[str, Any] | None) -> Ends:
        """Return the start offsets; one topic is skipped to its present end."""
        ends = {str(partition): latest for partition, (_, latest) in self.bounds[skipped].items()}
        return {**self.ends_after(last_commit), skipped: ends}


def find_kafka(address: KafkaAddress, inputs: Sequence[str], others: Sequence[str]) -> KafkaPlace:
    """Return the Kafka cluster with these topics. inputs, others: full names.

    Raises CommandError when Kafka doesn't answer or a topic is missing.
    """
    names = [*inputs, *others]
    try:
        options = address.client_options("balance_cluster-place")
        with closing(open_client(KafkaAdminClient, **options)) as admin:
            found = {topic["name"]: topic for topic in admin.describe_topics(names)}
            for name in names:
                if name not in found or found[name]["error_code"]:
                    raise CommandError(
                        f"topic {name} is missing",
                        why="the topics of the wire have not been made in this Kafka, or were"
                        " deleted",
                        next_step="run `ballast topics ensure` and start the job again",
                    )
            places = [
                TopicPartition(name, partition["partition_index"])
                for name in sorted(inputs)
                for partition in sorted(
                    found[name]["partitions"], key=lambda one: one["partition_index"]
                )
            ]
            earliest, latest = (
                admin.list_partition_offsets(dict.fromkeys(places, spec))
                for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
            )
            cluster_id = str(admin.describe_cluster()["cluster_id"])
    except KafkaError as error:
        raise CommandError(
            f"Kafka at {address.bootstrap} can't be asked for its topics",
            why=f"{type(error).__name__}: {error}",
            next_step="check that it is up and that this address and these credentials are right",
        ) from error
    bounds = {
        name: {
            place.partition: (earliest[place].offset, latest[place].offset)
            for place in places
            if place.topic == name
        }
        for name in sorted(inputs)
    }
    topics = {name: str(found[name]["topic_id"]) for name in sorted(names)}
    return KafkaPlace(cluster_id=cluster_id, topics=topics, bounds=bounds)


class TopicWatch:
    """Check, in a thread, that topics still have the ids of the job's start.

    A topic is lost when two checks in a row find it deleted or created again: a node of Kafka that
    has just started may be wrong, and one that does not answer says nothing. Spark would notice
    late (a task waits minutes for a deleted topic's message) or, if the topic was created again,
    never.

    ids: name → Kafka's id. Use as a context manager.
    """

    def __init__(
        self, address: KafkaAddress, ids: Mapping[str, str], *, check_s: float = _CHECK_S
    ) -> None:
        self._address = address
        self._ids = ids
        self._check_s = check_s
        self._loss: CommandError | None = None
        self._admin: Any = None
        self._asking = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topic-watch", daemon=True)

    def __enter__(self) -> "TopicWatch":  # noqa: PYI034 (Self is 3.11's)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(timeout=5)

    def loss(self) -> CommandError | None:
        """Return the error of lost topics, which ends the job; None = all exist."""
        return self._loss

    def check(self) -> CommandError | None:
        """Return the error of topics found lost now; None = none, or Kafka is silent."""
        with self._asking:
            try:
                options = self._address.client_options("topic-watch")
                self._admin = self._admin or open_client(KafkaAdminClient, **options)
                found = self._admin.describe_topics(sorted(self._ids))
            except Exception:  # noqa: BLE001 whatever the client raises, the next check comes
                self._close()  # once its loop has crashed, it raises that error for ever
                return None
        lost = {}
        for topic in found:
            if topic["error_code"] == UnknownTopicOrPartitionError.errno:
                lost[topic["name"]] = "deleted"
            elif not topic["error_code"] and str(topic["topic_id"]) != self._ids[topic["name"]]:
                lost[topic["name"]] = "made anew"
        if not lost:
            return None
        causes = ", ".join(f"{name} was {what}" for name, what in sorted(lost.items()))
        return CommandError(
            "the job has ended, because it has lost topics",
            why=f"{causes} in Kafka while the job was at work, so what it has read and told is "
            "gone; owners are safe in the tables",
            next_step="run `ballast topics ensure` and start the job again: it rebuilds its state "
            "from the tables and sends every record anew",
        )

    def _run(self) -> None:
        before = None
        while not self._stopped.wait(self._check_s):
            lost = self.check()
            self._loss = lost if before else None
            before = lost
        with self._asking:
            self._close()

    def _close(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            with contextlib.suppress(Exception):
                admin.close()
