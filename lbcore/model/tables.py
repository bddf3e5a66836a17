"""The tables and their archives: name, type and meaning of each column.

The types and docs in Delta, Arrow and Spark follow from it. Types: string, long, int, double,
boolean, binary, and list<...> of these; map<string,string>.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lbcore.model.resources import WIRE_NAMES


@dataclass(frozen=True, slots=True)
class Column:
    """One column: name, logical type, meaning."""

    name: str
    type: str
    doc: str
    is_nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table: name, columns, and the row conditions that the engines enforce.

    key: the columns of which, with the cluster, there is one row, the newest; () = rows are only
    added. gone: SQL condition of a row that only says that its subject no longer exists; such rows
    are deleted after GONE_DAYS.
    """

    name: str
    doc: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    gone: str = ""
    constraints: tuple[tuple[str, str], ...] = ()


PLANNING_MEMORY = Table(
    name="planning_memory",
    doc="Planning state kept between cycles; for recent moves see `decisions`.",
    key=("part",),
    columns=(
        Column("cluster", "string", "cluster"),
        Column("part", "string", "shedding, placement, split, unseen, hot or hourly"),
        Column("strategy", "string", "strategy that the hits and averages are of"),
        Column("memory", "string", "JSON object, as the job keeps it"),
        Column("at_ms", "long", "time of the batch that wrote it: since when it is so"),
        Column("batch_id", "long", "micro-batch that wrote it"),
    ),
)


SETTINGS_IN_FORCE = Table(
    name="settings_in_force",
    doc="Settings in use: each change writes all again; the newest rows count.",
    columns=(
        Column("cluster", "string", "cluster"),
        Column("setting", "string", "section.name"),
        Column("value", "string", "JSON: what holds"),
        Column(
            "origin", "string", "default, --set, command (config_versions), or an overlay's file"
        ),
        Column("started", "string", "JSON: what would hold if no command had changed it"),
        Column("config_version", "string", "configuration in force, as in `decisions`"),
        Column("at_ms", "long", "time of the batch that wrote it: since when it is so"),
        Column("batch_id", "long", "micro-batch that wrote it"),
    ),
)


GONE_DAYS = 7
"""Days that rows of subjects that no longer exist are kept in a table with a key."""

_RECORD = (
    Column("cluster", "string", "cluster of the bundle"),
    Column("namespace", "string", "tenant/namespace"),
    Column("bundle", "string", "tenant/namespace/0xlower_0xupper"),
    Column("version_id", "long", "version of the record; grows by one a transition"),
    Column(
        "state", "string", "Init, Free, Owned, Assigning, Releasing, Splitting, Merging or Deleted"
    ),
    Column("source", "string", "broker that gives the bundle up, or ''"),
    Column("source_incarnation", "string", "incarnation of the source"),
    Column("destination", "string", "broker that owns or shall own the bundle, or ''"),
    Column("destination_incarnation", "string", "incarnation of the destination"),
    Column("children", "string", "JSON object: child or merged bundle -> broker ('' = source)"),
    Column("is_forced", "boolean", "written regardless of the transition rules"),
    Column("cause", "string", "why: create, assign, shed, admin, drain, split, failover, ..."),
    Column("decision_id", "string", "decision behind it, or ''"),
    Column("command_id", "string", "command behind it, or ''"),
    Column("writer_epoch", "long", "epoch of the job that wrote it"),
    Column("at_ms", "long", "time of the batch that wrote it, ms since 1970"),
    Column("batch_id", "long", "micro-batch that wrote it"),
    Column("seq_in_batch", "long", "order within the batch, from 0"),
)

