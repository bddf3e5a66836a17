"""The metrics of the streaming job, declared.

Names and labels are Pulsar 4.0.8's where it has one. The job alone decides, so it exports for each
broker what in Pulsar the broker exports itself.
"""

from jobs.telemetry.store import (
    MS_BUCKETS,
    S_BUCKETS,
    DeclaredMetric,
    counter,
    gauge,
    histogram,
)
from lbcore.balancer.balancer import INNER_PHASES, PHASES, REBUILD_PHASE
from lbcore.balancer.intake import TAKEN_OR_NOT
from lbcore.balancer.report import HIGH, LOW
from lbcore.model.resources import RESOURCES
from lbcore.ownership.records import Cause, State

LOADING, UNLOADING, SPLITTING = "loadBalancing", "bundleUnloading", "bundlesSplit"
ASSIGNING, CHANNEL = "assign", "sunitStateChn"
"""Values of the label `metric`, by which Pulsar groups its metrics."""

ALARMS = (
    "brake",
    "clock",
    "faults",
    "flapping",
    "full",
    "no_candidate",
    "silence",
    "strategy",
    "ticks",
)
"""Alarms of a batch's report, without the part after the colon."""

STANDING_BY, REBUILDING, RESUMING, AT_WORK = JOB_PHASES = (
    "standing by",
    "rebuilding",
    "resuming",
    "at work",
)
PHASE = gauge("ballast_job_phase", "1 for what the job is doing: standing by; taking its"
              " state from the tables (rebuilding) or from its checkpoint (resuming) until its"
              " first batch is written.", "phase", phase=JOB_PHASES)  # fmt: skip

_SINK_PHASES = ("sink_log", "sink_metrics", "sink_record", "sink_row")
FAULT_PHASES = tuple(sorted({*PHASES, *INNER_PHASES, REBUILD_PHASE, *_SINK_PHASES}))

_STATES = tuple(state.value for state in State)
_CAUSES = tuple(cause.value for cause in Cause)
_BROKER = ("cluster", "broker", "metric")
USAGE_NAMES = tuple(f"pulsar_lb_{one.metric}_usage" for one in RESOURCES)
"""In the order in which reports have the resources."""

_LB: tuple[DeclaredMetric, ...] = (
    *(
        gauge(
            f"pulsar_lb_{one.metric}_usage", f"Percent of {one.label} that a broker uses.", *_BROKER
        )
        for one in RESOURCES
    ),
    gauge(
        "pulsar_lb_resource_usage",
        "1.0 = 100 %: the highest resource, unweighted (max), or the score (max_ema).",
        *("cluster", "broker", "feature", "metric"),
        feature=("max", "max_ema"),
    ),
    gauge(
        "pulsar_lb_resource_usage_stats",
        "Mean and standard deviation of the live brokers' smoothed scores; each from the isolation"
        " group where it is highest.",
        *("cluster", "feature", "metric", "stat"),
        stat=("avg", "std"),
    ),
    counter("pulsar_lb_unload_broker_total", "Cycles in which a broker gave bundles.", *_BROKER),
    counter("pulsar_lb_unload_bundle_total", "Bundles that a broker gave by balancing.", *_BROKER),
    counter(
        "pulsar_lb_unload_broker_breakdown_total",
        "Outcomes of decisions to shed, and of cycles without any.",
        *("cluster", "broker", "metric", "reason", "result"),
        result=("Success", "Skip", "Failure"),
    ),
    counter("pulsar_lb_bundles_split_total", "Bundles of a broker that were split.", *_BROKER),
    counter(
        "pulsar_lb_bundles_split_breakdown_total",
        "Decisions to split, by the limit that was passed.",
        *("cluster", "broker", "metric", "reason", "result"),
        result=("Success", "Skip", "Failure"),
    ),
    counter(
        "pulsar_lb_assign_broker_breakdown_total",
        "Free bundles that were given to a broker (Success), or had nowhere to go (Failure).",
        *("cluster", "broker", "metric", "result"),
        result=("Success", "Failure"),
    ),
    counter("pulsar_lb_ignored_ack_total", "Acks that changed nothing, being outdated.", *_BROKER),
    histogram(
        "brk_lb_release_latency_ms", "From telling a broker to close a bundle to its ack.",
        MS_BUCKETS, *_BROKER,
    ),
    histogram(
        "brk_lb_assign_latency_ms", "From telling a broker to open a bundle to its ack.",
        MS_BUCKETS, *_BROKER,
    ),
    histogram(
        "brk_lb_unload_latency_ms", "From the beginning of a move to the new owner's ack.",
        MS_BUCKETS, *_BROKER,
    ),
)  # fmt: skip

