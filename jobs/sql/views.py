"""The views over the tables: each with its columns and its SQL, declared once.

Decides what a move, a crash and a stay are in SQL. `ballast sql` and Spark make the same views;
only exploding and indexing of arrays is written in each engine's own words. A move and a return are
those of `lbcore.sim.summary`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from lbcore.model.archives import Archive
from lbcore.model.resources import RESOURCES
from lbcore.model.table import Column


class SqlRunner(Enum):
    """Engine of the SQL: DataFusion, in this process, or Spark."""

    DATAFUSION = "datafusion"
    SPARK = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlView:
    """A view. reads: the tables below it, and the views, which come before it."""

    name: str
    doc: str
    reads: tuple[str, ...]
    columns: tuple[Column, ...]
    datafusion: str
    spark: str = ""

    def text(self, engine: SqlRunner) -> str:
        """Its SELECT in the words of an engine; most have one text for both."""
        return self.spark if engine is SqlRunner.SPARK and self.spark else self.datafusion

    def statement(self, engine: SqlRunner) -> str:
        """Return the statement that creates the view for the session."""
        temporary = "TEMPORARY " if engine is SqlRunner.SPARK else ""
        return f"CREATE OR REPLACE {temporary}VIEW {self.name} AS {self.text(engine)}"


def _column(name: str, type_: str, doc: str, *, is_nullable: bool = False) -> Column:
    return Column(name=name, type=type_, doc=doc, is_nullable=is_nullable)


def instant(column: str) -> str:
    """An instant to the second, from milliseconds since 1970."""
    return f"CAST(from_unixtime(CAST({column} / 1000 AS BIGINT)) AS TIMESTAMP)"


def day(column: str) -> str:
    """Its day, UTC."""
    return f"CAST(from_unixtime(CAST({column} / 1000 AS BIGINT)) AS DATE)"


_CLUSTER = _column("cluster", "string", "cluster")
_BUNDLE = (
    _column("namespace", "string", "tenant/namespace"),
    _column("bundle", "string", "tenant/namespace/0xlower_0xupper"),
)

STAYS = SqlView(
    name="stays",
    doc="How long each record of a bundle stood until the next one.",
    reads=("ownership_events",),
    columns=(
        _CLUSTER,
        *_BUNDLE,
        _column("version_id", "long", "version of the record"),
        _column("state", "string", "its state"),
        _column("broker", "string", "who had to act: of Releasing and Splitting the source"),
        _column("cause", "string", "why it was written"),
        _column("began_ms", "long", "when it was written, ms since 1970"),
        _column(
            "lasted_ms", "long", "until the next record; null: it still stands", is_nullable=True
        ),
        _column("next_state", "string", "state after it; null: it still stands", is_nullable=True),
        _column("day", "date", "day on which it was written, UTC"),
    ),
    datafusion=f"""
SELECT cluster, namespace, bundle, version_id, state,
  CASE WHEN state IN ('Releasing', 'Splitting') THEN source ELSE destination END AS broker,
  cause, at_ms AS began_ms,
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
        _column("version_id", "long", "version with which the new owner had it"),
        _column("from_broker", "string", "owner before"),
        _column("to_broker", "string", "owner after"),
        _column("cause", "string", "what began it: shed, admin, failover, drain, repair, ..."),
        _column("decision_id", "string", "decision behind what began it, or ''"),
        _column("command_id", "string", "command behind what began it, or ''"),
        _column("began_ms", "long", "when it began, ms since 1970"),
        _column("opened_ms", "long", "when the new owner had opened it"),
        _column("took_ms", "long", "between the two"),
        _column("opened_at", "timestamp", "opened_ms, UTC, to the second"),
        _column("day", "date", "its day"),
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
        _column("version_id", "long", "version of the move back"),
        _column("broker", "string", "the owner it came back to"),
        _column("away_ms", "long", "for how long it was away"),
        _column("day", "date", "day of the move back, UTC"),
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
        _column("broker", "string", "the dead broker"),
        _column("decision_id", "string", "the decision; a crash may take several"),
        _column("reason", "string", "owner_dead, source_dead or destination_dead"),
        _column("declared_ms", "long", "when it was taken for dead, ms since 1970"),
        _column("declared_at", "timestamp", "the same, UTC, to the second"),
        _column("bundles", "long", "bundles that were given to others"),
        _column("reopened", "long", "of these, opened by a new owner"),
        _column(
            "took_ms", "long", "until the last was open; null: some are not yet", is_nullable=True
        ),
        _column("day", "date", "day of the decision, UTC"),
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
        _column("broker", "string", "broker"),
        _column("minute_ms", "long", "start of the minute, ms since 1970"),
        _column("minute", "timestamp", "the same, UTC"),
        _column("score", "double", "smoothed score, per cent"),
        *(_column(name, "double", "per cent of its limit") for name in _PERCENTS),
        _column("msg_rate_in", "double", "msg/s"),
        _column("msg_rate_out", "double", "msg/s"),
        _column("msg_throughput_in", "double", "bytes/s"),
        _column("msg_throughput_out", "double", "bytes/s"),
        _column("usage", "double", "weighted maximum of its resources, per cent"),
        _column("msg_rate", "double", "msg/s in and out"),
        _column("bundles", "long", "bundles that it served"),
        _column("broker_group", "string", "as in load_history", is_nullable=True),
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
        _column("broker", "string", "broker that reported it"),
        _column("minute_ms", "long", "start of the minute, ms since 1970"),
        _column("bundle", "string", "tenant/namespace/0xlower_0xupper"),
        _column("msg_rate_in", "double", "msg/s"),
        _column("msg_rate_out", "double", "msg/s"),
        _column("msg_throughput_in", "double", "bytes/s"),
        _column("msg_throughput_out", "double", "bytes/s"),
        _column("topics", "double", "its topics"),
        _column("sessions", "double", "its producers and consumers"),
        _column("msg_rate", "double", "msg/s in and out"),
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
        _column("state", "string", "Free, Owned, Assigning, Releasing or Splitting"),
        _column("broker", "string", "who serves it, or '' when nobody does"),
        _column("next_broker", "string", "who is to get it, or ''"),
        _column("version_id", "long", "version of the record"),
        _column("since_ms", "long", "since when, ms since 1970"),
        _column("since", "timestamp", "the same, UTC, to the second"),
    ),
    datafusion=f"""
SELECT cluster, namespace, bundle, state,
  CASE WHEN state = 'Owned' THEN destination
    WHEN state IN ('Releasing', 'Splitting') THEN source ELSE '' END AS broker,
  CASE WHEN state IN ('Assigning', 'Releasing') THEN destination ELSE '' END AS next_broker,
  version_id, at_ms AS since_ms, {instant("at_ms")} AS since
FROM bundle_ownership WHERE state NOT IN ('Deleted', 'Init')""",
)


def one_table(live: str) -> str:
    """A SELECT of a table that has no archive. live: what the engine calls it."""
    return f"SELECT * FROM {live}"


def whole_table(archive: Archive, live: str, archived: str) -> str:
    """A SELECT of a table and its archive as one. live, archived: what the engine calls them.

    A row that has moved is in both until the job lets it go, and is given once. The table is named
    once, so that an engine can't read it at two moments.
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
