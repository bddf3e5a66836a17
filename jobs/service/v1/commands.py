"""Commands over HTTP: every kind by its name, and short ways to the usual ones.

Decides the role that a kind takes and what its outcome is answered with: 200 done, 202 under way
still, 409 refused, 504 not begun in time.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import partial
from typing import Any

from jobs.adapters.delta.rows import literal
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.kafka.command_client import new_command
from jobs.operating.connection_options import started_with
from jobs.operating.foreseeing import RehearsedCommand, rehearse_command
from jobs.service.access import Role
from jobs.service.context import COMMAND_TIMEOUT_MS, AdminContext, CommandEnd
from jobs.service.exchange import HttpError, Reply, Request, json_reply, problem
from jobs.service.routes import (
    OBJECT,
    Example,
    Handler,
    Route,
    TextQuery,
    WholeQuery,
    reading,
)
from jobs.service.v1.openapi import Schemas
from jobs.service.v1.reading import ReadRefusedError, in_background, require, tenant_of
from lbcore.config.tree import Config
from lbcore.plain import to_plain
from lbcore.wire.commands import KINDS, RefusedArguments, parse_arguments
from lbcore.wire.kinds.command_about import CommandArguments
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
    409: "The balancer refuses it, with the reason.",
    504: "It was not begun in time, and will not be.",
}
_ACCEPTED = 202


async def post_command(request: Request, context: AdminContext) -> Reply:
    """Any kind, with its arguments as the body."""
    return await _carry_out(request, context, request.params["kind"], {})


async def get_command(request: Request, context: AdminContext) -> Reply:
    """Return the outcome of a command, from the table `commands`."""
    return await in_background(context, partial(_read_command, request.params["command_id"]))


def _read_command(command_id: str, reader: TableReader) -> dict[str, Any]:
    rows = reader.rows("commands", condition=f"command_id = {literal(command_id)}")
    if not rows:
        raise ReadRefusedError(404, f"No command {command_id} is known yet")
    row = max(rows, key=lambda r: (r["status"] != "accepted", r["at_ms"]))
    texts = {name: json.loads(row[name] or "{}") for name in ("arguments", "result")}
    kept = ("command_id", "kind", "principal", "status", "reason", "at_ms")
    return {**{name: row[name] for name in kept}, **texts}


def short_way(kind: str, *names: str) -> Handler:
    """A handler of one kind; names: its arguments that are parts of the path.

    "bundle" is put together of the parts tenant, namespace and range; "namespace" of two.
    """

    async def handle(request: Request, context: AdminContext) -> Reply:
        return await _carry_out(request, context, kind, _from_path(request.params, names))

    return handle


def _from_path(params: Mapping[str, str], names: tuple[str, ...]) -> dict[str, Any]:
    made = {
        "bundle": "/".join(params.get(part, "") for part in ("tenant", "namespace", "range")),
        "namespace": "/".join(params.get(part, "") for part in ("tenant", "namespace")),
    }
    return {name: made.get(name) or params[name] for name in names}


async def _carry_out(
    request: Request, context: AdminContext, kind: str, known: Mapping[str, Any]
) -> Reply:
    arguments = _arguments(request, context, kind, known)
    timeout_ms = _TIMEOUT.of(request)
    wait_ms = _WAIT.of(request) if "wait_ms" in request.query else min(timeout_ms, _WAIT_MAX_MS)
    outcome = await context.command(
        arguments,
        request,
        timeout_ms=timeout_ms,
        wait_ms=wait_ms,
        command_id=_command_id(request),
    )
    return _answer(outcome)


async def post_rehearsal(request: Request, context: AdminContext) -> Reply:
    """Predicted outcome of a command of any kind; nothing is sent."""
    arguments = _arguments(request, context, request.params["kind"], {})
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


def _arguments(
    request: Request, context: AdminContext, kind: str, known: Mapping[str, Any]
) -> CommandArguments:
    """Return the arguments of a command that the caller may send; raises HttpError."""
    if kind not in KINDS:
        raise HttpError(404, f"There is no command {kind[:100]}")
    given = request.json()
    if not isinstance(given, dict | None):
        raise HttpError(400, "The body must be a JSON object of the command's arguments")
    role = role_of(kind)
    asked = {**(given or {}), **known}
    # Who may do it everywhere is told what is wrong; whom it depends on the tenant, after that.
    if not request.caller.may(role, context.cluster):
        require(request, context, role, _tenant(asked))
    arguments = parse_arguments(kind, asked)
    if isinstance(arguments, RefusedArguments):
        raise HttpError(400, arguments.detail)
    return arguments


def role_of(kind: str) -> Role:
    """Return the role that may send a command of this kind."""
    return Role.OPERATOR if KINDS[kind].about.is_operating else Role.ADMIN


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


def _answer(outcome: CommandEnd) -> Reply:
    status = _STATUS_OF.get(outcome.status, 409)
    named = {"command_id": outcome.command_id, "result": outcome.result}
    if status > _ACCEPTED:
        return problem(status, outcome.reason, outcome=outcome.status, **named)
    return json_reply({**named, "status": outcome.status, "reason": outcome.reason}, status)


def arguments_schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind's arguments, from their declarations."""
    known, declared = Schemas().of_object(KINDS[kind]), fields(KINDS[kind])
    properties = {
        item.name: {**known["properties"][item.name], "description": item.metadata["argument"].doc}
        for item in declared
    }
    required = [item.name for item in declared if item.default is MISSING]
    schema = {**known, "properties": properties, "required": required}
    return schema if required else {name: schema[name] for name in schema if name != "required"}