_BUNDLES = tuple(
    gauge(
        f"pulsar_bundle_{name}",
        f"{doc} of a bundle (telemetry.bundle_metrics).",
        *("cluster", "broker", "bundle", "metric"),
    )
    for name, doc in {
        "msg_rate_in": "Messages/s in",
        "msg_rate_out": "Messages/s out",
        "msg_throughput_in": "Bytes/s in",
        "msg_throughput_out": "Bytes/s out",
        "topics_count": "Topics",
    }.items()
)

_CHANNEL: tuple[DeclaredMetric, ...] = (
    counter(
        "pulsar_sunit_state_chn_event_publish_ops_total",
        "Records that the job wrote, by the transition begun.",
        *("cluster", "broker", "event", "metric", "result"),
        event=("Assign", "Split", "Unload", "Override"),
        result=("Total",),
    ),
    counter(
        "pulsar_sunit_state_chn_inactive_broker_cleanup_ops_total",
        "Failovers: brokers taken for dead (Schedule), back before (Cancel), bundles moved"
        " (Success), bundles that wait because of the brake (Skip).",
        *("cluster", "broker", "metric", "result"),
        result=("Skip", "Cancel", "Schedule", "Success"),
    ),
    counter(
        "pulsar_sunit_state_chn_orphan_su_cleanup_ops_total",
        "Bundles whose transition was stuck and was repaired.",
        *_BROKER,
    ),
    counter(
        "pulsar_sunit_state_chn_su_tombstone_cleanup_ops_total",
        "Records of deleted bundles that were forgotten.",
        *_BROKER,
    ),
    counter(
        "pulsar_sunit_state_chn_cleanup_ops_total",
        "Repairs that found no broker to give a bundle to.",
        *("cluster", "broker", "metric", "result"),
        result=("Failure",),
    ),
    gauge("pulsar_sunit_state_chn_owned_su_total", "Bundles that a broker has.", *_BROKER),
)

_RHYTHM: tuple[DeclaredMetric, ...] = (
    gauge("ballast_job_info", "1; the job's version.", "version"),
    PHASE,
    counter("ballast_damaged_checkpoints_total", "Checkpoints, or files beside them, that could not"
            " be read, so that the state was rebuilt from the tables; since the job's start."),
    gauge("ballast_writer_epoch", "Epoch that the job has claimed."),
    counter("ballast_batches_total", "Micro-batches that were written.", "cluster"),
    gauge("ballast_batch_timestamp_seconds", "Time of the last batch, seconds since 1970.",
          "cluster"),
    histogram(
        "ballast_batch_duration_seconds", "A batch's time, by part.", S_BUCKETS, "part",
    ),
    histogram(
        "ballast_cycle_duration_seconds", "Duration of batches with a cycle.", S_BUCKETS,
        "cluster",
    ),
    gauge("ballast_cycle", "Number of the last decision cycle.", "cluster"),
    gauge("ballast_catching_up", "1 while the messages read are too old for decisions.", "cluster"),
    gauge("ballast_spark_phase_seconds", "Spark's last trigger, by its own phases.", "phase"),
    counter("ballast_spark_tasks_total", "Tasks that an executor has ended; driver: the job itself."
            " Executors after the first 50 count together as later.", "executor"),
    gauge("ballast_state_bytes", "Memory of an operator's state store.", "operator"),
    gauge("ballast_state_rows", "Rows in an operator's state store.", "operator"),
    counter("ballast_kafka_read_total", "Offset up to which a topic was read, all partitions.",
            "topic"),
    gauge("ballast_kafka_lag_messages", "Messages that wait in Kafka, all partitions together."),
    gauge("ballast_table_version", "Version of a table after the job's last commit.", "table"),
    counter("ballast_table_commits_total", "The job's commits to a table.", "table"),
    counter("ballast_table_rows_total", "Rows that the job wrote to a table.", "table"),
)  # fmt: skip

_INPUT: tuple[DeclaredMetric, ...] = (
    counter(
        "ballast_reports_total", "Load reports, by result.", "cluster", "result",
        result=("accepted", "late", "duplicate", "rejected", "early"),
    ),
    counter(
        "ballast_topic_reports_total", "Reports on a bundle's topics, by result.",
        "cluster", "result", result=TAKEN_OR_NOT,
    ),
    counter("ballast_faults_total", "Items left out because of an exception, by phase.",
            "cluster", "phase", phase=FAULT_PHASES),
    counter("ballast_rejected_total", "Messages that could not be used.", "cluster", "topic",
            "reason"),
    counter("ballast_rejected_dropped_total", "Of these, those without a row in the table"
            " rejected_reports, because too many came.", "cluster"),
    counter("ballast_commands_total", "Commands by outcome.", "cluster", "kind", "status"),
)  # fmt: skip

