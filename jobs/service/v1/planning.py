"""Plans over HTTP: those that wait, the dry run, undo, and explanations.

The tables have the plans, `jobs.operating` foresees and explains, `lbcore.explain` has the texts.
One dry run is made at a time: it takes seconds of a core in a large cluster.
"""

import asyncio
from functools import partial
from typing import Any

from jobs.adapters.delta.table_reader import TableReader
from jobs.console import CommandError, MisuseError
from jobs.operating.connection_options import started_with
from jobs.operating.explaining import WINDOW_MS, ExplainQuestion, explain
from jobs.operating.plans import look_ahead, proposals_of, undo_moves
from jobs.service.context import AdminContext
from jobs.service.exchange import RETRY, HttpError, Reply, Request
from jobs.service.routes import (
    Example,
    Left,
    Route,
    TextQuery,
    TextsQuery,
    WholeQuery,
    reading,
)
from jobs.service.v1.reading import (
    ReadRefusedError,
    TableQuestion,
    in_background,
    question_of,
    table_route,
)
from lbcore.balancer.rules import PlanProposal, ProposedStep
from lbcore.explain.explanation import Explanation
from lbcore.foresight.forecast import ADDED_MAX, Foresight, WhatIf
from lbcore.model.times import DAY_MS
from lbcore.packing import to_plain

STEPS_MAX = 1_000
"""Of one plan that is shown; the others are counted."""

_UNDONE = ("plan", "since_ms", "drain")
_COUNTS = ("step_count", "done", "skipped")


def _read_plans(_asked: TableQuestion, reader: TableReader) -> dict[str, Any]:
    found = proposals_of(reader)
    return {"plans": [_plan_summary(name, found[name]) for name in reversed(found)]}


def _plan_summary(name: str, one: PlanProposal) -> dict[str, Any]:
    plain = to_plain(one)
    del plain["steps"]
    counts = (len(one.steps), one.done, one.skipped)
    return {**plain, "plan": name, **dict(zip(_COUNTS, counts, strict=True))}


def _read_plan(asked: TableQuestion, reader: TableReader) -> dict[str, Any]:
    name = asked["plan"]
    one = proposals_of(reader).get(name)
    if one is None:
        raise ReadRefusedError(404, f"There is no plan {name}, or none of the last day")
    return {**_plan_summary(name, one), "steps": to_plain(one)["steps"][:STEPS_MAX]}


def _check_undo(asked: TableQuestion) -> None:
    if sum(bool(asked[name]) for name in _UNDONE) != 1:
        raise HttpError(400, "Either plan, since_ms or drain must say what shall go back")


def _read_undo_moves(asked: TableQuestion, reader: TableReader) -> dict[str, Any]:
    plan, since_ms, drain = (asked[name] for name in _UNDONE)
    begin_ms = asked.now_ms - since_ms if since_ms else 0
    try:
        moves, left = undo_moves(reader, plan=plan, since_ms=begin_ms, drain=drain)
    except CommandError as error:
        raise ReadRefusedError(409, f"{error.what}: {error.why}") from None
    return {"moves": moves, "left": left}


_SUMMARY = (Left(PlanProposal, "steps"), {"plan": str, **dict.fromkeys(_COUNTS, int)})

PLANNING_ROUTES = (
    table_route(
        "/v1/plans",
        _read_plans,
        "The plans that wait, and those of the last day, the newest first.",
        {"plans": [_SUMMARY]},
    ),
    table_route(
        "/v1/plans/{plan}",
        _read_plan,
        f"One with at most {STEPS_MAX} steps, and load before and after.",
        (*_SUMMARY, {"steps": list[ProposedStep]}),
        statuses={404: "No plan of that name, or none of the last day."},
        example=Example("/v1/plans/unknown", 404),
    ),
    table_route(
        "/v1/undo",
        _read_undo_moves,
        "The moves that undo a plan, what balancing did, or a drain; for propose_plan.",
        {"moves": dict[str, str], "left": list[str]},
        check=_check_undo,
        queries=(
            TextQuery("plan", "The plan whose moves go back."),
            WholeQuery(
                "since_ms",
                "Instead: all that balancing has moved for so long.",
                0,
                90 * DAY_MS,
            ),
            TextQuery("drain", "Instead: what the last drain of this broker took away."),
        ),
        statuses={409: "Nothing can go back."},
        example=Example("/v1/undo?plan=unknown", 409),
    ),
)


_ASKED_MAX = 100
_turn = asyncio.Lock()
_FORESIGHT_QUERIES = (
    TextQuery("strategy", "As if it were this one: avg, threshold, overload, ..."),
    TextsQuery("set", "As if a setting were so: section.name=value; several times."),
    WholeQuery("add_brokers", "As if so many idle ones joined.", 0, ADDED_MAX),
    TextsQuery("remove_broker", "As if it were drained; several times."),
)


async def get_foresight(request: Request, context: AdminContext) -> Reply:
    """Return a dry run; one is made at a time."""
    asked = question_of(request, context, _FORESIGHT_QUERIES)
    if len(asked["set"]) + len(asked["remove_broker"]) > _ASKED_MAX:
        raise HttpError(400, f"at most {_ASKED_MAX} settings and brokers at once")
    if _turn.locked():
        raise HttpError(503, "Another plan is being made: ask again", RETRY)
    async with _turn:
        return await in_background(context, partial(_read_foresight, asked))


def _read_foresight(asked: TableQuestion, reader: TableReader) -> dict[str, Any]:
    what_if = WhatIf(
        settings=asked["set"],
        add_brokers=asked["add_brokers"],
        remove_brokers=asked["remove_broker"],
    )
    try:
        config = started_with(reader, asked.config)
        return look_ahead(reader, config, asked["strategy"], what_if).to_json()
    except CommandError as error:
        status = 400 if isinstance(error, MisuseError) else 409
        raise ReadRefusedError(status, f"{error.what}: {error.why}") from None


FORESEEING_ROUTES = (
    reading(
        "/v1/plan",
        get_foresight,
        "What the next cycles would do; nothing is done.",
        ({"dry_run": bool, "tables_age_ms": int}, Foresight),
        queries=_FORESIGHT_QUERIES,
        statuses={409: "It can't be foreseen, with the reason."},
        example=Example("/v1/plan?strategy=threshold"),
    ),
)


_AT = WholeQuery("at", "As it was then, in ms since 1970; without it, now.", 0, 10**14)
_WINDOW = WholeQuery("window_ms", "How far back decisions are looked at.", 1, DAY_MS, WINDOW_MS)


def _read_explanation(kind: str, asked: TableQuestion, reader: TableReader) -> Any:
    path = [value for name, value in asked.values.items() if name not in ("at", "window_ms")]
    question = ExplainQuestion(
        kind=kind,
        name="/".join(path),
        now_ms=asked.now_ms,
        at_ms=asked["at"],
        window_ms=asked["window_ms"],
    )
    found = explain(reader, started_with(reader, asked.config, question.at_ms), question)
    if found is None:
        raise ReadRefusedError(404, f"There is no {kind} {question.name}")
    return found.to_json()


def _explanation_route(kind: str, path: str, summary: str, asked: str, status: int = 200) -> Route:
    return table_route(
        path,
        partial(_read_explanation, kind),
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
