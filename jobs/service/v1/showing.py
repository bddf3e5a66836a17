"""State of the cluster, its brokers, namespaces, pins and policies, as JSON.

Settings, decisions, load over time (view Heat) and what has happened (view Timeline), too. All are
rows of tables; `jobs.operating` bounds the answers.
"""

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from jobs.adapters.delta.rows import is_one_of, literal, of_cluster
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.processes.clocks import wall_ms
from jobs.console import MisuseError
from jobs.operating.answers import BUNDLE_ORDERS, read_bundles
from jobs.operating.answers import BUNDLES_MAX as LISTED_MAX
from jobs.operating.connection_options import started_with
from jobs.operating.status import read_overview, read_status_rows
from jobs.service.access import ANY, Role
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError, Reply, Request, json_reply
from jobs.service.routes import TEXT, Example, Handler, Route, TextQuery, WholeQuery, reading
from jobs.service.v1.reading import (
    ReadCache,
    TableQuestion,
    in_background,
    table_route,
)
from jobs.sql.engine import SqlEngine, plain_rows
from lbcore.balancer.brokers import SILENCE
from lbcore.config.load import reported_rows
from lbcore.config.tree import DEFAULT, SETTINGS, Config, value_of
from lbcore.explain.job_state import JobContext
from lbcore.explain.reasons import reason_message
from lbcore.explain.recent_findings import moves_message, silence_message
from lbcore.explain.status import ClusterStatus, ExplainedDecision, Moment, make_status
from lbcore.model.names import InvalidNameError, check_namespace
from lbcore.model.resources import RESOURCES
from lbcore.model.tables import (
    BROKERS,
    DECISIONS,
    LOAD_HISTORY,
    NAMESPACES,
    OWNERSHIP_EVENTS,
    PINS,
    POLICIES,
)
from lbcore.model.times import DAY_MS, HOUR_MS, MINUTE_MS
from lbcore.route.slices import LEFT_OUT
from lbcore.validation.check import in_force

_TRAFFIC = {
    "msg_rate": "msg/s",
    "msg_rate_in": "msg/s",
    "msg_rate_out": "msg/s",
    "msg_throughput_in": "bytes/s",
    "msg_throughput_out": "bytes/s",
}
OF_BROKERS = {
    "usage": "%",
    "score": "%",
    **{one.name: "%" for one in RESOURCES},
    **_TRAFFIC,
    "bundles": "bundles",
}
"""Measures of a broker's row → unit."""
OF_BUNDLES = {**_TRAFFIC, "topics": "topics", "sessions": "sessions"}
"""Measures of a bundle's row → unit."""

MOMENTS_MAX = 120
BROKERS_MAX = 1_000
BUNDLES_MAX = 200
_DIGITS = 4


