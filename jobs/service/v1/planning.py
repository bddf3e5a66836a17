"""Plans and commands over HTTP, the dry run, undo, and explanations.

The tables have the plans, `jobs.operating` foresees and explains, `lbcore.explain` has the texts.
One dry run is made at a time: it takes seconds of a core in a large cluster. Decides the role that
a kind of command takes and what its outcome is answered with: 200 done, 202 under way still, 409
refused or failed, 504 timed out.
"""

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from typing import Any, get_type_hints

from jobs.adapters.delta.rows import literal
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.kafka.command_client import new_command
from jobs.console import CommandError, MisuseError
from jobs.operating.connection_options import started_with
from jobs.operating.plans import (
    RehearsedCommand,
    look_ahead,
    proposals_of,
    rehearse_command,
    undo_moves,
)
from jobs.operating.status import WINDOW_MS, ExplainQuestion, explain
from jobs.service.access import Role
from jobs.service.context import COMMAND_TIMEOUT_MS, AdminContext
from jobs.service.exchange import (
    RETRY,
    HttpError,
    Reply,
    Request,
    error_body,
    json_reply,
    require_role,
)
from jobs.service.routes import (
    OBJECT,
    Example,
    Route,
    TextQuery,
    TextsQuery,
    WholeQuery,
    reading,
)
from jobs.service.v1.reading import (
    TableQuestion,
    in_background,
    question_of,
    table_route,
    tenant_of,
)
from lbcore.balancer.rules import PlanProposal, ProposedStep
from lbcore.config.tree import Config
from lbcore.explain.explanation import Explanation
from lbcore.foresight.forecast import ADDED_MAX, Foresight, WhatIf
from lbcore.model.times import DAY_MS
from lbcore.packing import to_plain
from lbcore.wire.arguments import CommandArguments
from lbcore.wire.commands import KINDS, RefusedArguments, parse_arguments
from lbcore.wire.messages import Command

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
        raise HttpError(404, f"There is no plan {name}, or none of the last day")
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
        raise HttpError(409, f"{error.what}: {error.why}") from None
    return {"moves": moves, "left": left}


_PROPOSAL = {name: kind for name, kind in get_type_hints(PlanProposal).items() if name != "steps"}
_SUMMARY = (_PROPOSAL, {"plan": str, **dict.fromkeys(_COUNTS, int)})


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
        raise HttpError(status, f"{error.what}: {error.why}") from None


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
        raise HttpError(404, f"There is no {kind} {question.name}")
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


