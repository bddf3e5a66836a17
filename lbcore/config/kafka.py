"""Settings of Kafka: where it is, how to be let in, and how the topics are made.

Passwords are no settings: they come from the environment or from files. Read by `jobs.adapters`.
Values of the topics are Kafka's own configuration keys.
"""

from dataclasses import dataclass

from lbcore.config.setting import derived, setting
from lbcore.model.times import HOUR_MS

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """Connection to Kafka."""

    bootstrap_servers: tuple[str, ...] = setting(
        (),
        doc="host:port of Kafka brokers; without any, `run-local` starts one of its own.",
    )
    security_protocol: str = setting(
        "PLAINTEXT",
        choices=PROTOCOLS,
        doc="How connections are secured; SSL is TLS.",
    )
    sasl_mechanism: str = setting(
        "SCRAM-SHA-512",
        choices=MECHANISMS,
        doc="How the password is proven, with a SASL_ protocol. The password is no setting: it is"
        " in the environment variable BALLAST_KAFKA_PASSWORD, or in the file that"
        " BALLAST_KAFKA_PASSWORD_FILE names. With OAUTHBEARER it is the token, and the file is read"
        " again at each login.",
    )
    sasl_username: str = setting(
        "", doc="Kafka's user, with a SASL_ protocol; a token names its own."
    )
    ca_file: str = setting("", doc="PEM file of the authorities that Kafka's certificate is from.")
    certificate_file: str = setting("", doc="PEM file of our own certificate, for mutual TLS.")
    key_file: str = setting("", doc="PEM file of its key.")
    request_timeout_ms: int = 30_000  # longest wait for one answer, as Kafka's clients have it


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsConfig:
    """Creation of the wire topics, and the target of `ballast topics ensure`."""

    report_partitions: int = setting(
        2,
        unit="partitions",
        minimum=1,
        maximum=1_000,
        doc="Partitions of broker-load, bundle-load, topic-load and acks; as many as cores that"
        " read them, as each is a reader in every batch. The driver ticks on each of broker-load.",
    )
    # of ownership, which every agent and its compaction read: more would cost each of them
    ownership_partitions: int = 4
    replication_factor: int = setting(
        1,
        unit="copies",
        minimum=1,
        maximum=10,
        doc="Copies of each partition; 3 in production.",
    )
    # copies that must have a message before it counts as sent: one may be away
    min_insync_replicas: int = derived(
        1,
        sources=("topics.replication_factor",),
        by=lambda config: max(1, config.topics.replication_factor - 1),
    )
    report_retention_ms: int = setting(
        6 * HOUR_MS,
        unit="ms",
        minimum=60_000,
        maximum=8_760 * HOUR_MS,
        doc="How long reports and acks are kept: longer than the job may ever be away.",
    )
    # a week, for people who read commands and audit in Kafka
    request_retention_ms: int = 168 * HOUR_MS
    # a day, for readers of ownership that are away; longer ones read the tables
    tombstone_retention_ms: int = 24 * HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The largest sizes of one message; a larger one is rejected as too_large."""

    max_message_bytes: int = 1_048_576  # of a message's value: Kafka's own default for a batch
    max_bundles_per_message: int = 5_000  # of one part of a bundle-load, and acks of one message
    max_topics_per_message: int = 10_000  # of one topic-load; max_message_bytes bounds it, too
    max_parts: int = 1_000  # of one bundle-load: with 2,000 bundles each, two million a broker
    max_name_chars: int = 512  # of a cluster, broker, bundle, topic or command
    max_text_chars: int = 4_096  # of other texts: URLs, reasons of failure, principals
