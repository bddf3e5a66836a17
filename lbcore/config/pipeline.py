"""Settings of the job: clusters, intervals, Kafka, and sizes of messages.

Pulsar's intervals are aliases; the values of topics are Kafka's own configuration keys. Passwords
are no settings: they come from the environment or from files.
"""

from dataclasses import dataclass

from lbcore.config.setting import correction, derived, setting
from lbcore.model.names import check_cluster
from lbcore.model.times import HOUR_MS, MINUTE_MS

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """Connection to Kafka."""

    bootstrap_servers: tuple[str, ...] = setting(
        (),
        doc="Addresses (host:port) of Kafka brokers; without any, `run-local` starts one.",
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
    # copies that must have a message before it counts as sent: one copy may be missing
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


_TRIGGER = ("pipeline.trigger_ms",)
KEPT, ARCHIVED, DROPPED = "keep", "archive", "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Clusters that the job serves, and the intervals of its work."""

    clusters: tuple[str, ...] = setting(
        ("local",),
        reads=check_cluster,
        doc="Clusters that this job balances; messages of others are rejected.",
    )
    topic_prefix: str = setting(
        "",
        doc="Put before every topic's name, so that installations can share one Kafka.",
    )
    scorer_groups: int = setting(
        2,
        unit="groups",
        minimum=1,
        maximum=4_096,
        doc="Groups into which a cluster's brokers are hashed; each costs some ms a batch."
        " Take as many as executors have cores; with many small clusters 1. On a Spark cluster the"
        " state has as many partitions as groups or clusters, whichever are more. A change rebuilds"
        " the state from the tables.",
    )
    trigger_ms: int = setting(
        1_000,
        unit="ms",
        minimum=50,
        maximum=60_000,
        doc="Shortest time between the starts of two micro-batches. 3000 saves CPU in a small"
        " cluster.",
    )
    # messages of a micro-batch: bounds the time of a batch that catches up
    max_offsets_per_trigger: int = 20_000
    # bytes of a micro-batch, not compressed: bounds its memory, however large its records are
    max_bytes_per_trigger: int = 67_108_864
    # rejected messages of a cluster that are kept, 6,400 of 16 kB, at most a 24th at once; the
    # others are only counted
    rejected_bytes_per_day: int = 104_857_600
    decision_interval_ms: int = setting(
        10_000,
        unit="ms",
        minimum=100,
        maximum=3_600_000,
        dynamic=True,
        doc="Time between decision cycles (unowned bundles are placed in each). Cycles begin at"
        " multiples of it, shifted from cluster to cluster.",
    )
    shed_interval_ms: int = setting(
        10_000,
        unit="ms",
        minimum=100,
        maximum=86_400_000,
        pulsar="loadBalancerSheddingIntervalMinutes",
        pulsar_default=60_000,
        pulsar_factor=MINUTE_MS,
        dynamic=True,
        doc="Time between cycles that shed; a multiple of decision_interval_ms.",
    )
    split_interval_ms: int = setting(
        10_000,
        unit="ms",
        minimum=100,
        maximum=86_400_000,
        pulsar="loadBalancerSplitIntervalMinutes",
        pulsar_default=60_000,
        pulsar_factor=MINUTE_MS,
        dynamic=True,
        doc="Time between cycles that split; a multiple of decision_interval_ms.",
    )
    # hit counters and averages advance once in this time, in whole cycles (0: in each, as Pulsar's
    # do). At most 10 s, so that a hot broker does not wait for rare rounds, unless usages are new
    # more rarely
    hit_period_ms: int = derived(
        10_000,
        sources=(
            "pipeline.shed_interval_ms",
            "shedding.is_pulsar_exact",
            "signals.usage_window_ms",
        ),
        by=lambda config: (
            0
            if config.shedding.is_pulsar_exact
            else max(min(10_000, config.pipeline.shed_interval_ms), config.signals.usage_window_ms)
        ),
    )
    # time between two rows of a broker in load_history: six cycles, a minute at most
    load_history_interval_ms: int = derived(
        60_000,
        sources=("pipeline.decision_interval_ms",),
        by=lambda config: max(1_000, min(60_000, 6 * config.pipeline.decision_interval_ms)),
    )
    # time after which a table is checked for small files, which slow its commits
    upkeep_interval_ms: int = 30_000
    # a table with more data files below 32 MB than this has them joined
    upkeep_files_max: int = 40
    history: str = setting(
        ARCHIVED,
        choices=(KEPT, ARCHIVED, DROPPED),
        doc="Treatment of rows of ownership_events and commands past history_days: archive deletes"
        " them once jobs/archive_history.py has copied them, drop deletes them, keep doesn't.",
    )
    history_days: int = setting(
        90,
        unit="days",
        minimum=1,
        maximum=36_500,
        doc="Days of ownership_events and commands that stay in the job's tables.",
    )
    # with nothing to write, a commit this often shows that the writer is alive
    heartbeat_commit_ms: int = derived(
        10_000, sources=_TRIGGER, by=lambda config: min(10_000, 10 * config.pipeline.trigger_ms)
    )
    # time between the ticks of the driver on each partition of broker-load
    tick_interval_ms: int = derived(
        1_000,
        sources=_TRIGGER,
        by=lambda config: max(200, min(1_000, config.pipeline.trigger_ms)),
    )
    # free bundles wait until no broker has joined for this long, at most five times as long
    settle_ms: int = 3_000
    # a broker's load counts as unknown when its report is older
    report_age_max_ms: int = correction(180_000, pulsar=2_700_000)
    # a broker that restarted, or came back from silence, is unsettled for this long
    restart_settle_ms: int = correction(30_000, pulsar=0)
    # no plan while a larger part of the brokers is silent or new
    unsettled_max_percent: int = correction(50, pulsar=100)
    # topics that are remembered, 16 bytes each; splits take no account of the others
    topics_kept_max: int = 500_000
    plan_lag_max_ms: int = 10_000  # no plan while the newest tick is older: reports are old, too