PLANNING_ROUTES = (
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
    reading(
        "/v1/plan",
        get_foresight,
        "What the next cycles would do; nothing is done.",
        ({"dry_run": bool, "tables_age_ms": int}, Foresight),
        queries=_FORESIGHT_QUERIES,
        statuses={409: "It can't be foreseen, with the reason."},
        example=Example("/v1/plan?strategy=threshold"),
    ),
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


_STATUS_OF = {"done": 200, "accepted": 202, "sent": 202, "timed_out": 504}
_ID_MAX_CHARS = 100
_WAIT_MAX_MS, _TIMEOUT_MAX_MS = 600_000, 86_400_000

_TIMEOUT = WholeQuery(
    "timeout_ms", "Until when it may be begun.", 0, _TIMEOUT_MAX_MS, COMMAND_TIMEOUT_MS
)
_WAIT = WholeQuery(
    "wait_ms", "Longest wait for the outcome; timeout_ms without it.", 0, _WAIT_MAX_MS
)
_QUERIES = (
    _TIMEOUT,
    _WAIT,
    TextQuery("command_id", "The same id again is the same command, done once."),
)
_OUTCOME = {"command_id": str, "status": str, "reason": str, "result": dict[str, Any]}
_STATUSES = {
    200: "It has happened.",
    202: "It is under way; ask for its outcome by its id.",
    409: "It was refused or has failed, with the reason.",
    504: "Its time was over; the reason says whether it goes on.",
}
_ACCEPTED = 202


def _read_command(asked: TableQuestion, reader: TableReader) -> dict[str, Any]:
    command_id = asked["command_id"]
    rows = reader.rows("commands", condition=f"command_id = {literal(command_id)}")
    if not rows:
        raise HttpError(404, f"No command {command_id} is known yet")
    row = max(rows, key=lambda r: (r["status"] != "accepted", r["at_ms"]))
    texts = {name: json.loads(row[name] or "{}") for name in ("arguments", "result")}
    kept = ("command_id", "kind", "principal", "status", "reason", "at_ms")
    return {**{name: row[name] for name in kept}, **texts}


async def post_command(request: Request, context: AdminContext) -> Reply:
    """Any kind, with its arguments as the body."""
    arguments = _arguments(request, context)
    timeout_ms = _TIMEOUT.of(request)
    wait_ms = _WAIT.of(request) if "wait_ms" in request.query else min(timeout_ms, _WAIT_MAX_MS)
    outcome = await context.command(
        arguments,
        request,
        timeout_ms=timeout_ms,
        wait_ms=wait_ms,
        command_id=_command_id(request),
    )
    status = _STATUS_OF.get(outcome.status, 409)
    named = {"command_id": outcome.command_id, "result": outcome.result}
    if status > _ACCEPTED:
        kind, body = error_body(b"", status, outcome.reason, outcome=outcome.status, **named)
        return Reply(status=status, body=body, headers=(kind,))
    return json_reply({**named, "status": outcome.status, "reason": outcome.reason}, status)


async def post_rehearsal(request: Request, context: AdminContext) -> Reply:
    """Predicted outcome of a command of any kind; nothing is sent."""
    arguments = _arguments(request, context)
    command = new_command(
        context.cluster,
        arguments,
        principal=request.caller.name,
        command_id=_command_id(request),
        timeout_ms=_TIMEOUT.of(request),
    )
    return await in_background(context, partial(_rehearse, context.config, command))


def _rehearse(config: Config, command: Command, reader: TableReader) -> Any:
    return to_plain(rehearse_command(reader, started_with(reader, config), command))


def _arguments(request: Request, context: AdminContext) -> CommandArguments:
    """Return the arguments of a command that the caller may send; raises HttpError."""
    kind = request.params["kind"]
    if kind not in KINDS:
        raise HttpError(404, f"There is no command {kind[:100]}")
    given = request.json()
    asked = {} if given is None else given
    if not isinstance(asked, dict):
        raise HttpError(400, "The body must be a JSON object of the command's arguments")
    role = role_of(kind)
    # Who may do it everywhere is told what is wrong; whom it depends on the tenant, after that.
    if not request.caller.may(role, context.cluster):
        require_role(request.caller, role, context.cluster, _tenant(asked))
    arguments = parse_arguments(kind, asked)
    if isinstance(arguments, RefusedArguments):
        raise HttpError(400, arguments.detail)
    return arguments


def role_of(kind: str) -> Role:
    """Return the role that may send a command of this kind."""
    return Role.OPERATOR if KINDS[kind].spec.is_for_operators else Role.ADMIN


def _tenant(asked: Mapping[str, Any]) -> str:
    """The one tenant that a command touches, "*" when it is not one.

    A bundle outside the namespace that is named with it is refused by its arguments' rules.
    """
    named = {asked[name] for name in ("bundle", "namespace") if isinstance(asked.get(name), str)}
    tenants = {tenant_of(name) for name in named if name}
    return tenants.pop() if len(tenants) == 1 else "*"


def _command_id(request: Request) -> str:
    given = request.first("command_id")
    if len(given) > _ID_MAX_CHARS or not given.isascii() or not (given.isprintable() or not given):
        raise HttpError(400, f"command_id must be at most {_ID_MAX_CHARS} printable characters")
    return given


COMMAND_ROUTES = (
    Route(
        method="POST",
        path="/v1/commands/{kind}",
        handler=post_command,
        checks_itself=True,
        summary="Ask the balancer for anything: the body has the arguments of the kind.",
        answer=_OUTCOME,
        queries=_QUERIES,
        body=OBJECT,
        statuses={**_STATUSES, 404: "There is no such kind."},
        example=Example(
            "/v1/commands/unload_bundle?command_id=20261121-unload-1",
            body={
                "bundle": "acme/ns1/0x00000000_0x40000000",
                "destination": "broker-2:8080",
            },
        ),
    ),
    Route(
        method="POST",
        path="/v1/rehearsals/{kind}",
        handler=post_rehearsal,
        checks_itself=True,
        is_recorded=False,
        summary="Say what a command would do; nothing is sent.",
        answer=RehearsedCommand,
        queries=_QUERIES[::2],
        body=OBJECT,
        statuses={404: "There is no such kind."},
        example=Example("/v1/rehearsals/pause", body={}),
    ),
    table_route(
        "/v1/commands/{command_id}",
        _read_command,
        "What became of a command: its newest row.",
        {
            **dict.fromkeys(("command_id", "kind", "principal", "status", "reason"), str),
            "at_ms": int,
            "arguments": dict[str, Any],
            "result": dict[str, Any],
        },
        statuses={404: "No such command has come to the balancer."},
        example=Example("/v1/commands/unknown", 404),
    ),
)