def read_heat(
    reader: TableReader, *, by: str, until_ms: int, window_ms: int, broker: str = ""
) -> dict[str, Any]:
    """Return the heat map: "values" is names × moments, None = nothing reported.

    by: a key of OF_BROKERS, or of OF_BUNDLES for a broker's bundles. until_ms: the end of the
    window, ms since 1970. broker: "" = all brokers, else its bundles. A moment has the width of
    whole minutes, with at most MOMENTS_MAX in the window. Rows in name order. left_out: number of
    rows with lower peaks that are not among them.
    """
    view, subject = ("bundle_loads", "bundle") if broker else ("broker_loads", "broker")
    step_ms = max(1, -(-window_ms // (MINUTE_MS * (MOMENTS_MAX - 1)))) * MINUTE_MS
    since_ms = (until_ms - window_ms) // step_ms * step_ms
    moments = range(since_ms, until_ms // step_ms * step_ms + 1, step_ms)
    where = [
        of_cluster(reader.cluster),
        f"minute_ms >= {since_ms}",
        f"minute_ms <= {until_ms}",
        *([f"broker = {literal(broker)}"] if broker else []),
    ]
    asked = f"SELECT {subject}, minute_ms - minute_ms % {step_ms} AS at_ms, MAX({by}) AS most"
    rows = f" FROM {view} WHERE {' AND '.join(where)} GROUP BY 1, 2"
    found: pa.Table = SqlEngine(reader.root, (LOAD_HISTORY.name,)).query(asked + rows)
    cells = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    names, left_out = _shown(cells, BUNDLES_MAX if broker else BROKERS_MAX)
    row_of = {name: at for at, name in enumerate(names)}
    grid: list[list[float | None]] = [[None] * len(moments) for _ in names]
    for name, at_ms, value in cells:
        if name in row_of and value is not None:
            grid[row_of[name]][(at_ms - since_ms) // step_ms] = float(f"{value:.{_DIGITS}g}")
    return {
        "by": by,
        "unit": (OF_BUNDLES if broker else OF_BROKERS)[by],
        "broker": broker,
        "from_ms": since_ms,
        "step_ms": step_ms,
        "moments": len(moments),
        "names": names,
        "left_out": left_out,
        "values": grid,
    }


def _shown(cells: list[tuple[str, int, float | None]], most: int) -> tuple[list[str], int]:
    """Return names with the highest peaks, in name order, and the number of others."""
    peaks: dict[str, float] = {}
    for name, _, value in cells:
        peaks[name] = max(peaks.get(name, 0.0), value or 0.0)
    by_peak = sorted(peaks, key=lambda name: (-peaks[name], name))
    return sorted(by_peak[:most]), max(0, len(by_peak) - most)


KINDS: Mapping[str, tuple[str, ...]] = {
    "move": ("transfer", "unload", "drain"),
    "split": ("split",),
    "crash": ("failover", SILENCE),
    "placement": ("assign",),
    "plan": ("plan",),
    "command": (),
    "setting": (),
}
"""Kind of event → its kinds of decisions; () = from a table of its own."""

EVENTS_MAX = 500
_OF_DECISIONS = (
    "at_ms",
    "decision_id",
    "kind",
    "bundle",
    "source",
    "destination",
    "reason",
    "strategy",
    "inputs",
)
_LOADS = ("source_before", "source_after", "destination_before", "destination_after")
_OF_EFFECTS = ("decision_id", "bundle", "destination", "outcome", *_LOADS)
_SHOWN_CHARS = 200


def read_timeline(
    reader: TableReader,
    *,
    from_ms: int,
    until_ms: int,
    kinds: Collection[str] = KINDS,
    about: str = "",
) -> dict[str, Any]:
    """The newest EVENTS_MAX events, newest first, and how many more there are.

    Times in ms since 1970. kinds: of KINDS. about: only events that name it, case-insensitive;
    "" = all. Loads (1.0 = 100 %) of both brokers before and after are there once a move's effect
    is known.
    """
    found = [
        *_decided(reader, from_ms, until_ms, kinds),
        *(_commands(reader, from_ms, until_ms) if "command" in kinds else ()),
        *(_settings(reader, from_ms, until_ms) if "setting" in kinds else ()),
    ]
    about = about.lower()
    if about:
        found = [event for event in found if about in json.dumps(event).lower()]
    found.sort(key=lambda event: (-event["at_ms"], event["kind"], event["id"]))
    return {"events": found[:EVENTS_MAX], "left_out": max(0, len(found) - EVENTS_MAX)}


def _within(from_ms: int, until_ms: int) -> str:
    return f"at_ms >= {from_ms} AND at_ms <= {until_ms}"


def _decided(
    reader: TableReader, from_ms: int, until_ms: int, kinds: Iterable[str]
) -> Iterator[dict[str, Any]]:
    kind_of = {one: kind for kind in kinds for one in KINDS[kind]}
    if not kind_of:
        return
    condition = f"{_within(from_ms, until_ms)} AND {is_one_of('kind', sorted(kind_of))}"
    rows = reader.rows("decisions", _OF_DECISIONS, condition)
    effects = {
        (row["decision_id"], row["bundle"]): row
        for row in reader.rows("decision_effects", _OF_EFFECTS, f"at_ms >= {from_ms}")
    }
    for row in rows:
        effect = effects.get((row["decision_id"], row["bundle"]))
        yield {
            **_event(row, kind_of[row["kind"]], row["decision_id"], row["kind"]),
            **{name: row[name] for name in ("bundle", "source")},
            "reason": _reason(row),
            "destination": row["destination"] or (effect["destination"] if effect else ""),
            "by": row["strategy"],
            "outcome": "" if effect is None else effect["outcome"],
            "loads": effect
            and {name: None if math.isnan(effect[name]) else effect[name] for name in _LOADS},
        }


def _reason(row: Mapping[str, Any]) -> str:
    if row["kind"] == SILENCE:
        return silence_message(row, row["at_ms"])
    why = reason_message(str(row["reason"]), str(row["kind"]))
    if row["kind"] == "failover":
        return f"{why}: {moves_message([json.loads(row['inputs'])])}"
    return why


def _commands(reader: TableReader, from_ms: int, until_ms: int) -> Iterator[dict[str, Any]]:
    rows = reader.rows("commands", condition=_within(from_ms, until_ms))
    rows.sort(key=lambda row: (row["status"] != "accepted", row["at_ms"]))
    for row in {row["command_id"]: row for row in rows}.values():  # a command's last row
        given = json.loads(row["arguments"] or "{}")
        yield {
            **_event(row, "command", row["command_id"], row["kind"]),
            "bundle": str(given.get("bundle", "")),
            "source": str(given.get("broker", "")),
            "destination": str(given.get("destination", "")),
            "reason": row["reason"],
            "by": row["principal"],
            "outcome": row["status"],
        }


def _settings(reader: TableReader, from_ms: int, until_ms: int) -> Iterator[dict[str, Any]]:
    """Yield each change of settings, with what differs from the version before."""
    before: Mapping[str, Any] = {}
    rows = reader.rows("config_versions", condition=f"at_ms <= {until_ms}")
    for row in sorted(rows, key=lambda one: one["number"]):
        after = json.loads(row["settings"])
        if row["at_ms"] >= from_ms:
            keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
            text = ", ".join(
                f"{key}={after[key]}" if key in after else f"{key} as in the files" for key in keys
            )
            text = text or "nothing that was not so"
            yield {
                **_event(row, "setting", row["config_version"], "settings"),
                "reason": text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]} ...",
                "by": row["principal"],
            }
        before = after


def _event(row: Mapping[str, Any], kind: str, identity: str, what: str) -> dict[str, Any]:
    return {
        "at_ms": row["at_ms"],
        "kind": kind,
        "id": identity,
        "what": what,
        "loads": None,
        **dict.fromkeys(("bundle", "source", "destination", "outcome"), ""),
    }


_SQL_MAX_CHARS, _SQL_ROWS_MAX = 100_000, 100_000
LEFT_OUT_OF_ROWS = frozenset({"cluster", "batch_id"})
"""Columns that no answer shows."""

_STARTED = ("setting", "started", "origin")


_status_cache = ReadCache(1.0)


async def get_status(_request: Request, context: AdminContext) -> Reply:
    """Return the state of the cluster and the age of the data."""
    read = partial(partial, _read_status, context.config, context.around)  # takes the time later
    return await _status_cache.reply(context, read, {"service": about_service(context)})


def _read_status(
    config: Config, around: JobContext, now_ms: int, reader: TableReader
) -> dict[str, Any]:
    rows = read_status_rows(reader, now_ms, config.lookup, around)
    return make_status(reader.cluster, rows, started_with(reader, config), now_ms).to_json()


def about_service(context: AdminContext) -> dict[str, Any]:
    """Return the age of this service's data, and whether it can send commands."""
    view = context.view
    return {
        "table_version": view.snapshot.position.table_version,
        "age_ms": context.age_ms,
        "writer_silent_ms": view.writer_silent_ms(wall_ms()),
        "can_command": context.commands is not None,
        "kafka_trouble": context.around.kafka_trouble,
    }


def get_settings(_request: Request, context: AdminContext) -> dict[str, Any]:
    """Return the deciding settings in force.

    As the job was started, with what commands have changed.
    """
    changed, started = context.views.settings, context.started
    config, _ = in_force(started, changed)
    rows = [] if started is context.config else reported_rows(started, started, "")
    shown = {
        key: entry
        for key, entry in sorted(SETTINGS.items())
        if entry.section not in ("kafka", "topics", "lookup")
    }
    return {
        "cluster": context.cluster,
        "started": [{name: row[name] for name in _STARTED} for row in rows],
        "settings": {key: value_of(config, entry) for key, entry in shown.items()},
        "origins": {key: config.origins.get(key, DEFAULT) for key in shown},
        "changed": dict(sorted(changed.items())),
    }


def rows_of(name: str, key: str) -> Handler:
    """A handler that shows a small table's rows, those that are set, by their key."""

    async def handle(_request: Request, context: AdminContext) -> Reply:
        version = context.views.version(name)  # first: rows may be newer than it, never older
        rows = context.views.rows(name)
        places = await context.turns.gather(  # it drops LEFT_OUT
            (str(row[key]), at) if row.get("is_set", True) else LEFT_OUT
            for at, row in enumerate(rows)
        )
        shown = (_without(rows[at]) for _, at in sorted(places))
        tag = f"{context.view.snapshot.position.query_id}.{name}.{version}"
        return json_reply({"version": version, name: shown}, tag=tag)

    return handle


def _read_decisions(asked: TableQuestion, reader: TableReader) -> dict[str, Any]:
    named = ("bundle", "kind", "decision_id")
    condition = " AND ".join(f"{name} = {literal(asked[name])}" for name in named if asked[name])
    order = [("at_ms", "descending"), ("decision_id", "descending")]
    newest = reader.table("decisions", condition=condition).sort_by(order)[: asked["limit"]]
    return {"decisions": map(_without, newest.to_pylist())}


def _read_bundles(asked: TableQuestion, reader: TableReader) -> dict[str, Any]:
    return {"bundles": read_bundles(reader, asked["by"], asked["broker"], asked["limit"])}


async def post_sql(request: Request, context: AdminContext) -> Reply:
    """One SELECT on all tables of the service."""
    if not request.caller.may(Role.ADMIN, ANY):  # the tables may have other clusters' rows
        raise HttpError(403, f"{request.caller.name} is not admin of all clusters")
    asked = request.json()
    query = asked.get("query") if isinstance(asked, dict) else None
    if not isinstance(query, str) or len(query) > _SQL_MAX_CHARS:
        raise HttpError(400, f'The body must be {{"query": text}}, of {_SQL_MAX_CHARS} at most')
    return await in_background(context, partial(_read_sql, query))


def _read_sql(query: str, reader: TableReader) -> dict[str, Any]:
    try:
        found = SqlEngine(reader.root).query(query)
    except MisuseError as error:
        raise HttpError(400, f"{error.what}: {error.why}") from None
    if found.num_rows > _SQL_ROWS_MAX:
        raise HttpError(400, f"more than {_SQL_ROWS_MAX} rows: write a LIMIT")
    return {"columns": found.column_names, "rows": plain_rows(found)}


def _namespace(asked: TableQuestion) -> str:
    try:
        return check_namespace(f"{asked['tenant']}/{asked['namespace']}")
    except InvalidNameError as error:
        raise HttpError(400, str(error)) from None


def _read_history(asked: TableQuestion, reader: TableReader) -> dict[str, Any]:
    namespace = _namespace(asked)
    bundle = f"{namespace}/{asked['range']}"
    condition = f"namespace = {literal(namespace)} AND bundle = {literal(bundle)}"
    rows = reader.rows("ownership_events", condition=condition)
    if not rows:
        raise HttpError(404, f"No bundle {bundle} was ever there")
    ordered = sorted(rows, key=lambda row: (row["version_id"], row["at_ms"]))
    return {"events": map(_without, ordered)}


def _without(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in LEFT_OUT_OF_ROWS}


_SERVICE = {
    **dict.fromkeys(("table_version", "age_ms", "writer_silent_ms"), int),
    "can_command": bool,
    "kafka_trouble": str,
}
_STATUS = (ClusterStatus, {"group_words": str, "gap_messages": list[str]})
_BUNDLE = "/v1/bundles/{tenant}/{namespace}/{range}/history"


_overview_cache = ReadCache(0.5)


async def get_overview(request: Request, context: AdminContext) -> Reply:
    """Return status, balance, last decisions as sentences, age and caller.

    A page offers actions by the caller's highest role on the whole cluster.
    """
    read = partial(partial, _read, context.config, context.around)  # of a moment
    roles = [role.name.lower() for role in Role if request.caller.may(role, context.cluster)]
    caller = {"name": request.caller.name, "role": roles[-1] if roles else ""}
    more = {"service": about_service(context), "caller": caller}
    return await _overview_cache.reply(context, read, more)


def _read(config: Config, around: JobContext, now_ms: int, reader: TableReader) -> dict[str, Any]:
    return read_overview(reader, started_with(reader, config), now_ms, around).to_json()


_UNTIL = WholeQuery("until", "The end of it, ms since 1970; without it, now.", 0, 10**14)


def _window(minimum_ms: int, maximum_ms: int) -> WholeQuery:
    doc = "How far back, one hour unless the request says otherwise."
    return WholeQuery("window_ms", doc, minimum_ms, maximum_ms, HOUR_MS)


_ABOUT_MAX_CHARS = 500


def _measure(asked: TableQuestion) -> str:
    known = OF_BUNDLES if asked["broker"] else OF_BROKERS
    by: str = asked["by"] or ("msg_rate" if asked["broker"] else "usage")
    if by not in known:
        raise HttpError(400, f"by must be one of {', '.join(known)}, got {by[:100]}")
    return by


def _read_heat(asked: TableQuestion, reader: TableReader) -> dict[str, Any]:
    return read_heat(
        reader,
        by=_measure(asked),
        broker=asked["broker"],
        until_ms=asked["until"] or asked.now_ms,
        window_ms=asked["window_ms"],
    )


def _kinds(asked: TableQuestion) -> tuple[str, ...]:
    kinds = tuple((asked["kinds"] or ",".join(KINDS)).split(","))
    if not set(kinds) <= set(KINDS):
        raise HttpError(400, f"kinds must be of {', '.join(KINDS)}, separated by commas")
    return kinds


def _read_timeline(asked: TableQuestion, reader: TableReader) -> dict[str, Any]:
    until_ms = asked["until"] or asked.now_ms
    return read_timeline(
        reader,
        from_ms=max(0, until_ms - asked["window_ms"]),
        until_ms=until_ms,
        kinds=_kinds(asked),
        about=asked["about"][:_ABOUT_MAX_CHARS],
    )


SHOWING_ROUTES = (
    reading(
        "/v1/status",
        get_status,
        "How the cluster is: phase, why, counts, moves, alarms.",
        (*_STATUS, {"service": _SERVICE}),
    ),
    reading(
        "/v1/settings",
        get_settings,
        "The settings that decide.",
        {
            "cluster": str,
            "started": [dict.fromkeys(_STARTED, str)],
            "settings": dict[str, Any],
            "origins": dict[str, str],
            "changed": dict[str, Any],
        },
    ),
    *(
        reading(
            f"/v1/{table.name}",
            rows_of(table.name, key),
            table.doc,
            {"version": int, table.name: [table]},
        )
        for table, key in (
            (BROKERS, "broker"),
            (NAMESPACES, "namespace"),
            (PINS, "bundle"),
            (POLICIES, "name"),
        )
    ),
    table_route(
        "/v1/decisions",
        _read_decisions,
        "The newest decisions and why.",
        {"decisions": [DECISIONS]},
        queries=(
            WholeQuery("limit", "Decisions at most.", 1, 1_000, 100),
            TextQuery("bundle", "Only about this bundle."),
            TextQuery("kind", "Only of this kind, such as transfer or skip."),
            TextQuery("decision_id", "Only this one."),
        ),
        example=Example("/v1/decisions?limit=10"),
    ),
    table_route(
        "/v1/bundles",
        _read_bundles,
        "The bundles with the most load, in the newest minute of each broker.",
        {"bundles": list[dict[str, Any]]},
        queries=(
            TextQuery(
                "by", f"One of {', '.join(BUNDLE_ORDERS)}; rate without it.", BUNDLE_ORDERS, "rate"
            ),
            TextQuery("broker", "Only those that it has now."),
            WholeQuery("limit", "Bundles at most.", 1, LISTED_MAX, 20),
        ),
        example=Example("/v1/bundles?by=rate"),
    ),
    Route(
        method="POST",
        path="/v1/sql",
        handler=post_sql,
        checks_itself=True,
        summary=f"One SELECT on the tables, of at most {_SQL_ROWS_MAX} rows; for admins of all.",
        answer={"columns": list[str], "rows": list[dict[str, Any]]},
        body={"type": "object", "required": ["query"], "properties": {"query": TEXT}},
        example=Example("/v1/sql", body={"query": "SELECT 1 AS one"}),
    ),
    table_route(
        _BUNDLE,
        _read_history,
        "Every version of a bundle's record.",
        {"events": [OWNERSHIP_EVENTS]},
        statuses={404: "No such bundle was ever there."},
        check=_namespace,
        example=Example("/v1/bundles/acme/free/0x00000000_0xffffffff/history"),
    ),
    reading(
        "/v1/overview",
        get_overview,
        "The cluster at one glance: status, balance of the last hour, last decisions.",
        {
            "status": (*_STATUS, {"in_flight_count": int}),
            "balance": [(Moment, {"imbalance": float | None})],
            "decisions": list[ExplainedDecision],
            "service": _SERVICE,
            "caller": {"name": str, "role": str},
        },
    ),
    table_route(
        "/v1/heat",
        _read_heat,
        f"Load over time: at most {BROKERS_MAX} brokers, or {BUNDLES_MAX} bundles of one, by at "
        f"most {MOMENTS_MAX} moments.",
        {
            **dict.fromkeys(("by", "unit", "broker"), str),
            **dict.fromkeys(("from_ms", "step_ms", "moments", "left_out"), int),
            "names": list[str],
            "values": list[list[float | None]],
        },
        queries=(
            TextQuery("by", f"One of {', '.join({**OF_BROKERS, **OF_BUNDLES})}."),
            TextQuery("broker", "Its bundles; without it, all brokers."),
            _window(60_000, 7 * DAY_MS),
            _UNTIL,
        ),
        check=_measure,
        example=Example("/v1/heat?by=usage&window_ms=600000"),
    ),
    table_route(
        "/v1/timeline",
        _read_timeline,
        f"What has happened, the newest first, at most {EVENTS_MAX} events.",
        {
            "events": [
                {
                    "at_ms": int,
                    **dict.fromkeys(("kind", "id", "what", "bundle", "source", "destination"), str),
                    **dict.fromkeys(("reason", "by", "outcome"), str),
                    "loads": dict[str, float | None] | None,
                }
            ],
            "left_out": int,
        },
        queries=(
            TextQuery("kinds", f"Of {', '.join(KINDS)}, by commas; all without."),
            TextQuery("about", "Only events that name it."),
            _window(1, 90 * DAY_MS),
            _UNTIL,
        ),
        check=_kinds,
        example=Example("/v1/timeline?kinds=move"),
    ),
)
