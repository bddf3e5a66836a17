"""State of the cluster, its brokers, namespaces, pins and policies, as JSON.

Settings and decisions, too. All are rows of tables.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from jobs.adapters.delta.rows import literal
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.processes.clocks import wall_ms
from jobs.console import MisuseError
from jobs.operating.answers import BUNDLE_ORDERS, BUNDLES_MAX, read_bundles
from jobs.operating.connection_options import started_with
from jobs.operating.status_rows import read_overview, read_status_rows
from jobs.service.access import ANY, Role
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError, Reply, Request, json_reply
from jobs.service.routes import TEXT, WHOLE, About, Example, Handler, QueryParameter, Route, whole
from jobs.service.v1.reading import Kept, ReadRefusedError, in_background
from jobs.sql.engine import SqlEngine, plain_rows
from lbcore.config.reported_settings import reported_rows
from lbcore.config.tree import DEFAULT, SETTINGS, Config, value_of
from lbcore.explain.job_state import JobSurroundings
from lbcore.explain.status import make_status
from lbcore.model.names import InvalidNameError, check_namespace
from lbcore.route.slices import LEFT_OUT
from lbcore.validation.dynamic import in_force

_DECISIONS_MAX = 1_000
_SQL_MAX_CHARS, _SQL_ROWS_MAX = 100_000, 100_000
_LEFT_OUT = frozenset({"cluster", "batch_id"})
_STARTED = ("setting", "started", "origin")


_status = Kept(1.0)


async def get_status(request: Request, context: AdminContext) -> Reply:
    """Return the state of the cluster and the age of the data."""
    del request
    read = partial(partial, _read_status, context.config, context.around)  # of a moment
    return await _status.reply(context, read, {"service": about_service(context)})


def _read_status(
    config: Config, around: JobSurroundings, now_ms: int, reader: TableReader
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
        "kafka_trouble": context.around.kafka,
    }


async def get_settings(request: Request, context: AdminContext) -> Reply:
    """Return the deciding settings in force.

    As the job was started, with what commands have changed.
    """
    del request
    changed, started = context.views.settings, context.started
    config, _ = in_force(started, changed)
    told = [] if started is context.config else reported_rows(started, started, "")
    shown = {
        key: entry
        for key, entry in sorted(SETTINGS.items())
        if entry.section not in ("kafka", "topics", "lookup")
    }
    answer = {
        "cluster": context.cluster,
        "started": [{name: row[name] for name in _STARTED} for row in told],
        "settings": {key: value_of(config, entry) for key, entry in shown.items()},
        "origins": {key: config.origins.get(key, DEFAULT) for key in shown},
        "changed": dict(sorted(changed.items())),
    }
    return json_reply(answer)


def rows_of(name: str, key: str) -> Handler:
    """A handler that shows a small table's rows, those that are set, by their key."""

    async def handle(request: Request, context: AdminContext) -> Reply:
        del request
        version = context.views.version(name)  # first: rows may be newer than it, never older
        rows = context.views.rows(name)
        places = await context.turns.gather(
            (str(row[key]), at) if row.get("is_set", True) else LEFT_OUT
            for at, row in enumerate(rows)
        )
        shown = (_without(rows[at]) for _, at in sorted(places))
        return json_reply({"version": version, name: shown})

    return handle


async def get_decisions(request: Request, context: AdminContext) -> Reply:
    """The newest decisions with their inputs."""
    limit = request.whole("limit", 100, minimum=1, maximum=_DECISIONS_MAX)
    conditions = [
        f"{name} = {literal(request.first(name))}"
        for name in ("bundle", "kind", "decision_id")
        if request.first(name)
    ]
    return await in_background(context, partial(_read_decisions, " AND ".join(conditions), limit))


def _read_decisions(condition: str, limit: int, reader: TableReader) -> dict[str, Any]:
    order = [("at_ms", "descending"), ("decision_id", "descending")]
    newest = reader.table("decisions", condition=condition).sort_by(order)[:limit]
    shown = map(_without, newest.to_pylist())
    return {"decisions": shown}


async def get_bundles(request: Request, context: AdminContext) -> Reply:
    """The bundles with the most load, by one measure."""
    by = request.first("by", "rate")
    if by not in BUNDLE_ORDERS:
        raise HttpError(400, f"by must be one of {', '.join(BUNDLE_ORDERS)}, got {by[:100]}")
    limit = request.whole("limit", 20, minimum=1, maximum=BUNDLES_MAX)
    broker = request.first("broker")
    return await in_background(context, partial(_read_bundles, by, broker, limit))


def _read_bundles(by: str, broker: str, limit: int, reader: TableReader) -> dict[str, Any]:
    return {"bundles": read_bundles(reader, by, broker, limit)}


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
        raise ReadRefusedError(400, f"{error.what}: {error.why}") from None
    if found.num_rows > _SQL_ROWS_MAX:
        raise ReadRefusedError(400, f"more than {_SQL_ROWS_MAX} rows: write a LIMIT")
    return {"columns": found.column_names, "rows": plain_rows(found)}


async def get_history(request: Request, context: AdminContext) -> Reply:
    """All versions of one bundle's record."""
    params = request.params
    try:
        namespace = check_namespace(f"{params['tenant']}/{params['namespace']}")
    except InvalidNameError as error:
        raise HttpError(400, str(error)) from None
    bundle = f"{namespace}/{params['range']}"
    condition = f"namespace = {literal(namespace)} AND bundle = {literal(bundle)}"
    return await in_background(context, partial(_read_history, bundle, condition))


