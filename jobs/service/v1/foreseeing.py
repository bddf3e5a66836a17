"""The plan's dry run over HTTP: what the next cycles would do, before and after.

Decides how it is asked for, and that one is made at a time: it takes seconds of a core in a large
cluster, and lookups share the process. Source: ours.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from jobs.adapters.delta.table_reader import TableReader
from jobs.console import CommandError, MisuseError
from jobs.operating.foreseeing import look_ahead
from jobs.operating.job_settings import started_with
from jobs.service.about import OBJECT, TEXT, TEXTS, About, Example, QueryParameter, whole
from jobs.service.access import Role
from jobs.service.context import AdminContext
from jobs.service.exchange import RETRY, HttpError, Reply, Request
from jobs.service.reader_process import ReadRefusedError
from jobs.service.routes import Route
from jobs.service.v1.reading import in_background
from lbcore.config.tree import Config
from lbcore.foresight.foresee import ADDED_MAX, WhatIf

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
    """Whether one is being made."""

    def __init__(self) -> None:
        self.is_taken = False


_turn = _Turn()


async def get_plan(request: Request, context: AdminContext) -> Reply:
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
        handler=get_plan,
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
