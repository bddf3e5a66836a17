"""Plans over HTTP: those that wait, the dry run, the way back, and explanations.

The tables have the plans, `jobs.operating` foresees and explains, `lbcore.explain` has the words.
One dry run is made at a time: it takes seconds of a core in a large cluster.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.processes.clocks import wall_ms
from jobs.console import CommandError, MisuseError
from jobs.operating.connection_options import started_with
from jobs.operating.explaining import WINDOW_MS, ExplainQuestion, explain
from jobs.operating.foreseeing import look_ahead
from jobs.operating.proposals import proposals_of, undo_moves
from jobs.service.access import Role
from jobs.service.context import AdminContext
from jobs.service.exchange import RETRY, HttpError, Reply, Request
from jobs.service.routes import (
    OBJECT,
    TEXT,
    TEXTS,
    About,
    Example,
    Handler,
    QueryParameter,
    Route,
    whole,
)
from jobs.service.v1.reading import ReadRefusedError, in_background
from lbcore.balancer.state.rules import PlanProposal
from lbcore.config.tree import Config
from lbcore.foresight.forecast import ADDED_MAX, WhatIf
from lbcore.plain import to_plain

STEPS_MAX = 1_000
"""Of one plan that is shown; the others are counted."""

_SINCE_MAX_MS = 90 * 86_400_000


async def get_plans(request: Request, context: AdminContext) -> Reply:
    """Each without its steps, the newest first."""
    del request
    return await in_background(context, _read_plans)


async def get_plan(request: Request, context: AdminContext) -> Reply:
    """One with its steps."""
    return await in_background(context, partial(_read_plan, request.params["plan"]))


async def get_undo_moves(request: Request, context: AdminContext) -> Reply:
    """Return the moves that undo a plan, recent balancing, or a broker's last drain.

    Recent balancing: its moves of the last since_ms.
    """
    plan, drain = request.first("plan"), request.first("drain")
    since_ms = request.whole("since_ms", 0, maximum=_SINCE_MAX_MS)
    if sum(map(bool, (plan, since_ms, drain))) != 1:
        raise HttpError(400, "Either plan, since_ms or drain must say what shall go back")
    begin_ms = wall_ms() - since_ms if since_ms else 0
    return await in_background(context, partial(_read_undo_moves, plan, begin_ms, drain))


def _read_plans(reader: TableReader) -> dict[str, Any]:
    found = proposals_of(reader)
    return {"plans": [_plan_summary(name, found[name]) for name in reversed(found)]}


def _plan_summary(name: str, one: PlanProposal) -> dict[str, Any]:
    told = {**to_plain(one), "plan": name, "step_count": len(one.steps)}
    del told["steps"]
    return {**told, "done": one.done, "skipped": one.skipped}


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


def _route(path: str, handler: Any, about: About) -> Route:
    return Route(method="GET", path=path, handler=handler, role=Role.VIEWER, about=about)


PLANNING_ROUTES = (
    _route(
        "/v1/plans",
        get_plans,
        About(
            summary="The plans that wait, and those of the last day, the newest first.",
            example=Example(path="/v1/plans", status=200, answer={"plans": []}),
        ),
    ),
    _route(
        "/v1/plans/{plan}",
        get_plan,
        About(
            summary=f"One with at most {STEPS_MAX} steps, and load before and after.",
            answers={200: "The plan.", 404: "No plan of that name, or none of the last day."},
            example=Example(path="/v1/plans/unknown", status=404, answer={"reason": None}),
        ),
    ),
    _route(
        "/v1/undo",
        get_undo_moves,
        About(
            summary="The moves that undo a plan, what balancing did, or a drain; for propose_plan.",
            queries=(
                QueryParameter(name="plan", doc="The plan whose moves go back."),
                QueryParameter(
                    name="since_ms",
                    doc="Instead: all that balancing has moved for so long.",
                    schema=whole(0, _SINCE_MAX_MS),
                ),
                QueryParameter(
                    name="drain", doc="Instead: what the last drain of this broker took away."
                ),
            ),
            answers={200: "Bundle to broker, and what stays.", 409: "Nothing can go back."},
            example=Example(path="/v1/undo?plan=unknown", status=409, answer={"reason": None}),
        ),
    ),
)


_ASKED_MAX = 100
_BODY = {
    **OBJECT,
    "properties": {
        "strategy": TEXT,
        "set": TEXTS,
        "add_brokers": whole(0, ADDED_MAX),
        "remove_brokers": TEXTS,
    },
    "additionalProperties": False,
}


class _Turn:
    """Flag: True while a plan is being made."""

    def __init__(self) -> None:
        self.is_taken = False


_turn = _Turn()


async def get_foresight(request: Request, context: AdminContext) -> Reply:
    """As the query asks; `set` and `remove_broker` may come several times."""
    return await _answer(
        context,
        request.first("strategy"),
        WhatIf(
            settings=tuple(request.query.get("set", ())),
            add_brokers=request.whole("add_brokers", 0, maximum=ADDED_MAX),
            remove_brokers=tuple(request.query.get("remove_broker", ())),
        ),
    )


async def post_plan(request: Request, context: AdminContext) -> Reply:
    """As the body asks."""
    asked = request.json()
    if not isinstance(asked, dict | None):
        raise HttpError(400, "The body must be a JSON object")
    given: Mapping[str, Any] = asked or {}
    unknown = sorted(given.keys() - _BODY["properties"].keys())
    if unknown:
        raise HttpError(400, f"The body has nothing of the name {unknown[0][:100]}")
    strategy, added = given.get("strategy", ""), given.get("add_brokers", 0)
    if not isinstance(strategy, str):
        raise HttpError(400, "strategy must be a text")
    if type(added) is not int or not 0 <= added <= ADDED_MAX:
        raise HttpError(400, f"add_brokers must be a whole number from 0 to {ADDED_MAX}")
    what_if = WhatIf(
        settings=_texts(given, "set"),
        add_brokers=added,
        remove_brokers=_texts(given, "remove_brokers"),
    )
    return await _answer(context, strategy, what_if)


def _texts(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = given.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise HttpError(400, f"{name} must be a list of texts")
    return tuple(found)


async def _answer(context: AdminContext, strategy: str, what_if: WhatIf) -> Reply:
    if len(what_if.settings) + len(what_if.remove_brokers) > _ASKED_MAX:
        raise HttpError(400, f"at most {_ASKED_MAX} settings and brokers at once")
    if _turn.is_taken:
        raise HttpError(503, "Another plan is being made: ask again", RETRY)
    _turn.is_taken = True
    try:
        return await in_background(context, partial(_read, context.config, strategy, what_if))
    finally:
        _turn.is_taken = False


def _read(config: Config, strategy: str, what_if: WhatIf, reader: TableReader) -> dict[str, Any]:
    try:
        return look_ahead(reader, started_with(reader, config), strategy, what_if).to_json()
    except CommandError as error:
        status = 400 if isinstance(error, MisuseError) else 409
        raise ReadRefusedError(status, f"{error.what}: {error.why}") from None


_QUERIES = (
    QueryParameter(name="strategy", doc="As if it were this one: avg, threshold, overload, ..."),
    QueryParameter(name="set", doc="As if a setting were so: section.name=value; several times."),
    QueryParameter(
        name="add_brokers", doc="As if so many idle ones joined.", schema=whole(0, ADDED_MAX)
    ),
    QueryParameter(name="remove_broker", doc="As if it were drained; several times."),
)
_ANSWERS = {
    200: "Decisions by cycle, skips, what is near, load before and after.",
    409: "It can't be foreseen, with the reason.",
}
_EXAMPLE = {"dry_run": True, "strategy": "threshold", "cycles": 10, "decisions": None}

FORESEEING_ROUTES = (
    Route(
        method="GET",
        path="/v1/plan",
        handler=get_foresight,
        role=Role.VIEWER,
        about=About(
            summary="What the next cycles would do; nothing is done.",
            queries=_QUERIES,
            answers=_ANSWERS,
            example=Example(path="/v1/plan?strategy=threshold", status=200, answer=_EXAMPLE),
        ),
    ),
    Route(
        method="POST",
        path="/v1/plan",
        handler=post_plan,
        role=Role.VIEWER,
        about=About(
            summary="What the next cycles would do, if; nothing is done.",
            body=_BODY,
            answers=_ANSWERS,
            example=Example(
                path="/v1/plan",
                status=200,
                body={"strategy": "threshold", "set": ["shedding.threshold_percent=5"]},
                answer=_EXAMPLE,
            ),
        ),
    ),
)


_AT_MAX_MS = 10**14
_WINDOW_MAX_MS = 86_400_000

QUERIES = (
    QueryParameter(
        name="at",
        doc="As it was then, in ms since 1970; without it, now.",
        schema=whole(0, _AT_MAX_MS),
    ),
    QueryParameter(
        name="window_ms",
        doc="How far back decisions are looked at.",
        schema=whole(1, _WINDOW_MAX_MS),
    ),
)


def explaining(kind: str) -> Handler:
    """A handler that explains one kind of thing; its name is in the path."""

    async def handle(request: Request, context: AdminContext) -> Reply:
        question = ExplainQuestion(
            kind=kind,
            name="/".join(request.params.values()),
            now_ms=wall_ms(),
            at_ms=request.whole("at", 0, maximum=_AT_MAX_MS),
            window_ms=request.whole("window_ms", WINDOW_MS, minimum=1, maximum=_WINDOW_MAX_MS),
        )
        return await in_background(context, partial(_read_explanation, context.config, question))

    return handle


def _read_explanation(config: Config, question: ExplainQuestion, reader: TableReader) -> Any:
    found = explain(reader, started_with(reader, config, question.at_ms), question)
    if found is None:
        raise ReadRefusedError(404, f"There is no {question.kind} {question.name}")
    return found.to_json()


def _explanation_route(kind: str, path: str, summary: str, example: Example) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=explaining(kind),
        role=Role.VIEWER,
        about=About(
            summary=summary,
            queries=QUERIES,
            answers={200: "Sentences and numbers.", 404: "There is no such thing."},
            example=example,
        ),
    )


EXPLAINING_ROUTES = (
    _explanation_route(
        "cluster",
        "/v1/explain/cluster",
        "What balancing does in this cluster, or why it does nothing.",
        Example(path="/v1/explain/cluster", status=200, answer={"kind": "cluster"}),
    ),
    _explanation_route(
        "broker",
        "/v1/explain/broker/{broker}",
        "Why a broker has what it has, and what it takes to relieve it.",
        Example(path="/v1/explain/broker/nobody:8080", status=404, answer={"reason": None}),
    ),
    _explanation_route(
        "bundle",
        "/v1/explain/bundle/{tenant}/{namespace}/{range}",
        "Why a bundle is where it is, what holds it, what would have to change.",
        Example(
            path="/v1/explain/bundle/acme/free/0x00000000_0xffffffff",
            status=200,
            answer={"kind": "bundle"},
        ),
    ),
    _explanation_route(
        "decision",
        "/v1/explain/decision/{decision_id}",
        "A decision with its numbers, its losers and its effect.",
        Example(path="/v1/explain/decision/local-1-1", status=404, answer={"reason": None}),
    ),
)