def _read_history(bundle: str, condition: str, reader: TableReader) -> dict[str, Any]:
    rows = reader.rows("ownership_events", condition=condition)
    if not rows:
        raise ReadRefusedError(404, f"No bundle {bundle} was ever there")
    ordered = sorted(rows, key=lambda row: (row["version_id"], row["at_ms"]))
    return {"events": map(_without, ordered)}


def _without(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _LEFT_OUT}


def _shown(path: str, handler: Handler, about: About) -> Route:
    return Route(method="GET", path=path, handler=handler, role=Role.VIEWER, about=about)


def _about(summary: str, path: str, answer: Any, *queries: QueryParameter) -> About:
    return About(
        summary=summary, queries=queries, example=Example(path=path, status=200, answer=answer)
    )


SHOWING_ROUTES = (
    _shown(
        "/v1/status",
        get_status,
        _about("How the cluster is: phase, why, counts, moves, alarms.", "/v1/status", None),
    ),
    _shown(
        "/v1/settings",
        get_settings,
        _about(
            "The settings that decide.",
            "/v1/settings",
            {"cluster": None, "settings": None, "origins": None, "changed": {}},
        ),
    ),
    _shown(
        "/v1/brokers",
        rows_of("brokers", "broker"),
        _about(
            "Every broker as a lookup answers with it.",
            "/v1/brokers",
            {"version": None, "brokers": None},
        ),
    ),
    _shown(
        "/v1/namespaces",
        rows_of("namespaces", "namespace"),
        _about("Every namespace.", "/v1/namespaces", {"version": None, "namespaces": None}),
    ),
    _shown(
        "/v1/pins",
        rows_of("pins", "bundle"),
        _about("Bundles that stay on a broker.", "/v1/pins", {"version": None, "pins": []}),
    ),
    _shown(
        "/v1/policies",
        rows_of("policies", "name"),
        _about(
            "Isolation, anti-affinity, pauses, drains, excluded.",
            "/v1/policies",
            {"version": None, "policies": []},
        ),
    ),
    _shown(
        "/v1/decisions",
        get_decisions,
        _about(
            "The newest decisions and why.",
            "/v1/decisions?limit=10",
            {"decisions": []},
            QueryParameter(
                name="limit", doc=f"At most {_DECISIONS_MAX}.", schema=whole(1, _DECISIONS_MAX)
            ),
            QueryParameter(name="bundle", doc="Only about this bundle."),
            QueryParameter(name="kind", doc="Only of this kind, such as transfer or skip."),
            QueryParameter(name="decision_id", doc="Only this one."),
        ),
    ),
    _shown(
        "/v1/bundles",
        get_bundles,
        _about(
            "The bundles with the most load, in the newest minute of each broker.",
            "/v1/bundles?by=rate",
            {"bundles": []},
            QueryParameter(name="by", doc=f"One of {', '.join(BUNDLE_ORDERS)}; rate without it."),
            QueryParameter(name="broker", doc="Only those that it has now."),
            QueryParameter(
                name="limit", doc="At most so many; 20 without it.", schema=whole(1, BUNDLES_MAX)
            ),
        ),
    ),
    Route(
        method="POST",
        path="/v1/sql",
        handler=post_sql,
        checks_itself=True,
        about=About(
            summary=f"One SELECT on the tables, of at most {_SQL_ROWS_MAX} rows; for admins of all "
            "clusters.",
            body={"type": "object", "required": ["query"], "properties": {"query": TEXT}},
            answers={200: "Names of columns, and rows."},
            example=Example(
                path="/v1/sql",
                status=200,
                body={"query": "SELECT 1 AS one"},
                answer={"columns": ["one"], "rows": [{"one": 1}]},
            ),
        ),
    ),
    _shown(
        "/v1/bundles/{tenant}/{namespace}/{range}/history",
        get_history,
        _about(
            "Every version of a bundle's record.",
            "/v1/bundles/acme/free/0x00000000_0xffffffff/history",
            {"events": None},
        ),
    ),
)


_kept = Kept(1.2)


async def get_overview(request: Request, context: AdminContext) -> Reply:
    """Return status, balance, last decisions as sentences, age and caller."""
    since_ms = request.whole("since_ms", 0)
    read = partial(partial, _read, context.config, context.around)  # of a moment
    more = {"service": about_service(context), "caller": about_caller(request, context)}
    return await _kept.reply(context, read, more, since_ms)


def about_caller(request: Request, context: AdminContext) -> dict[str, str]:
    """Return the caller's name and highest role on the whole cluster.

    A page offers actions by it.
    """
    caller = request.caller
    roles = [role.name.lower() for role in Role if caller.may(role, context.cluster)]
    return {"name": caller.name, "role": roles[-1] if roles else ""}


def _read(
    config: Config, around: JobSurroundings, now_ms: int, reader: TableReader
) -> dict[str, Any]:
    return read_overview(reader, started_with(reader, config), now_ms, around).to_json()


OVERVIEW_ROUTES = (
    Route(
        method="GET",
        path="/v1/overview",
        handler=get_overview,
        role=Role.VIEWER,
        about=About(
            summary="The cluster at one glance: status, balance of the last hour, last decisions.",
            queries=(
                QueryParameter(
                    name="since_ms",
                    doc="The answer is to be made since then, `at_ms` of an event; ms since 1970.",
                    schema=WHOLE,
                ),
            ),
            example=Example(
                path="/v1/overview",
                status=200,
                answer={
                    **dict.fromkeys(("status", "service", "caller")),
                    "balance": [],
                    "decisions": [],
                },
            ),
        ),
    ),
)