_AT = "/v1/bundles/{tenant}/{namespace}/{range}"
_HERE = {
    "{tenant}/{namespace}/{range}": "acme/ns1/0x00000000_0x40000000",
    "{broker}": "broker-1:8080",
}


def _short(way: str, kind: str, names: str, summary: str, body: Any = None) -> Route:
    """Make a short way to a command.

    way: method and path. names: of arguments in the path. body: of the example.
    """
    method, path = way.split()
    asked = path
    for part, known in _HERE.items():
        asked = asked.replace(part, known)
    return Route(
        method=method,
        path=path,
        handler=short_way(kind, *names.split()),
        role=Role.OPERATOR,
        checks_itself=True,
        summary=summary,
        answer=_OUTCOME,
        queries=_QUERIES,
        body=None if body is None else arguments_schema(kind),
        statuses=_STATUSES,
        example=Example(asked, body=body),
    )


_TO = {"destination": "broker-2:8080"}
_PIN = {"broker": "broker-1:8080", "ttl_ms": 3_600_000, "reason": "release day"}
_DRAIN = "/v1/brokers/{broker}/drain"

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
            body={"bundle": "acme/ns1/0x00000000_0x40000000", **_TO},
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
    reading(
        "/v1/commands/{command_id}",
        get_command,
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
    _short(
        f"PUT {_DRAIN}",
        "drain_broker",
        "broker",
        "Move everything away from a broker.",
        {"max_in_flight": 10},
    ),
    _short(f"DELETE {_DRAIN}", "cancel_drain", "broker", "Let a broker take bundles again."),
    _short(
        "DELETE /v1/brokers/{broker}", "forget_broker", "broker", "Forget a broker that is gone."
    ),
    _short(f"PUT {_AT}/pin", "pin_bundle", "bundle", "Keep a bundle on a broker.", _PIN),
    _short(f"DELETE {_AT}/pin", "unpin_bundle", "bundle", "Let a bundle move again."),
    _short(f"PUT {_AT}/unload", "unload_bundle", "bundle", "Move a bundle.", _TO),
    _short(
        f"PUT {_AT}/split",
        "split_bundle",
        "bundle",
        "Split a bundle into two or more.",
        {"parts": 3},
    ),
    _short(
        f"PUT {_AT}/merge",
        "merge_bundle",
        "bundle",
        "Merge a bundle with its upper neighbour.",
    ),
    _short("PUT /v1/pause", "pause", "", "Stop shedding and splitting.", {"reason": "upgrade"}),
    _short("DELETE /v1/pause", "resume", "", "Go on."),
    _short("DELETE /v1/brake", "release_brake", "", "Go on after many brokers vanished."),
)
