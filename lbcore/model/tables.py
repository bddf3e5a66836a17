"""The tables: each column's name, type and meaning, declared once.

Delta's, Arrow's and Spark's types and docs follow from it. Types: string, long, int, double,
boolean, binary, and list<...> of these; map<string,string>.
"""

from lbcore.model.memory_tables import PLANNING_MEMORY
from lbcore.model.resources import WIRE_NAMES
from lbcore.model.settings_tables import SETTINGS_IN_FORCE
from lbcore.model.table import Table
from lbcore.model.table import column as _column

GONE_DAYS = 7
"""How long a table of current rows says what is no more."""

_RECORD = (
    _column("cluster", "string", "cluster of the bundle"),
    _column("namespace", "string", "tenant/namespace"),
    _column("bundle", "string", "tenant/namespace/0xlower_0xupper"),
    _column("version_id", "long", "version of the record; grows by one a transition"),
    _column("state", "string", "Init, Free, Owned, Assigning, Releasing, Splitting or Deleted"),
    _column("source", "string", "broker that gives the bundle up, or ''"),
    _column("source_incarnation", "string", "incarnation of the source"),
    _column("destination", "string", "broker that owns or shall own the bundle, or ''"),
    _column("destination_incarnation", "string", "incarnation of the destination"),
    _column("children", "string", "JSON object: child bundle -> broker ('' = splitting broker)"),
    _column("is_forced", "boolean", "written regardless of the transition rules"),
    _column("cause", "string", "why: create, assign, shed, admin, drain, split, failover, ..."),
    _column("decision_id", "string", "decision behind it, or ''"),
    _column("command_id", "string", "command behind it, or ''"),
    _column("writer_epoch", "long", "epoch of the job that wrote it"),
    _column("at_ms", "long", "time of the batch that wrote it, ms since 1970"),
    _column("batch_id", "long", "micro-batch that wrote it"),
    _column("seq_in_batch", "long", "order within the batch, from 0"),
)

OWNERSHIP_EVENTS = Table(
    name="ownership_events",
    doc="Each transition of each bundle; the truth: rows are added, and leave as history.",
    columns=(
        *_RECORD,
        _column("state_before", "string", "state before the transition"),
        _column("source_before", "string", "source before the transition"),
        _column("destination_before", "string", "destination before the transition"),
    ),
    constraints=(
        ("version_is_positive", "version_id >= 1"),
        ("owned_has_an_owner", "state != 'Owned' OR destination != ''"),
        ("assigning_has_a_destination", "state != 'Assigning' OR destination != ''"),
        ("releasing_has_a_source", "state != 'Releasing' OR source != ''"),
        ("splitting_has_a_source", "state != 'Splitting' OR source != ''"),
    ),
)

BUNDLE_OWNERSHIP = Table(
    name="bundle_ownership",
    doc="The current record of each bundle.",
    key=("bundle",),
    columns=_RECORD,
    constraints=OWNERSHIP_EVENTS.constraints,
)

