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
from jobs.operating.foreseeing import rehearse_command
from jobs.service.access import Role
from jobs.service.context import COMMAND_TIMEOUT_MS, AdminContext, CommandEnd
from jobs.service.exchange import HttpError, Reply, Request, json_reply
from jobs.service.routes import (
    OBJECT,
    TEXT,
    TEXTS,
    WHOLE,
    About,
    Example,
    Handler,
    QueryParameter,
    Route,
    whole,
)
from jobs.service.v1.reading import ReadRefusedError, in_background, require, tenant_of
from lbcore.config.tree import Config
from lbcore.plain import to_plain
from lbcore.wire.commands import KINDS, RefusedArguments, parse_arguments
from lbcore.wire.messages import Command

_STATUSES = {"done": 200, "accepted": 202, "sent": 202, "refused": 409, "timed_out": 504}
_ID_MAX_CHARS = 100
_WAIT_MAX_MS, _TIMEOUT_MAX_MS = 600_000, 86_400_000
_UNLOAD_ID = "20261121-unload-1"

QUERIES = (
    QueryParameter(
        name="timeout_ms",
        doc="Until when the balancer may begin it, from now on.",
        schema=whole(0, _TIMEOUT_MAX_MS),
    ),
    QueryParameter(
        name="wait_ms",
        doc="Longest wait for the outcome; timeout_ms without it. Then ask by the id.",
        schema=whole(0, _WAIT_MAX_MS),
    ),
    QueryParameter(name="dry_run", doc="true: nothing is sent, and what it would do is said."),
    QueryParameter(
        name="command_id", doc="The same id again is the same command, carried out once."
    ),
)
ANSWERS = {
    200: "It has happened.",
    202: "It is under way; ask for its outcome by its id.",
    409: "The balancer refuses it, with the reason.",
    504: "It was not begun in time, and will not be.",
}


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
    timeout_ms = request.whole("timeout_ms", COMMAND_TIMEOUT_MS, maximum=_TIMEOUT_MAX_MS)
    if request.flag("dry_run"):
        command = new_command(
            context.cluster,
            arguments,
            principal=request.caller.name,
            command_id=_command_id(request),
            timeout_ms=timeout_ms,
        )
        return await in_background(context, partial(_rehearse, context.config, command))
    outcome = await context.command(
        arguments,
        request,
        timeout_ms=timeout_ms,
        wait_ms=request.whole("wait_ms", min(timeout_ms, _WAIT_MAX_MS), maximum=_WAIT_MAX_MS),
        command_id=_command_id(request),
    )
    return _answer(outcome)


def _rehearse(config: Config, command: Command, reader: TableReader) -> Any:
    return to_plain(rehearse_command(reader, started_with(reader, config), command))


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
    value = {
        "command_id": outcome.command_id,
        "status": outcome.status,
        "reason": outcome.reason,
        "result": outcome.result,
    }
    return json_reply(value, _STATUSES.get(outcome.status, 409))


def arguments_schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind's arguments, from their declarations."""
    properties, required = {}, []
    for item in fields(KINDS[kind]):
        default = item.default
        if default is MISSING:
            required.append(item.name)
        shape = TEXT if default is MISSING else _SHAPES.get(type(default), OBJECT)
        if default is MISSING and item.name in ("keys", "namespaces", "primary"):
            shape = TEXTS
        if item.name == "values":
            shape = OBJECT
        properties[item.name] = {**shape, "description": item.metadata["argument"].doc}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


_SHAPES: Mapping[type, Mapping[str, Any]] = {
    bool: {"type": "boolean"},
    int: WHOLE,
    float: {"type": "number"},
    tuple: {"type": "array"},
    str: TEXT,
}
_DONE: Mapping[str, object] = {"command_id": None, "status": "done", "reason": "", "result": {}}
_RANGE = "0x00000000_0x40000000"