_BROKERS: tuple[DeclaredMetric, ...] = (
    gauge("ballast_brokers", "Brokers by state.", "cluster", "state",
          state=("active", "draining", "silent")),
    gauge("ballast_broker_up", "1 while a broker is heard, 0 while it is taken for dead.",
          "cluster", "broker"),
    gauge("ballast_broker_messages_per_second", "Messages/s in and out.", "cluster", "broker"),
    gauge(
        "ballast_broker_usage",
        "A live broker's usage, 1.0 = 100 %: the weighted maximum of its resources.",
        *("cluster", "broker"),
    ),
    gauge("ballast_broker_bytes_per_second", "Bytes/s in and out.", "cluster", "broker"),
    gauge("ballast_broker_topics", "Topics, as reported.", "cluster", "broker"),
    gauge("ballast_report_age_seconds",
          "Time since a broker's last load report; absent without one.", "cluster", "broker"),
    gauge("ballast_broker_hits", "Reports in a row beyond the strategy's thresholds.",
          "cluster", "broker", "level", level=(LOW, HIGH)),
    gauge("ballast_hits_needed", "Hits that it takes until bundles move.", "cluster", "level",
          level=(LOW, HIGH)),
    gauge("ballast_drain_remaining_bundles", "Bundles left on a broker that is drained.",
          "cluster", "broker"),
)  # fmt: skip

_OWNERSHIP: tuple[DeclaredMetric, ...] = (
    gauge("ballast_bundles", "Bundles by state.", "cluster", "state", state=_STATES),
    gauge("ballast_oldest_record_seconds", "Longest time that a bundle is in a state.",
          "cluster", "state", state=("Assigning", "Free", "Merging", "Releasing", "Splitting")),
    gauge("ballast_stuck_bundles", "Bundles in flight for longer than any timeout.", "cluster"),
    counter("ballast_transitions_total", "Records written.", "cluster", "cause", "state",
            cause=_CAUSES, state=_STATES),
    counter("ballast_overrides_total", "Records written against the transition rules.", "cluster",
            "cause", cause=_CAUSES),
    counter("ballast_moves_total", "Bundles that got another owner.", "cluster", "cause",
            cause=_CAUSES),
    counter("ballast_returns_total", "Moves that took a bundle back to where it had been less than"
            " an hour before; over ballast_moves_total: thrash.", "cluster"),
    gauge("ballast_disagreements", "Bundles that a broker reports and does not own"
          " (reported_not_owned), owns and does not report (owned_not_reported), or still after the"
          " record was sent again (lasting); in the last batch.", "cluster", "kind",
          kind=("reported_not_owned", "owned_not_reported", "lasting")),
)  # fmt: skip

_DECISIONS: tuple[DeclaredMetric, ...] = (
    gauge("ballast_imbalance", "Highest message rate of a live broker over the mean of its"
          " isolation group, in the worst group.", "cluster"),
    gauge("ballast_floor_adjusted_imbalance",
          "The highest over max(mean, hottest bundle) of its isolation group, in the worst group:"
          " what moves could still mend.", "cluster"),
    gauge("ballast_broker_blocked_seconds", "For how long a broker has been hot while it gives"
          " nothing, by the commonest verdict.", "cluster", "broker", "reason"),
    counter("ballast_decisions_total", "Decisions, and skips.", "cluster", "kind", "reason"),
    counter("ballast_decision_effects_total", "Balancing moves, by outcome.", "cluster", "outcome",
            outcome=("helped", "ineffective", "unobserved", "moved_elsewhere")),
    counter("ballast_candidates_total", "Candidates of cycles, by verdict.", "cluster", "phase",
            "verdict"),
    gauge("ballast_split_hits", "Bundles over a split limit that collect hits.", "cluster"),
    gauge("ballast_bundles_with_topics", "Bundles whose topics are known, so that splits can weigh"
          " them.", "cluster"),
    gauge("ballast_unsplittable_bundles", "Bundles over a split limit that no boundary divides.",
          "cluster"),
    gauge("ballast_alarm", "1 while an alarm is on.", "cluster", "alarm",
          alarm=ALARMS),
    gauge("ballast_clock_ahead_seconds",
          "How far a wrong clock was last seen ahead; 0 = within 2 s for a minute. Clocks: driver,"
          " kafka, broker-load-N (the Kafka broker of that partition), decisions (the time the job"
          " decides by), agent NAME, producer.",
          "cluster", "clock"),
    gauge("ballast_bundles_without_candidate",
          "Bundles that no broker may take, by the setting that keeps most brokers out.",
          "cluster", "setting"),
    gauge("ballast_ignored_settings", "Changed settings in conflict with the configuration files.",
          "cluster"),
    gauge("ballast_paused", "1 while balancing is paused for the whole cluster.", "cluster"),
    gauge("ballast_quiet",
          "1 during quiet hours (cluster.quiet_hours): no cycle sheds or splits.", "cluster"),
    gauge("ballast_debug", "1 while debug mode is on.", "cluster"),
)  # fmt: skip

JOB_METRICS: tuple[DeclaredMetric, ...] = (
    *_LB, *_BUNDLES, *_CHANNEL, *_RHYTHM, *_INPUT, *_BROKERS, *_OWNERSHIP, *_DECISIONS
)  # fmt: skip
