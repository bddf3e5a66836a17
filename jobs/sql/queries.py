"""Ready queries of `ballast sql` and their views, for DataFusion and Spark.

Each query says how its answer is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lbcore.model.resources import RESOURCES
from lbcore.model.tables import Archive, Column


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlView:
    """A view. reads: the tables below it, and the views, which come before it.

    datafusion: its SELECT. spark: that for Spark, "" = the same.
    """

    name: str
    doc: str
    reads: tuple[str, ...]
    columns: tuple[Column, ...]
    datafusion: str
    spark: str = ""


def instant(column: str) -> str:
    """An instant to the second, from milliseconds since 1970."""
    return f"CAST(from_unixtime(CAST({column} / 1000 AS BIGINT)) AS TIMESTAMP)"


def day(column: str) -> str:
    """Its day, UTC."""
    return f"CAST(from_unixtime(CAST({column} / 1000 AS BIGINT)) AS DATE)"


_CLUSTER = Column("cluster", "string", "cluster")
_BUNDLE = (
    Column("namespace", "string", "tenant/namespace"),
    Column("bundle", "string", "tenant/namespace/0xlower_0xupper"),
)

STAYS = SqlView(
    name="stays",
    doc="How long each record of a bundle stood until the next one.",
    reads=("ownership_events",),
    columns=(
        _CLUSTER,
        *_BUNDLE,
        Column("version_id", "long", "version of the record"),
        Column("state", "string", "its state"),
        Column("broker", "string", "who had to act: of Releasing, Splitting, Merging the source"),
        Column("cause", "string", "why it was written"),
        Column("began_ms", "long", "when it was written, ms since 1970"),
        Column(
            "lasted_ms", "long", "until the next record; null: it still stands", is_nullable=True
        ),
        Column("next_state", "string", "state after it; null: it still stands", is_nullable=True),
        Column("day", "date", "day on which it was written, UTC"),
    ),
    datafusion=f"""
SELECT cluster, namespace, bundle, version_id, state,
  CASE WHEN state IN ('Releasing', 'Splitting', 'Merging') THEN source ELSE destination
    END AS broker, cause, at_ms AS began_ms,
  LEAD(at_ms) OVER (PARTITION BY cluster, bundle ORDER BY version_id) - at_ms AS lasted_ms,
  LEAD(state) OVER (PARTITION BY cluster, bundle ORDER BY version_id) AS next_state,
  {day("at_ms")} AS day
FROM ownership_events""",
)

MOVES = SqlView(
    name="moves",
    doc="Each change of a bundle's owner, from what began it until the new owner had opened it.",
    reads=("ownership_events",),
    columns=(
        _CLUSTER,
        *_BUNDLE,
        Column("version_id", "long", "version with which the new owner had it"),
        Column("from_broker", "string", "owner before"),
        Column("to_broker", "string", "owner after"),
        Column("cause", "string", "what began it: shed, admin, failover, drain, repair, ..."),
        Column("decision_id", "string", "decision behind what began it, or ''"),
        Column("command_id", "string", "command behind what began it, or ''"),
        Column("began_ms", "long", "when it began, ms since 1970"),
        Column("opened_ms", "long", "when the new owner had opened it"),
        Column("took_ms", "long", "between the two"),
        Column("opened_at", "timestamp", "opened_ms, UTC, to the second"),
        Column("day", "date", "its day"),
    ),
    datafusion=f"""