OWNERSHIP_EVENTS = Table(
    name="ownership_events",
    doc="Each transition of each bundle; the truth: rows are added, and leave as history.",
    columns=(
        *_RECORD,
        Column("state_before", "string", "state before the transition"),
        Column("source_before", "string", "source before the transition"),
        Column("destination_before", "string", "destination before the transition"),
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
    doc="Each broker, with the addresses that lookups return.",
    key=("broker",),
    gone="state = 'forgotten'",
    columns=(
        Column("cluster", "string", "cluster of the broker"),
        Column("broker", "string", "broker's name (host:webPort in Pulsar)"),
        Column("incarnation", "string", "its latest start"),
        Column("state", "string", "active, draining, silent or forgotten"),
        Column("web_service_url", "string", "http://host:port, or ''"),
        Column("web_service_url_tls", "string", "https://host:port, or ''"),
        Column("pulsar_service_url", "string", "pulsar://host:port, or ''"),
        Column("pulsar_service_url_tls", "string", "pulsar+ssl://host:port, or ''"),
        Column("advertised_listeners", "string", "JSON object: listener -> URLs"),
        Column("version", "string", "brokerVersionString"),
        Column("load_manager_class", "string", "loadManagerClassName"),
        Column("failure_domain", "string", "failure domain, or ''"),
        Column("capacity", "double", "relative capacity, 1.0 = like the others"),
        Column("starts", "string", "JSON array: ms when first seen, started or back"),
        Column("at_ms", "long", "time of the batch that wrote it"),
        Column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

NAMESPACES = Table(
    name="namespaces",
    doc="Each namespace, with its hash function; row '' stands for all long gone.",
    key=("namespace",),
    gone="is_deleted AND namespace <> ''",
    columns=(
        Column("cluster", "string", "cluster of the namespace"),
        Column("namespace", "string", "tenant/namespace"),
        Column("hash", "string", "crc32 or murmur3_32; fixed at creation"),
        Column("is_deleted", "boolean", "deleted"),
        Column(
            "highest_version",
            "long",
            "highest version id any of its bundles ever had; row '':"
            " of all long gone namespaces; new versions start above it",
        ),
        Column("properties", "string", "JSON object: split algorithm, policies and the like"),
        Column("at_ms", "long", "time of the batch that wrote it"),
        Column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

POLICIES = Table(
    name="policies",
    doc="Policies, drains, pauses, brakes, proposals: the newest row of each kind and name.",
    key=("kind", "name"),
    gone="NOT is_set",
    columns=(
        Column("cluster", "string", "cluster"),
        Column(
            "kind",
            "string",
            "isolation, anti_affinity, excluded, paused, drain, brake, proposal,"
            " set_aside (ignored setting)",
        ),
        Column("name", "string", "policy, namespace or broker; '' = the whole cluster"),
        Column("value", "string", "JSON object; of a drain: total, left, estimated_end_ms, ..."),
        Column("is_set", "boolean", "false: taken back, or over"),
        Column("principal", "string", "who changed it; '' = the balancer"),
        Column("command_id", "string", "command behind it, or ''"),
        Column("at_ms", "long", "time of the batch that wrote it"),
        Column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

PINS = Table(
    name="pins",
    doc="The bundles that operators keep on a broker: the newest row of each bundle.",
    key=("bundle",),
    gone="NOT is_set",
    columns=(
        Column("cluster", "string", "cluster of the bundle"),
        Column("bundle", "string", "tenant/namespace/0xlower_0xupper"),
        Column("broker", "string", "where it is kept"),
        Column("until_ms", "long", "when the pin ends, ms since 1970; 0 = never"),
        Column("owner", "string", "who wants it"),
        Column("reason", "string", "why"),
        Column("is_set", "boolean", "false: unpinned, run out, or the bundle is gone"),
        Column("principal", "string", "who changed it; '' = the balancer"),
        Column("command_id", "string", "command behind it, or ''"),
        Column("at_ms", "long", "time of the batch that wrote it"),
        Column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

CONFIG_VERSIONS = Table(
    name="config_versions",
    doc="Each change of the configuration while running.",
    columns=(
        Column("cluster", "string", "cluster that it is for"),
        Column("number", "long", "the change's number in its cluster, from 1"),
        Column("config_version", "string", "configuration in force from then on"),
        Column("settings", "string", "JSON object: all changed settings, by section.name"),
        Column("principal", "string", "who changed it"),
        Column("command_id", "string", "command behind it"),
        Column("at_ms", "long", "time of the batch that wrote it"),
        Column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

COMMANDS = Table(
    name="commands",
    doc="Each command and its outcome.",
    key=("command_id",),
    columns=(
        Column("cluster", "string", "cluster of the command"),
        Column("command_id", "string", "the requester's id; executed at most once"),
        Column("kind", "string", "what was asked"),
        Column("arguments", "string", "JSON object"),
        Column("principal", "string", "who asked"),
        Column("address", "string", "from where"),
        Column("status", "string", "accepted, done, refused, failed or timed_out"),
        Column("reason", "string", "why it was not done, or ''"),
        Column("result", "string", "JSON object, e.g. the children of a split"),
        Column("at_ms", "long", "time of the batch that wrote it"),
        Column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

AUDIT = Table(
    name="audit",
    doc="Each request that a service allowed or refused and wanted recorded; kept for a year.",
    columns=(
        Column("cluster", "string", "cluster of the request"),
        Column("principal", "string", "who asked"),
        Column("address", "string", "from where"),
        Column("action", "string", "what was asked"),
        Column("is_allowed", "boolean", "whether the service allowed it"),
        Column("reason", "string", "why it was refused, or ''"),
        Column("command_id", "string", "command that followed from it, or ''"),
        Column("at_ms", "long", "time of the batch that wrote it"),
        Column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

DECISIONS = Table(
    name="decisions",
    doc="Each decision, or the reason for none, with the numbers behind it.",
    columns=(
        Column("cluster", "string", "cluster"),
        Column("decision_id", "string", "id that ownership_events refer to"),
        Column("cycle", "long", "number of the decision cycle; from 1 again after a rebuild"),
        Column("kind", "string", "assign, unload, transfer, split, drain, failover, skip, ..."),
        Column("strategy", "string", "strategy that decided"),
        Column("reason", "string", "label, e.g. Overloaded, HitCount, NoBundles"),
        Column("bundle", "string", "bundle, or ''"),
        Column("source", "string", "broker that gives, or ''"),
        Column("destination", "string", "broker that takes, or ''"),
        Column("inputs", "string", "JSON object: loads, averages, hits, thresholds, budgets"),
        Column("config_version", "string", "configuration in force"),
        Column("at_ms", "long", "time of the batch that wrote it"),
        Column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

DECISION_CANDIDATES = Table(
    name="decision_candidates",
    doc="Candidates that a cycle considered, each with its verdict and the number behind it.",
    columns=(
        Column("cluster", "string", "cluster"),
        Column("decision_id", "string", "decision it belongs to; '' = the cycle, by at_ms"),
        Column("cycle", "long", "number of the decision cycle; from 1 again after a rebuild"),
        Column("phase", "string", "eligible, shed, split, assign or limit"),
        Column("subject", "string", "bundle, or broker that might give; '' = a count of the rest"),
        Column("broker", "string", "broker it was considered for, its owner or partner, or ''"),
        Column("verdict", "string", "taken, or the filter or limit that it failed"),
        Column("number", "double", "the number that decided; NaN = none"),
        Column("threshold", "double", "what the number is compared with; NaN = nothing"),
        Column("hits", "long", "observations in a row so far"),
        Column("hits_needed", "long", "observations in a row that it takes; 0 = not counted"),
        Column("count", "long", "how many this row stands for"),
        Column("detail", "string", "JSON object: measure, further levels, reason of a split"),
        Column("at_ms", "long", "time of the batch that wrote it"),
        Column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

DECISION_EFFECTS = Table(
    name="decision_effects",
    doc="What became of each bundle that balancing moved: when, the loads before and after.",
    columns=(
        Column("cluster", "string", "cluster"),
        Column("decision_id", "string", "decision that moved it"),
        Column("bundle", "string", "bundle"),
        Column("source", "string", "broker that gave it"),
        Column("destination", "string", "broker that took it"),
        Column("outcome", "string", "helped, ineffective, unobserved, or moved_elsewhere"),
        Column("decided_ms", "long", "when it was decided, ms since 1970"),
        Column("moved_ms", "long", "when its new owner had opened it; 0 = it never did"),
        Column("source_before", "double", "usage of the source when decided, 1.0 = 100 %"),
        Column(
            "source_after", "double", "the same in its first reports after the move; NaN = none"
        ),
        Column("destination_before", "double", "usage of the destination when decided"),
        Column("destination_after", "double", "the same in its first reports after it"),
        Column("at_ms", "long", "time of the batch that wrote it"),
        Column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

LOAD_HISTORY = Table(
    name="load_history",
    doc="One row a broker and minute, none while it is silent; bundles as arrays of equal length.",
    columns=(
        Column("cluster", "string", "cluster"),
        Column("broker", "string", "broker"),
        Column("minute_ms", "long", "start of the minute, ms since 1970"),
        Column("score", "double", "smoothed broker score, 1.0 = 100 %"),
        Column("percent", "list<double>", f"usage in %: {', '.join(WIRE_NAMES)}"),
        Column("traffic", "list<double>", "msgRateIn, msgRateOut, msgThroughputIn, ...Out"),
        Column("bundles", "list<string>", "names of its bundles"),
        Column("msg_rate_in", "list<double>", "msg/s a bundle"),
        Column("msg_rate_out", "list<double>", "msg/s a bundle"),
        Column("msg_throughput_in", "list<double>", "bytes/s a bundle"),
        Column("msg_throughput_out", "list<double>", "bytes/s a bundle"),
        Column("topics", "list<double>", "topics a bundle"),
        Column("sessions", "list<double>", "producers and consumers a bundle"),
        Column("at_ms", "long", "time of the batch that wrote it"),
        Column("batch_id", "long", "micro-batch that wrote it"),
        Column(
            "reported_ms", "long", "when the broker sent it; null: older Ballast", is_nullable=True
        ),
        Column(
            "usage",
            "double",
            "weighted maximum of its resources, 1.0 = 100 %; null: older Ballast",
            is_nullable=True,
        ),
        Column(
            "broker_group",
            "string",
            "first broker of its isolation group; '': a single group, or in none",
            is_nullable=True,
        ),
    ),
)

REJECTED_REPORTS = Table(
    name="rejected_reports",
    doc="Messages that could not be used, with their reason, and how many were not kept.",
    columns=(
        Column("cluster", "string", "cluster, or '' when it could not be told"),
        Column("topic", "string", "Kafka topic"),
        Column("partition", "int", "Kafka partition"),
        Column("offset", "long", "Kafka offset"),
        Column("timestamp_ms", "long", "Kafka's LogAppendTime"),
        Column("reason", "string", "reason, a closed set"),
        Column("detail", "string", "a sentence that says what is wrong"),
        Column("raw", "binary", "the bytes as they came, at most 16 kB"),
        Column("at_ms", "long", "time of the batch that wrote it"),
        Column("batch_id", "long", "micro-batch that wrote it"),
    ),
)

RECORDS = Table(
    name="records",
    doc="Each tenant and topic that was created. Others exist: brokers report topics.",
    key=("record_type", "name"),
    gone="is_deleted",
    columns=(
        Column("cluster", "string", "cluster of the record"),
        Column("record_type", "string", "tenant or topic"),
        Column("name", "string", "full name, of a partitioned topic without -partition-N"),
        Column(
            "value", "string", "JSON: admin_roles and allowed_clusters, or number of partitions"
        ),
        Column("is_deleted", "boolean", "deleted since"),
        Column("at_ms", "long", "time of the batch that wrote it"),
        Column("batch_id", "long", "micro-batch that wrote it"),
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
    """Return the table of this name. Raises KeyError for an unknown name."""
    return _BY_NAME[name]


_BY_NAME = {table.name: table for table in TABLES}


MONTH = Column(name="month", type="string", doc="month of at_ms, YYYY-MM, UTC; a folder each")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """One table's archive: old rows that may leave the table.

    A row is in the table, in its archive, or for a while in both. identity: rows that are equal in
    these columns are the same row; the job deletes a row only if the archive has it. key: columns
    of which readers see one row, the table's before the archive's: so a command that was carried
    out again under its id has one row. ordered_by: the column that most queries select by. ended:
    SQL condition of rows that no longer change, "" = all.
    """

    table: Table
    identity: tuple[str, ...]
    key: tuple[str, ...]
    ordered_by: str
    ended: str = ""

    @property
    def name(self) -> str:
        """Name of the archive's table, which is beside its source."""
        return f"{self.table.name}_archive"

    @property
    def live_name(self) -> str:
        """Name of the source alone in SQL, where the source's name means both tables."""
        return f"{self.table.name}_live"

    @property
    def is_append_only(self) -> bool:
        """True if each row has a key of its own, so that none is ever replaced."""
        return self.key == self.identity

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the source, and the month."""
        return (*self.table.columns, MONTH)


_EVENT = ("cluster", "bundle", "version_id", "writer_epoch", "batch_id", "seq_in_batch", "at_ms")
EVENTS_ARCHIVE = Archive(
    table=OWNERSHIP_EVENTS,
    identity=_EVENT,
    key=_EVENT,
    ordered_by="bundle",
)
COMMANDS_ARCHIVE = Archive(
    table=COMMANDS,
    identity=("cluster", "command_id", "status", "batch_id", "at_ms"),
    key=("cluster", "command_id"),
    ordered_by="command_id",
    ended="status <> 'accepted'",
)
ARCHIVES: Mapping[str, Archive] = {
    archive.table.name: archive for archive in (EVENTS_ARCHIVE, COMMANDS_ARCHIVE)
}
"""Name of a table → its archive."""