def _about(summary: str, kind: str, path: str, body: Any = None) -> About:
    return About(
        summary=summary,
        queries=QUERIES,
        body=arguments_schema(kind) if body is not None else None,
        answers=ANSWERS,
        example=Example(path=path, status=200, body=body, answer=_DONE),
    )


def _short(method: str, path: str, kind: str, names: tuple[str, ...], about: About) -> Route:
    return Route(
        method=method,
        path=path,
        handler=short_way(kind, *names),
        role=Role.OPERATOR,
        checks_itself=True,
        about=about,
    )


_BUNDLE = "/v1/bundles/{tenant}/{namespace}/{range}"
_AT = f"/v1/bundles/acme/ns1/{_RANGE}"

COMMAND_ROUTES = (
    Route(
        method="POST",
        path="/v1/commands/{kind}",
        handler=post_command,
        checks_itself=True,
        about=About(
            summary="Ask the balancer for anything: the body has the arguments of the kind.",
            queries=QUERIES,
            body=OBJECT,
            answers={**ANSWERS, 404: "There is no such kind."},
            example=Example(
                path=f"/v1/commands/unload_bundle?command_id={_UNLOAD_ID}",
                status=200,
                body={"bundle": f"acme/ns1/{_RANGE}", "destination": "broker-2:8080"},
                answer={**_DONE, "command_id": _UNLOAD_ID},
            ),
        ),
    ),
    Route(
        method="GET",
        path="/v1/commands/{command_id}",
        handler=get_command,
        role=Role.VIEWER,
        about=About(
            summary="What became of a command.",
            answers={200: "Its newest row.", 404: "No such command has come to the balancer."},
            example=Example(path="/v1/commands/unknown", status=404, answer={"reason": None}),
        ),
    ),
    _short(
        "PUT",
        "/v1/brokers/{broker}/drain",
        "drain_broker",
        ("broker",),
        _about(
            "Move everything away from a broker.",
            "drain_broker",
            "/v1/brokers/broker-1:8080/drain",
            {"max_in_flight": 10},
        ),
    ),
    _short(
        "DELETE",
        "/v1/brokers/{broker}/drain",
        "cancel_drain",
        ("broker",),
        _about(
            "Let a broker take bundles again.", "cancel_drain", "/v1/brokers/broker-1:8080/drain"
        ),
    ),
    _short(
        "DELETE",
        "/v1/brokers/{broker}",
        "forget_broker",
        ("broker",),
        _about("Forget a broker that is gone.", "forget_broker", "/v1/brokers/broker-9:8080"),
    ),
    _short(
        "PUT",
        f"{_BUNDLE}/pin",
        "pin_bundle",
        ("bundle",),
        _about(
            "Keep a bundle on a broker.",
            "pin_bundle",
            f"{_AT}/pin",
            {"broker": "broker-1:8080", "ttl_ms": 3_600_000, "reason": "release day"},
        ),
    ),
    _short(
        "DELETE",
        f"{_BUNDLE}/pin",
        "unpin_bundle",
        ("bundle",),
        _about("Let a bundle move again.", "unpin_bundle", f"{_AT}/pin"),
    ),
    _short(
        "PUT",
        f"{_BUNDLE}/unload",
        "unload_bundle",
        ("bundle",),
        _about(
            "Move a bundle.", "unload_bundle", f"{_AT}/unload", {"destination": "broker-2:8080"}
        ),
    ),
    _short(
        "PUT",
        f"{_BUNDLE}/split",
        "split_bundle",
        ("bundle",),
        _about("Split a bundle into two or more.", "split_bundle", f"{_AT}/split", {"parts": 3}),
    ),
    _short(
        "PUT",
        "/v1/pause",
        "pause",
        (),
        _about("Stop shedding and splitting.", "pause", "/v1/pause", {"reason": "upgrade"}),
    ),
    _short("DELETE", "/v1/pause", "resume", (), _about("Go on.", "resume", "/v1/pause")),
    _short(
        "DELETE",
        "/v1/brake",
        "release_brake",
        (),
        _about("Go on after many brokers vanished.", "release_brake", "/v1/brake"),
    ),
)
