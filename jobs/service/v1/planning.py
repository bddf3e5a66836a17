"""Plans over HTTP: those that wait, the dry run, the way back, and explanations.

The tables have the plans, `jobs.operating` foresees and explains, `lbcore.explain` has the words.
One dry run is made at a time: it takes seconds of a core in a large cluster.
"""

import asyncio
from functools import partial
from typing import Any

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.processes.clocks import wall_ms
from jobs.console import CommandError, MisuseError
from jobs.operating.connection_options import started_with
from jobs.operating.explaining import WINDOW_MS, ExplainQuestion, explain
from jobs.operating.plans import look_ahead, proposals_of, undo_moves
from jobs.service.context import AdminContext
from jobs.service.exchange import RETRY, HttpError, Reply, Request
from jobs.service.routes import (
    Example,
    Handler,
    Left,
    Route,
    TextQuery,
    WholeQuery,
    reading,
)
from jobs.service.v1.reading import ReadRefusedError, in_background
from lbcore.balancer.rules import PlanProposal, ProposedStep
from lbcore.config.tree import Config
from lbcore.explain.explanation import Explanation
from lbcore.foresight.forecast import ADDED_MAX, Foresight, WhatIf
from lbcore.packing import to_plain

STEPS_MAX = 1_000
"""Of one plan that is shown; the others are counted."""

_COUNTS = ("step_count", "done", "skipped")

_SINCE = WholeQuery(
    "since_ms", "Instead: all that balancing has moved for so long.", 0, 90 * 86_400_000
)


async def get_plans(_request: Request, context: AdminContext) -> Reply:
    """Each without its steps, the newest first."""
    return await in_background(context, _read_plans)


async def get_plan(request: Request, context: AdminContext) -> Reply:
    """One with its steps."""
    return await in_background(context, partial(_read_plan, request.params["plan"]))


async def get_undo_moves(request: Request, context: AdminContext) -> Reply:
    """Return the moves that undo a plan, recent balancing, or a broker's last drain.

    Recent balancing: its moves of the last since_ms.
    """
    plan, drain = request.first("plan"), request.first("drain")
    since_ms = _SINCE.of(request)
    if sum(map(bool, (plan, since_ms, drain))) != 1:
        raise HttpError(400, "Either plan, since_ms or drain must say what shall go back")
    begin_ms = wall_ms() - since_ms if since_ms else 0
    return await in_background(context, partial(_read_undo_moves, plan, begin_ms, drain))


def _read_plans(reader: TableReader) -> dict[str, Any]:
    found = proposals_of(reader)
    return {"plans": [_plan_summary(name, found[name]) for name in reversed(found)]}


def _plan_summary(name: str, one: PlanProposal) -> dict[str, Any]:
    plain = to_plain(one)
    del plain["steps"]
    counts = (len(one.steps), one.done, one.skipped)
    return {**plain, "plan": name, **dict(zip(_COUNTS, counts, strict=True))}


def _read_plan(name: str, reader: TableReader) -> dict[str, Any]:
    one = proposals_of(reader).get(name)
    if one is None:
        raise ReadRefusedError(404, f"There is no plan {name}, or none of the last day")
    return {**_plan_summary(name, one), "steps": to_plain(one)["steps"][:STEPS_MAX]}


def _read_undo_moves(plan: str, since_ms: int, drain: str, reader: TableReader) -> dict[str, Any]:
    try:
        moves, left = undo_moves(reader, plan=plan, since_ms=since_ms, drain=drain)
    except CommandError as error:
        raise ReadRefusedError(409, f"{error.what}: {error.why}") from None
    return {"moves": moves, "left": left}


_SUMMARY = (Left(PlanProposal, "steps"), {"plan": str, **dict.fromkeys(_COUNTS, int)})

PLANNING_ROUTES = (
    reading(
        "/v1/plans",
        get_plans,
        "The plans that wait, and those of the last day, the newest first.",
        {"plans": [_SUMMARY]},
    ),
    reading(
        "/v1/plans/{plan}",
        get_plan,
        f"One with at most {STEPS_MAX} steps, and load before and after.",
        (*_SUMMARY, {"steps": list[ProposedStep]}),
        statuses={404: "No plan of that name, or none of the last day."},
        example=Example("/v1/plans/unknown", 404),
    ),
    reading(
        "/v1/undo",
        get_undo_moves,
        "The moves that undo a plan, what balancing did, or a drain; for propose_plan.",
        {"moves": dict[str, str], "left": list[str]},
        queries=(
            TextQuery("plan", "The plan whose moves go back."),
            _SINCE,
            TextQuery("drain", "Instead: what the last drain of this broker took away."),
        ),
        statuses={409: "Nothing can go back."},
        example=Example("/v1/undo?plan=unknown", 409),
    ),
)