WITH counted AS (
  SELECT *,
    COALESCE(SUM(CASE WHEN state IN ('Deleted', 'Init') THEN 1 ELSE 0 END) OVER (
      PARTITION BY cluster, bundle ORDER BY version_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS life,
    COALESCE(SUM(CASE WHEN state = 'Owned' THEN 1 ELSE 0 END) OVER (
      PARTITION BY cluster, bundle ORDER BY version_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS hop
  FROM ownership_events),
begun AS (
  SELECT *,
    FIRST_VALUE(at_ms) OVER (
      PARTITION BY cluster, bundle, life, hop ORDER BY version_id) AS began_ms,
    FIRST_VALUE(cause) OVER (
      PARTITION BY cluster, bundle, life, hop ORDER BY version_id) AS began_by,
    FIRST_VALUE(decision_id) OVER (
      PARTITION BY cluster, bundle, life, hop ORDER BY version_id) AS began_decision,
    FIRST_VALUE(command_id) OVER (
      PARTITION BY cluster, bundle, life, hop ORDER BY version_id) AS began_command
  FROM counted),
owned AS (
  SELECT *,
    LAG(destination) OVER (PARTITION BY cluster, bundle, life ORDER BY version_id) AS left_broker
  FROM begun WHERE state = 'Owned')
SELECT cluster, namespace, bundle, version_id, left_broker AS from_broker,
  destination AS to_broker, began_by AS cause, began_decision AS decision_id,
  began_command AS command_id, began_ms, at_ms AS opened_ms, at_ms - began_ms AS took_ms,
  {instant("at_ms")} AS opened_at, {day("at_ms")} AS day
FROM owned WHERE left_broker IS NOT NULL AND left_broker <> destination""",
)

RETURNS = SqlView(
    name="returns",
    doc="The moves that brought a bundle back to an owner it had left less than an hour before.",
    reads=("moves",),
    columns=(
        _CLUSTER,
        *_BUNDLE,
        Column("version_id", "long", "version of the move back"),
        Column("broker", "string", "the owner it came back to"),
        Column("away_ms", "long", "for how long it was away"),
        Column("day", "date", "day of the move back, UTC"),
    ),
    datafusion="""
SELECT m.cluster, m.namespace, m.bundle, m.version_id, m.to_broker AS broker,
  m.opened_ms - MAX(e.opened_ms) AS away_ms, m.day
FROM moves m JOIN moves e ON e.cluster = m.cluster AND e.bundle = m.bundle
  AND e.from_broker = m.to_broker AND e.version_id < m.version_id
WHERE m.opened_ms - e.opened_ms < 3600000
GROUP BY m.cluster, m.namespace, m.bundle, m.version_id, m.to_broker, m.opened_ms, m.day""",
)

CRASHES = SqlView(
    name="crashes",
    doc="Each failover decision: the bundles of one dead broker, and when all were open elsewhere.",
    reads=("decisions", "ownership_events"),
    columns=(
        _CLUSTER,
        Column("broker", "string", "the dead broker"),
        Column("decision_id", "string", "the decision; a crash may take several"),
        Column("reason", "string", "owner_dead, source_dead or destination_dead"),
        Column("declared_ms", "long", "when it was taken for dead, ms since 1970"),
        Column("declared_at", "timestamp", "the same, UTC, to the second"),
        Column("bundles", "long", "bundles that were given to others"),
        Column("reopened", "long", "of these, opened by a new owner"),
        Column(
            "took_ms", "long", "until the last was open; null: some are not yet", is_nullable=True
        ),
        Column("day", "date", "day of the decision, UTC"),
    ),
    datafusion=f"""
WITH lost AS (
  SELECT e.cluster, e.decision_id, e.bundle, MIN(o.at_ms) AS opened_ms
  FROM ownership_events e
  LEFT JOIN (SELECT * FROM ownership_events WHERE state = 'Owned') o
    ON o.cluster = e.cluster AND o.bundle = e.bundle AND o.version_id > e.version_id
  WHERE e.cause = 'failover' AND e.state_before <> e.state OR e.cause = 'failover' AND e.is_forced
  GROUP BY e.cluster, e.decision_id, e.bundle)
SELECT d.cluster, d.source AS broker, d.decision_id, d.reason, d.at_ms AS declared_ms,
  {instant("d.at_ms")} AS declared_at, COUNT(l.bundle) AS bundles,
  COUNT(l.opened_ms) AS reopened,
  CASE WHEN COUNT(l.opened_ms) = COUNT(l.bundle) THEN MAX(l.opened_ms) - d.at_ms END AS took_ms,
  {day("d.at_ms")} AS day
FROM decisions d
LEFT JOIN lost l ON l.cluster = d.cluster AND l.decision_id = d.decision_id
WHERE d.kind = 'failover'
GROUP BY d.cluster, d.source, d.decision_id, d.reason, d.at_ms""",
)

_PERCENTS = tuple(one.name for one in RESOURCES)
_TRAFFIC = ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")


def _broker_loads(first: int) -> str:
    """first: the index of an array's first element."""
    percents = ", ".join(f"percent[{at}] AS {name}" for at, name in enumerate(_PERCENTS, first))
    traffic = ", ".join(f"traffic[{at}] AS {name}" for at, name in enumerate(_TRAFFIC, first))
    usage = ", ".join(f"percent[{at}]" for at, one in enumerate(RESOURCES, first) if one.is_local)
    return f"""
SELECT cluster, broker, minute_ms, {instant("minute_ms")} AS minute, 100 * score AS score,
  {percents}, {traffic}, COALESCE(100 * usage, GREATEST({usage})) AS usage,
  traffic[{first}] + traffic[{first + 1}] AS msg_rate, cardinality(bundles) AS bundles,
  broker_group
FROM load_history"""


BROKER_LOADS = SqlView(
    name="broker_loads",
    doc="Each broker's load by the minute, a column a resource.",
    reads=("load_history",),
    columns=(
        _CLUSTER,
        Column("broker", "string", "broker"),
        Column("minute_ms", "long", "start of the minute, ms since 1970"),
        Column("minute", "timestamp", "the same, UTC"),
        Column("score", "double", "smoothed score, per cent"),
        *(Column(name, "double", "per cent of its limit") for name in _PERCENTS),
        Column("msg_rate_in", "double", "msg/s"),
        Column("msg_rate_out", "double", "msg/s"),
        Column("msg_throughput_in", "double", "bytes/s"),
        Column("msg_throughput_out", "double", "bytes/s"),
        Column("usage", "double", "weighted maximum of its resources, per cent"),
        Column("msg_rate", "double", "msg/s in and out"),
        Column("bundles", "long", "bundles that it served"),
        Column("broker_group", "string", "as in load_history", is_nullable=True),
    ),
    datafusion=_broker_loads(1),
    spark=_broker_loads(0),
)

_ARRAYS = ("bundles", *_TRAFFIC, "topics", "sessions")

BUNDLE_LOADS = SqlView(
    name="bundle_loads",
    doc="Each bundle's load by the minute, at the broker that served it.",
    reads=("load_history",),
    columns=(
        _CLUSTER,
        Column("broker", "string", "broker that reported it"),
        Column("minute_ms", "long", "start of the minute, ms since 1970"),
        Column("bundle", "string", "tenant/namespace/0xlower_0xupper"),
        Column("msg_rate_in", "double", "msg/s"),
        Column("msg_rate_out", "double", "msg/s"),
        Column("msg_throughput_in", "double", "bytes/s"),
        Column("msg_throughput_out", "double", "bytes/s"),
        Column("topics", "double", "its topics"),
        Column("sessions", "double", "its producers and consumers"),
        Column("msg_rate", "double", "msg/s in and out"),
    ),
    datafusion=f"""
SELECT cluster, broker, minute_ms, bundles AS bundle, msg_rate_in, msg_rate_out,
  msg_throughput_in, msg_throughput_out, topics, sessions, msg_rate_in + msg_rate_out AS msg_rate
FROM (SELECT cluster, broker, minute_ms,
  {", ".join(f"unnest({name}) AS {name}" for name in _ARRAYS)} FROM load_history)""",
    spark=f"""
SELECT cluster, broker, minute_ms, row.bundles AS bundle, row.msg_rate_in, row.msg_rate_out,
  row.msg_throughput_in, row.msg_throughput_out, row.topics, row.sessions,
  row.msg_rate_in + row.msg_rate_out AS msg_rate
FROM (SELECT cluster, broker, minute_ms,
  explode(arrays_zip({", ".join(_ARRAYS)})) AS row FROM load_history)""",
)

NEWEST_LOADS = SqlView(
    name="newest_loads",
    doc="The newest row of broker_loads of each broker.",
    reads=("broker_loads",),
    columns=BROKER_LOADS.columns,
    datafusion=f"""
SELECT {", ".join(column.name for column in BROKER_LOADS.columns)}
FROM (SELECT *, ROW_NUMBER() OVER (
  PARTITION BY cluster, broker ORDER BY minute_ms DESC) AS place FROM broker_loads) ranked
WHERE place = 1""",
)

OWNERS = SqlView(
    name="owners",
    doc="Who has each bundle now; without those that are gone.",
    reads=("bundle_ownership",),
    columns=(
        _CLUSTER,
        *_BUNDLE,
        Column("state", "string", "Free, Owned, Assigning, Releasing, Splitting or Merging"),
        Column("broker", "string", "who serves it, or '' when nobody does"),
        Column("next_broker", "string", "who is to get it, or ''"),
        Column("version_id", "long", "version of the record"),
        Column("since_ms", "long", "since when, ms since 1970"),
        Column("since", "timestamp", "the same, UTC, to the second"),
    ),
    datafusion=f"""
SELECT cluster, namespace, bundle, state,
  CASE WHEN state = 'Owned' THEN destination
    WHEN state IN ('Releasing', 'Splitting', 'Merging') THEN source ELSE '' END AS broker,
  CASE WHEN state IN ('Assigning', 'Releasing') THEN destination ELSE '' END AS next_broker,
  version_id, at_ms AS since_ms, {instant("at_ms")} AS since
FROM bundle_ownership WHERE state NOT IN ('Deleted', 'Init')""",
)


def one_table(live: str) -> str:
    """A SELECT of a table that has no archive. live: what the engine calls it."""
    return f"SELECT * FROM {live}"


def whole_table(archive: Archive, live: str, archived: str) -> str:
    """Return a SELECT of a table with its archive.

    live, archived: what the engine calls them. A row that has moved is in both until the job lets
    it go, and is given once. The table is named once, so that an engine can't read it at two
    moments.
    """
    columns = ", ".join(column.name for column in archive.table.columns)
    same = " AND ".join(f"l.{name} = a.{name}" for name in archive.key)
    return f"""
WITH live AS (SELECT {columns} FROM {live})
SELECT {columns} FROM live
UNION ALL
SELECT {columns} FROM {archived} a WHERE NOT EXISTS (SELECT 1 FROM live l WHERE {same})"""


def with_nulls(name: str, columns: Sequence[Column]) -> str:
    """A SELECT of a table of an older version, with null in the columns that it lacks."""
    types = {"long": "BIGINT", "double": "DOUBLE", "string": "VARCHAR"}
    nulls = (f"CAST(NULL AS {types[one.type]}) AS {one.name}" for one in columns)
    return f"SELECT *, {', '.join(nulls)} FROM {name}"


VIEWS = (
    OWNERS,
    STAYS,
    MOVES,
    RETURNS,
    CRASHES,
    BROKER_LOADS,
    NEWEST_LOADS,
    BUNDLE_LOADS,
)
"""In an order in which they can be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A ready query.

    question: what it answers; reading: what is normal, and what to do if not. The rows come in an
    order that depends on nothing but the tables.
    """

    name: str
    question: str
    reading: str
    text: str


def _oldest_rows(*tables: str) -> str:
    """Rows of plans stay for ever and say nothing of how far back the others reach."""
    but = {"decisions": " WHERE kind <> 'plan'"}
    parts = (
        f"SELECT cluster, '{name}' AS about, COUNT(*) AS row_count, "
        f"{instant('MIN(at_ms)')} AS since, {instant('MAX(at_ms)')} AS until "
        f"FROM {name}{but.get(name, '')} GROUP BY cluster"
        for name in tables
    )
    return "\n" + "\nUNION ALL ".join(parts) + "\nORDER BY cluster, about"


QUERIES = (
    Query(
        name="most-moved",
        question="Which bundles moved most?",
        reading="A bundle that moves more than a few times a day is too large for where it goes "
        "(split it), or its load comes and goes (pin it, or raise the hits that are needed).",
        text="""
SELECT cluster, bundle, COUNT(*) AS moves, COUNT(DISTINCT to_broker) AS owners,
  SUM(CASE WHEN cause = 'shed' THEN 1 ELSE 0 END) AS shed,
  SUM(CASE WHEN cause = 'failover' THEN 1 ELSE 0 END) AS failovers, MAX(opened_at) AS last_at
FROM moves GROUP BY cluster, bundle
ORDER BY moves DESC, cluster, bundle LIMIT 50""",
    ),
    Query(
        name="thrash-by-day",
        question="How many moves took a bundle back to where it had just been?",
        reading="`thrash` is returns within an hour / moves; 0 is normal. Above 0.05 balancing "
        "works against itself: thresholds too close to the load's noise, or too few hits.",
        text="""
SELECT m.cluster, m.day, COUNT(*) AS moves, COUNT(r.version_id) AS returns,
  ROUND(CAST(COUNT(r.version_id) AS DOUBLE) / COUNT(*), 4) AS thrash
FROM moves m LEFT JOIN returns r
  ON r.cluster = m.cluster AND r.bundle = m.bundle AND r.version_id = m.version_id
GROUP BY m.cluster, m.day ORDER BY m.cluster, m.day""",
    ),
    Query(
        name="no-help",
        question="Which decisions did not help?",
        reading="Compare each side before and after: a bundle that takes its load along needs a "
        "split. `unobserved`: a broker did not report in time; `moved_elsewhere`: something else "
        "came in between.",
        text="""
SELECT e.cluster, e.decision_id, d.strategy, d.reason, e.bundle, e.source, e.destination,
  e.outcome, ROUND(100 * e.source_before, 1) AS source_before,
  ROUND(100 * e.source_after, 1) AS source_after,
  ROUND(100 * e.destination_before, 1) AS destination_before,
  ROUND(100 * e.destination_after, 1) AS destination_after
FROM decision_effects e
LEFT JOIN decisions d ON d.cluster = e.cluster AND d.decision_id = e.decision_id
WHERE e.outcome <> 'helped'
ORDER BY e.decided_ms DESC, e.cluster, e.decision_id LIMIT 200""",
    ),
    Query(
        name="near-limits",
        question="Which brokers are near their limits?",
        reading="The newest minute of each broker. Above 85 in one column a broker has no room "
        "for a failover; when all are, the cluster is too small and no move helps.",
        text="""
SELECT l.cluster, l.broker, b.state, ROUND(l.usage, 1) AS highest, ROUND(l.cpu, 1) AS cpu_percent,
  ROUND(l.memory, 1) AS memory_percent, ROUND(l.direct_memory, 1) AS direct_percent,
  ROUND(l.bandwidth_in, 1) AS in_percent, ROUND(l.bandwidth_out, 1) AS out_percent,
  l.bundles, l.minute
FROM newest_loads l
JOIN brokers b ON b.cluster = l.cluster AND b.broker = l.broker
WHERE b.state <> 'forgotten'
ORDER BY highest DESC, l.cluster, l.broker""",
    ),
    Query(
        name="crash-recovery",
        question="How long did it take until a dead broker's bundles were open elsewhere?",
        reading="`took_ms` counts from the decision; the timeout before it is "
        "`ownership.broker_timeout_ms`. Some seconds are normal; null: bundles are still closed, "
        "`ballast status` shows where.",
        text="""
SELECT cluster, declared_at, broker, reason, bundles, reopened, took_ms, decision_id
FROM crashes ORDER BY declared_ms DESC, cluster, decision_id""",
    ),
    Query(
        name="staleness",
        question="For how long could lookups learn nothing new?",
        reading="By the hour: the longest time between two batches that wrote a cycle, a load "
        "report or a transition; for so long every lookup was answered from the same tables. "
        "About the decision interval is normal; minutes: the job was away.",
        text="""
SELECT cluster, CAST(from_unixtime(CAST(at_ms / 1000 AS BIGINT)
    - CAST(at_ms / 1000 AS BIGINT) % 3600) AS TIMESTAMP) AS hour,
  COUNT(*) AS batches, MAX(at_ms - before_ms) AS longest_gap_ms
FROM (SELECT cluster, at_ms,
    LAG(at_ms) OVER (PARTITION BY cluster ORDER BY at_ms) AS before_ms
  FROM (SELECT cluster, at_ms FROM ownership_events UNION SELECT cluster, at_ms FROM decisions
    UNION SELECT cluster, at_ms FROM load_history) written) gaps
GROUP BY 1, 2 ORDER BY 1, 2""",
    ),
    Query(
        name="why-moved",
        question="What moved bundles, by day?",
        reading="`shed` is balancing; `failover` crashes; `admin` commands; `repair` transitions "
        "that were stuck: those should be few.",
        text="""
SELECT m.cluster, m.day, m.cause, COALESCE(d.strategy, '') AS strategy,
  COALESCE(d.reason, '') AS reason, COUNT(*) AS moves,
  ROUND(AVG(m.took_ms), 0) AS mean_took_ms, MAX(m.took_ms) AS longest_took_ms
FROM moves m
LEFT JOIN decisions d ON d.cluster = m.cluster AND d.decision_id = m.decision_id
GROUP BY m.cluster, m.day, m.cause, COALESCE(d.strategy, ''), COALESCE(d.reason, '')
ORDER BY m.cluster, m.day, moves DESC, m.cause, strategy, reason""",
    ),
    Query(
        name="skips",
        question="Why did cycles do nothing?",
        reading="`NoOverloadedBroker` is normal; `HitCount` waits for more reports; `NoBundles` "
        "for hours means that what is hot can't be moved: `ballast explain broker` says why.",
        text=f"""
SELECT cluster, {day("at_ms")} AS day, strategy, reason, COUNT(*) AS cycles,
  MIN(cycle) AS first_cycle, MAX(cycle) AS last_cycle
FROM decisions WHERE kind = 'skip'
GROUP BY cluster, {day("at_ms")}, strategy, reason
ORDER BY cluster, day, cycles DESC, strategy, reason""",
    ),
    Query(
        name="slow-transitions",
        question="How long do bundles stay between two owners?",
        reading="Time in each passing state, by day and by the broker that had to act; one broker "
        "with far longer ones is slow to open or close: read its log.",
        text="""
SELECT cluster, day, state, broker, COUNT(*) AS times, ROUND(AVG(lasted_ms), 0) AS mean_ms,
  MAX(lasted_ms) AS longest_ms
FROM stays WHERE lasted_ms IS NOT NULL
  AND state IN ('Assigning', 'Releasing', 'Splitting', 'Merging')
GROUP BY cluster, day, state, broker
ORDER BY longest_ms DESC, cluster, day, state, broker LIMIT 100""",
    ),
    Query(
        name="hot-bundles",
        question="Which bundles are the hottest, and how much of their broker are they?",
        reading="A `share` above 0.5 can't be balanced by moving: the hot spot would move along. "
        "It needs a split, `ballast bundle split`.",
        text="""
SELECT b.cluster, b.bundle, b.broker, ROUND(b.msg_rate, 1) AS msg_per_s,
  ROUND((b.msg_throughput_in + b.msg_throughput_out) / 1048576, 3) AS mib_per_s, b.topics,
  CASE WHEN l.msg_rate > 0 THEN ROUND(b.msg_rate / l.msg_rate, 4) END AS share
FROM bundle_loads b JOIN newest_loads l
  ON l.cluster = b.cluster AND l.broker = b.broker AND l.minute_ms = b.minute_ms
JOIN (SELECT cluster, MAX(minute_ms) AS minute_ms FROM load_history GROUP BY cluster) n
  ON n.cluster = b.cluster AND n.minute_ms = b.minute_ms
ORDER BY msg_per_s DESC, b.cluster, b.bundle, b.broker LIMIT 50""",
    ),
    Query(
        name="imbalance",
        question="How even was the load, by the minute?",
        reading="`imbalance` is max / mean of the brokers' message rates, 1 is even. "
        "`floor_adjusted` is max / max(mean, hottest bundle), because moves can't divide a bundle. "
        "Isolation policies make several groups, each with its row; one without a group is then "
        "that of draining brokers.",
        text="""
SELECT l.cluster, l.minute, l.broker_group, COUNT(*) AS brokers,
  ROUND(AVG(l.msg_rate), 1) AS mean_msg_rate,
  ROUND(MAX(l.msg_rate), 1) AS most_msg_rate,
  CASE WHEN AVG(l.msg_rate) > 0 THEN ROUND(MAX(l.msg_rate) / AVG(l.msg_rate), 3) END AS imbalance,
  CASE WHEN AVG(l.msg_rate) > 0 THEN ROUND(MAX(l.msg_rate)
    / GREATEST(AVG(l.msg_rate), COALESCE(MAX(h.hottest), 0)), 3) END AS floor_adjusted
FROM broker_loads l
LEFT JOIN (SELECT cluster, broker, minute_ms, MAX(msg_rate) AS hottest
    FROM bundle_loads GROUP BY cluster, broker, minute_ms) h
  ON h.cluster = l.cluster AND h.broker = l.broker AND h.minute_ms = l.minute_ms
GROUP BY l.cluster, l.minute, l.minute_ms, l.broker_group
ORDER BY l.cluster, l.minute_ms DESC, l.broker_group LIMIT 1440""",
    ),
    Query(
        name="why-not",
        question="What kept bundles and brokers from being chosen?",
        reading="`verdict` is the filter or limit that said no, `taken` those that were chosen; "
        "docs/tables.md explains the phases. One verdict far above the others is what to look at.",
        text="""
SELECT cluster, phase, verdict, SUM(count) AS times, COUNT(DISTINCT at_ms) AS cycles
FROM decision_candidates GROUP BY cluster, phase, verdict
ORDER BY cluster, phase, times DESC, verdict""",
    ),
    Query(
        name="who-has-what",
        question="How many bundles does each broker serve, and how many are under way?",
        reading="A broker '' is nobody: bundles that are free, or not open yet. Many of them for "
        "long: `ballast status` says why.",
        text="""
SELECT cluster, broker, state, COUNT(*) AS bundles, COUNT(DISTINCT namespace) AS namespaces,
  MIN(since) AS oldest
FROM owners GROUP BY cluster, broker, state ORDER BY cluster, broker, state""",
    ),
    Query(
        name="commands",
        question="Who asked for what, and what became of it?",
        reading="`refused`, `failed` and `timed_out` have a reason in the table `commands`.",
        text=f"""
SELECT cluster, {day("at_ms")} AS day, kind, principal, status, COUNT(*) AS commands
FROM commands GROUP BY cluster, {day("at_ms")}, kind, principal, status
ORDER BY cluster, day, kind, principal, status""",
    ),
    Query(
        name="rejected",
        question="Which messages could not be used, and why?",
        reading="None is normal. The table `rejected_reports` has them; a row `not_kept` counts, in"
        " `detail`, those over the daily limit.",
        text=f"""
SELECT cluster, {day("at_ms")} AS day, topic, reason, COUNT(*) AS messages, MAX(detail) AS such_as
FROM rejected_reports GROUP BY cluster, {day("at_ms")}, topic, reason
ORDER BY cluster, day, messages DESC, topic, reason""",
    ),
    Query(
        name="reach",
        question="How far back does each table tell?",
        reading="Nothing is known of before `since`. Rows go after the time that docs/tables.md "
        "says. `brokers`, `namespaces`, `policies` and `pins` have the newest row of a key alone.",
        text=_oldest_rows(
            "ownership_events",
            "commands",
            "decisions",
            "decision_candidates",
            "decision_effects",
            "load_history",
            "rejected_reports",
            "audit",
        ),
    ),
)