BROKERS = Table(
    name="brokers",
    doc="Each broker as a lookup answers with it.",
    key=("broker",),
    gone="state = 'forgotten'",
    columns=(
        _column("cluster", "string", "cluster of the broker"),
        _column("broker", "string", "broker's name (host:webPort in Pulsar)"),
        _column("incarnation", "string", "its latest start"),
        _column("state", "string", "active, draining, silent or forgotten"),
        _column("web_service_url", "string", "http://host:port, or ''"),
        _column("web_service_url_tls", "string", "https://host:port, or ''"),
        _column("pulsar_service_url", "string", "pulsar://host:port, or ''"),
        _column("pulsar_service_url_tls", "string", "pulsar+ssl://host:port, or ''"),
        _column("advertised_listeners", "string", "JSON object: listener -> URLs"),
        _column("version", "string", "brokerVersionString"),
        _column("load_manager_class", "string", "loadManagerClassName"),
        _column("failure_domain", "string", "failure domain, or ''"),
        _column("capacity", "double", "relative capacity, 1.0 = like the others"),
        _column("starts", "string", "JSON array: when it was first seen, started or came back"),
        _column("at_ms", "long", "time of the batch that wrote it"),
        _column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

NAMESPACES = Table(
    name="namespaces",
    doc="Each namespace, and how its topics are hashed; '' stands for those that are long gone.",
    key=("namespace",),
    gone="is_deleted AND namespace <> ''",
    columns=(
        _column("cluster", "string", "cluster of the namespace"),
        _column("namespace", "string", "tenant/namespace"),
        _column("hash", "string", "crc32 or murmur3_32; fixed at creation"),
        _column("is_deleted", "boolean", "deleted"),
        _column(
            "highest_version",
            "long",
            "highest version id any of its bundles ever had; of '':"
            " any bundle of namespaces that are gone, so that versions go on above",
        ),
        _column("properties", "string", "JSON object: split algorithm, policies and the like"),
        _column("at_ms", "long", "time of the batch that wrote it"),
        _column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

POLICIES = Table(
    name="policies",
    doc="What operators have set and what stands of it: the newest row of each kind and name.",
    key=("kind", "name"),
    gone="NOT is_set",
    columns=(
        _column("cluster", "string", "cluster"),
        _column(
            "kind",
            "string",
            "isolation, anti_affinity, excluded, paused, drain, brake, set_aside, proposal",
        ),
        _column("name", "string", "policy, namespace or broker; '' = the whole cluster"),
        _column("value", "string", "JSON object; of a drain: total, left, estimated_end_ms, ..."),
        _column("is_set", "boolean", "false: taken back, or over"),
        _column("principal", "string", "who changed it; '' = the balancer"),
        _column("command_id", "string", "command behind it, or ''"),
        _column("at_ms", "long", "time of the batch that wrote it"),
        _column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

PINS = Table(
    name="pins",
    doc="The bundles that operators keep on a broker: the newest row of each bundle.",
    key=("bundle",),
    gone="NOT is_set",
    columns=(
        _column("cluster", "string", "cluster of the bundle"),
        _column("bundle", "string", "tenant/namespace/0xlower_0xupper"),
        _column("broker", "string", "where it is kept"),
        _column("until_ms", "long", "when the pin ends, ms since 1970; 0 = never"),
        _column("owner", "string", "who wants it"),
        _column("reason", "string", "why"),
        _column("is_set", "boolean", "false: unpinned, run out, or the bundle is gone"),
        _column("principal", "string", "who changed it; '' = the balancer"),
        _column("command_id", "string", "command behind it, or ''"),
        _column("at_ms", "long", "time of the batch that wrote it"),
        _column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

CONFIG_VERSIONS = Table(
    name="config_versions",
    doc="Each change of the configuration while running.",
    columns=(
        _column("cluster", "string", "cluster that it is for"),
        _column("number", "long", "1 for the cluster's first change, then one more each"),
        _column("config_version", "string", "configuration in force from then on"),
        _column("settings", "string", "JSON object: all that is changed, by section.name"),
        _column("principal", "string", "who changed it"),
        _column("command_id", "string", "command behind it"),
        _column("at_ms", "long", "time of the batch that wrote it"),
        _column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

COMMANDS = Table(
    name="commands",
    doc="Each command and its outcome.",
    key=("command_id",),
    columns=(
        _column("cluster", "string", "cluster of the command"),
        _column("command_id", "string", "the requester's id; executed at most once"),
        _column("kind", "string", "what was asked"),
        _column("arguments", "string", "JSON object"),
        _column("principal", "string", "who asked"),
        _column("address", "string", "from where"),
        _column("status", "string", "accepted, done, refused, failed or timed_out"),
        _column("reason", "string", "why it was not done, or ''"),
        _column("result", "string", "JSON object, e.g. the children of a split"),
        _column("at_ms", "long", "time of the batch that wrote it"),
        _column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

AUDIT = Table(
    name="audit",
    doc="Each request that a service allowed or refused and wanted recorded; kept for a year.",
    columns=(
        _column("cluster", "string", "cluster of the request"),
        _column("principal", "string", "who asked"),
        _column("address", "string", "from where"),
        _column("action", "string", "what was asked"),
        _column("is_allowed", "boolean", "whether the service allowed it"),
        _column("reason", "string", "why it was refused, or ''"),
        _column("command_id", "string", "command that followed from it, or ''"),
        _column("at_ms", "long", "time of the batch that wrote it"),
        _column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

DECISIONS = Table(
    name="decisions",
    doc="Each decision, or the reason for none, with the numbers behind it.",
    columns=(
        _column("cluster", "string", "cluster"),
        _column("decision_id", "string", "id that ownership_events refer to"),
        _column("cycle", "long", "number of the decision cycle; from 1 again after a rebuild"),
        _column("kind", "string", "assign, unload, transfer, split, drain, failover, skip, ..."),
        _column("strategy", "string", "strategy that decided"),
        _column("reason", "string", "label, e.g. Overloaded, HitCount, NoBundles"),
        _column("bundle", "string", "bundle, or ''"),
        _column("source", "string", "broker that gives, or ''"),
        _column("destination", "string", "broker that takes, or ''"),
        _column("inputs", "string", "JSON object: loads, averages, hits, thresholds, budgets"),
        _column("config_version", "string", "configuration in force"),
        _column("at_ms", "long", "time of the batch that wrote it"),
        _column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

DECISION_CANDIDATES = Table(
    name="decision_candidates",
    doc="What a cycle considered and did not do, or nearly did, and the number that decided.",
    columns=(
        _column("cluster", "string", "cluster"),
        _column("decision_id", "string", "decision it belongs to; '' = the cycle, by at_ms"),
        _column("cycle", "long", "number of the decision cycle; from 1 again after a rebuild"),
        _column("phase", "string", "eligible, shed, split, assign or limit"),
        _column("subject", "string", "bundle, or broker that might give; '' = a count of the rest"),
        _column("broker", "string", "broker it was considered for, its owner or partner, or ''"),
        _column("verdict", "string", "taken, or the filter or limit that it failed"),
        _column("number", "double", "the number that decided; NaN = none"),
        _column("threshold", "double", "what the number is held against; NaN = nothing"),
        _column("hits", "long", "observations in a row so far"),
        _column("hits_needed", "long", "observations in a row that it takes; 0 = not counted"),
        _column("count", "long", "how many this row stands for"),
        _column("detail", "string", "JSON object: measure, further levels, reason of a split"),
        _column("at_ms", "long", "time of the batch that wrote it"),
        _column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

DECISION_EFFECTS = Table(
    name="decision_effects",
    doc="What became of each bundle that balancing moved: when, the loads before and after.",
    columns=(
        _column("cluster", "string", "cluster"),
        _column("decision_id", "string", "decision that moved it"),
        _column("bundle", "string", "bundle"),
        _column("source", "string", "broker that gave it"),
        _column("destination", "string", "broker that took it"),
        _column("outcome", "string", "helped, ineffective, unobserved, or moved_elsewhere"),
        _column("decided_ms", "long", "when it was decided, ms since 1970"),
        _column("moved_ms", "long", "when its new owner had opened it; 0 = it never did"),
        _column("source_before", "double", "usage of the source when decided, 1.0 = 100 %"),
        _column("source_after", "double", "and in its first reports after the move; NaN = none"),
        _column("destination_before", "double", "usage of the destination when decided"),
        _column("destination_after", "double", "and in its first reports after the move"),
        _column("at_ms", "long", "time of the batch that wrote it"),
        _column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

LOAD_HISTORY = Table(
    name="load_history",
    doc="One row a broker and minute, none while it is silent; bundles as arrays of equal length.",
    columns=(
        _column("cluster", "string", "cluster"),
        _column("broker", "string", "broker"),
        _column("minute_ms", "long", "start of the minute, ms since 1970"),
        _column("score", "double", "smoothed broker score, 1.0 = 100 %"),
        _column("percent", "list<double>", ", ".join(WIRE_NAMES)),
        _column("traffic", "list<double>", "msgRateIn, msgRateOut, msgThroughputIn, ...Out"),
        _column("bundles", "list<string>", "names of its bundles"),
        _column("msg_rate_in", "list<double>", "msg/s a bundle"),
        _column("msg_rate_out", "list<double>", "msg/s a bundle"),
        _column("msg_throughput_in", "list<double>", "bytes/s a bundle"),
        _column("msg_throughput_out", "list<double>", "bytes/s a bundle"),
        _column("topics", "list<double>", "topics a bundle"),
        _column("sessions", "list<double>", "producers and consumers a bundle"),
        _column("at_ms", "long", "time of the batch that wrote it"),
        _column("batch_id", "long", "micro-batch that wrote it"),
        _column(
            "reported_ms", "long", "when the broker said so; null: not kept then", is_nullable=True
        ),
        _column(
            "usage",
            "double",
            "weighted maximum of its resources, 1.0 = 100 %; null: not kept then",
            is_nullable=True,
        ),
        _column(
            "broker_group",
            "string",
            "first broker of its group by isolation policies; '': all are one, or it is in none",
            is_nullable=True,
        ),
    ),
)

REJECTED_REPORTS = Table(
    name="rejected_reports",
    doc="Messages that could not be used, with their reason, and how many were not kept.",
    columns=(
        _column("cluster", "string", "cluster, or '' when it could not be told"),
        _column("topic", "string", "Kafka topic"),
        _column("partition", "int", "Kafka partition"),
        _column("offset", "long", "Kafka offset"),
        _column("timestamp_ms", "long", "Kafka's LogAppendTime"),
        _column("reason", "string", "reason, a closed set"),
        _column("detail", "string", "a sentence that says what is wrong"),
        _column("raw", "binary", "the bytes as they came, at most 16 kB"),
        _column("at_ms", "long", "time of the batch that wrote it"),
        _column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

RECORDS = Table(
    name="records",
    doc="Each tenant and topic that was created. Others exist: brokers report topics.",
    key=("record_type", "name"),
    gone="is_deleted",
    columns=(
        _column("cluster", "string", "cluster of the record"),
        _column("record_type", "string", "tenant or topic"),
        _column("name", "string", "full name, of a partitioned topic without -partition-N"),
        _column(
            "value", "string", "JSON: admin_roles and allowed_clusters, or number of partitions"
        ),
        _column("is_deleted", "boolean", "deleted since"),
        _column("at_ms", "long", "time of the batch that wrote it"),
        _column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

TABLES = (
    OWNERSHIP_EVENTS,
    BUNDLE_OWNERSHIP,
    BROKERS,
    NAMESPACES,
    RECORDS,
    POLICIES,
    PINS,
    CONFIG_VERSIONS,
    SETTINGS_IN_FORCE,
    COMMANDS,
    AUDIT,
    DECISIONS,
    DECISION_CANDIDATES,
    DECISION_EFFECTS,
    LOAD_HISTORY,
    REJECTED_REPORTS,
    PLANNING_MEMORY,
)


def declared(name: str) -> Table:
    """The table of this name; raises KeyError for another."""
    return _BY_NAME[name]


_BY_NAME = {table.name: table for table in TABLES}