_ASKED_MAX = 100
_ADDED = WholeQuery("add_brokers", "As if so many idle ones joined.", 0, ADDED_MAX)
_turn = asyncio.Lock()


async def get_foresight(request: Request, context: AdminContext) -> Reply:
    """As the query asks; `set` and `remove_broker` may come several times."""
    what_if = WhatIf(
        settings=tuple(request.query.get("set", ())),
        add_brokers=_ADDED.of(request),
        remove_brokers=tuple(request.query.get("remove_broker", ())),
    )
    if len(what_if.settings) + len(what_if.remove_brokers) > _ASKED_MAX:
        raise HttpError(400, f"at most {_ASKED_MAX} settings and brokers at once")
    if _turn.locked():
        raise HttpError(503, "Another plan is being made: ask again", RETRY)
    async with _turn:
        read = partial(_read, context.config, request.first("strategy"), what_if)
        return await in_background(context, read)


def _read(config: Config, strategy: str, what_if: WhatIf, reader: TableReader) -> dict[str, Any]:
    try:
        return look_ahead(reader, started_with(reader, config), strategy, what_if).to_json()
    except CommandError as error:
        status = 400 if isinstance(error, MisuseError) else 409
        raise ReadRefusedError(status, f"{error.what}: {error.why}") from None


FORESEEING_ROUTES = (
    reading(
        "/v1/plan",
        get_foresight,
        "What the next cycles would do; nothing is done.",
        ({"dry_run": bool, "tables_age_ms": int}, Foresight),
        queries=(
            TextQuery("strategy", "As if it were this one: avg, threshold, overload, ..."),
            TextQuery("set", "As if a setting were so: section.name=value; several times."),
            _ADDED,
            TextQuery("remove_broker", "As if it were drained; several times."),
        ),
        statuses={409: "It can't be foreseen, with the reason."},
        example=Example("/v1/plan?strategy=threshold"),
    ),
)


_AT = WholeQuery("at", "As it was then, in ms since 1970; without it, now.", 0, 10**14)
_WINDOW = WholeQuery("window_ms", "How far back decisions are looked at.", 1, 86_400_000, WINDOW_MS)


def explaining(kind: str) -> Handler:
    """A handler that explains one kind of thing; its name is in the path."""

    async def handle(request: Request, context: AdminContext) -> Reply:
        question = ExplainQuestion(
            kind=kind,
            name="/".join(request.params.values()),
            now_ms=wall_ms(),
            at_ms=_AT.of(request),
            window_ms=_WINDOW.of(request),
        )
        return await in_background(context, partial(_read_explanation, context.config, question))

    return handle


def _read_explanation(config: Config, question: ExplainQuestion, reader: TableReader) -> Any:
    found = explain(reader, started_with(reader, config, question.at_ms), question)
    if found is None:
        raise ReadRefusedError(404, f"There is no {question.kind} {question.name}")
    return found.to_json()


def _explanation_route(kind: str, path: str, summary: str, asked: str, status: int = 200) -> Route:
    return reading(
        path,
        explaining(kind),
        summary,
        Explanation,
        queries=(_AT, _WINDOW),
        statuses={404: "There is no such thing."},
        example=Example(asked, status),
    )


EXPLAINING_ROUTES = (
    _explanation_route(
        "cluster",
        "/v1/explain/cluster",
        "What balancing does in this cluster, or why it does nothing.",
        "/v1/explain/cluster",
    ),
    _explanation_route(
        "broker",
        "/v1/explain/broker/{broker}",
        "Why a broker has what it has, and what it takes to relieve it.",
        "/v1/explain/broker/nobody:8080",
        404,
    ),
    _explanation_route(
        "bundle",
        "/v1/explain/bundle/{tenant}/{namespace}/{range}",
        "Why a bundle is where it is, what holds it, what would have to change.",
        "/v1/explain/bundle/acme/free/0x00000000_0xffffffff",
    ),
    _explanation_route(
        "decision",
        "/v1/explain/decision/{decision_id}",
        "A decision with its numbers, its losers and its effect.",
        "/v1/explain/decision/local-1-1",
        404,
    ),
)
