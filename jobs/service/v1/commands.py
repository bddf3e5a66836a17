"""Commands over HTTP: every kind by its name.

Decides the role that a kind takes and what its outcome is answered with: 200 done, 202 under way
still, 409 refused or failed, 504 timed out.
"""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from jobs.adapters.delta.rows import literal
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.kafka.command_client import new_command
from jobs.operating.connection_options import started_with
from jobs.operating.plans import RehearsedCommand, rehearse_command
from jobs.service.access import Role
from jobs.service.context import COMMAND_TIMEOUT_MS, AdminContext
from jobs.service.exchange import HttpError, Reply, Request, error_body, json_reply
from jobs.service.routes import (
    OBJECT,
    Example,
    Route,
    TextQuery,
    WholeQuery,
)
from jobs.service.v1.reading import (
    ReadRefusedError,
    TableQuestion,
    in_background,
    require,
    table_route,
    tenant_of,
)
from lbcore.config.tree import Config
from lbcore.packing import to_plain
from lbcore.wire.arguments import CommandArguments
from lbcore.wire.commands import KINDS, RefusedArguments, parse_arguments
from lbcore.wire.messages import Command

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
        raise ReadRefusedError(404, f"No command {command_id} is known yet")
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
        require(request, context, role, _tenant(asked))
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
