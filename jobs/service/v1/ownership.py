"""Ownership now, at an earlier moment, its changes, and batch lookups.

Decides the notation of a moment: ms since 1970, a version of ownership_events as "v120", or nothing
for now.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from jobs.adapters.delta.table_reader import AsOf, TableReader
from jobs.adapters.processes.clocks import wall_ms
from jobs.operating.answers import RECORD, records_at
from jobs.service.access import Role
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError, Reply, Request, json_reply
from jobs.service.routes import TEXT, TEXTS, About, Example, QueryParameter, Route, whole
from jobs.service.v1.reading import in_background, require, tenant_of
from lbcore.model.names import InvalidNameError, check_namespace, locate_topic
from lbcore.ownership.differences import find_differences
from lbcore.route.addresses import lookup_data
from lbcore.route.bundles import BundleRoute
from lbcore.route.slices import LEFT_OUT, LeftOut
from lbcore.route.snapshot import Answer, LookupOutcome, LookupSnapshot

TOPICS_MAX = 10_000
PAGE_MAX = 10_000
_DIGITS_MAX = 15
_NOW = "now"
_MOMENT = "A moment: now, ms since 1970, or vN for version N of ownership_events."


async def get_ownership(request: Request, context: AdminContext) -> Reply:
    """The bundles, namespace after namespace, a page at a time."""
    namespace = _namespace(request, context)
    after = request.first("after")
    limit = min(PAGE_MAX, request.whole("limit", PAGE_MAX, minimum=1))
    if request.first("as_of"):
        moment = _moment(request, "as_of")
        return await in_background(context, partial(_read_page, moment, namespace, after, limit))
    snapshot = context.snapshot
    names = snapshot.names
    if namespace:
        found = snapshot.namespaces.get(namespace)
        names = (namespace,) if found is not None and found.hash_function else ()
    page = _page(snapshot, names, after, limit + 1)
    return json_reply(
        {
            "table_version": snapshot.position.table_version,
            "bundles": map(record, page[:limit]),
            "next": page[limit - 1].bundle if len(page) > limit else "",
        }
    )


def _page(
    snapshot: LookupSnapshot, names: Sequence[str], after: str, count: int
) -> Sequence[BundleRoute]:
    """The bundles of some namespaces (sorted) that follow the one called `after`."""
    namespace, _, text = after.rpartition("/")
    found: list[BundleRoute] = []
    for name in names[bisect_left(names, namespace) :]:
        live = snapshot.namespaces[name].live
        start = bisect_right(live, text, key=_range_text) if name == namespace else 0
        found += live[start : start + count - len(found)]
        if len(found) == count:
            break
    return found


def _range_text(route: BundleRoute) -> str:
    return route.range_text


def _read_page(
    moment: str, namespace: str, after: str, limit: int, reader: TableReader
) -> dict[str, Any]:
    found = records_at(reader, moment, namespace)
    rows = (row for row in found.walk() if row["bundle"] > after)
    page = [{name: row[name] for name in RECORD} for row in islice(rows, limit + 1)]
    more = page[limit - 1]["bundle"] if len(page) > limit else ""
    return {**_about(found), "bundles": page[:limit], "next": more}


async def get_diff(request: Request, context: AdminContext) -> Reply:
    """The bundles whose owner or state differs between two moments."""
    namespace = _namespace(request, context)
    moments = _moment(request, "from"), _moment(request, "to", default="")
    return await in_background(context, partial(_read_changes, *moments, namespace))


def _read_changes(
    before_at: str, after_at: str, namespace: str, reader: TableReader
) -> dict[str, Any]:
    before, after = (
        records_at(reader, before_at, namespace),
        records_at(reader, after_at, namespace),
    )
    changes = (
        {"bundle": change.bundle, "before": _row(change.before), "after": _row(change.after)}
        for change in find_differences(before.walk(), after.walk())
    )
    return {"from": _about(before), "to": _about(after), "changes": changes}


async def post_lookups(request: Request, context: AdminContext) -> Reply:
    """Many topics from one snapshot; none waits for an owner."""
    asked = request.json()
    topics = asked.get("topics") if isinstance(asked, dict) else None
    listener = asked.get("listener", "") if isinstance(asked, dict) else ""
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise HttpError(400, 'The body must be {"topics": [...]}, each a text')
    if len(topics) > TOPICS_MAX or not isinstance(listener, str):
        raise HttpError(400, f"at most {TOPICS_MAX} topics at once, and listener must be a text")
    snapshot = context.snapshot
    if not request.caller.may(Role.VIEWER, context.cluster):
        await context.turns.gather(_judged(request, context, topic) for topic in topics)
    return json_reply(
        {
            "table_version": snapshot.position.table_version,
            "age_ms": context.age_ms,
            "writer_silent_ms": context.view.writer_silent_ms(wall_ms()),
            "answers": (_looked_up(snapshot, topic, listener) for topic in topics),
        }
    )


def _judged(request: Request, context: AdminContext, topic: str) -> LeftOut:
    """Raises HttpError 403 for a topic of a tenant that the caller may not see."""
    try:
        tenant = tenant_of(locate_topic(topic)[0])
    except InvalidNameError:
        return LEFT_OUT  # of nobody
    require(request, context, Role.VIEWER, tenant)
    return LEFT_OUT


def _looked_up(snapshot: LookupSnapshot, topic: str, listener: str) -> dict[str, Any]:
    try:
        answer = snapshot.answer(topic, listener)
    except InvalidNameError as error:
        return {"topic": topic, "outcome": "invalid_name", "reason": str(error)}
    return {"topic": topic, **_found(answer, listener)}


def record(route: BundleRoute) -> dict[str, Any]:
    """A bundle as it is shown."""
    return {
        "bundle": route.bundle,
        "version_id": route.version_id,
        "state": route.state.value,
        "source": route.source,
        "destination": route.destination,
        "broker": route.broker,
    }


def _found(answer: Answer, listener: str) -> dict[str, Any]:
    shown: dict[str, Any] = {"outcome": answer.outcome.value}
    if answer.route is not None:
        shown |= {"bundle": answer.route.bundle, "version_id": answer.route.version_id}
        shown["broker"] = answer.route.broker
    address = answer.address
    if address is not None and answer.outcome is LookupOutcome.FOUND:
        shown |= lookup_data(address, address.listeners[listener] if listener else None)
    return shown


def _namespace(request: Request, context: AdminContext) -> str:
    """Return the requested namespace, "" = all.

    That takes a viewer of the whole cluster.
    """
    name = request.first("namespace")
    require(request, context, Role.VIEWER, tenant_of(name))
    try:
        return check_namespace(name) if name else ""
    except InvalidNameError as error:
        raise HttpError(400, str(error)) from None


def _moment(request: Request, name: str, default: str | None = None) -> str:
    text = request.first(name, default or "")
    if text == _NOW:
        return ""
    digits = text.removeprefix("v")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
    if is_number or (not text and default is not None):
        return text
    raise HttpError(
        400, f"{name} must be now, ms since 1970, or vN for a version of ownership_events"
    )


def _about(found: AsOf) -> dict[str, int]:
    return {
        "table_version": found.version,
        "at_ms": found.at_ms,
        "known_from_ms": found.known_from_ms,
    }


def _row(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if row is None else {name: row[name] for name in RECORD}


_NAMESPACE = QueryParameter(name="namespace", doc="Only this one; without it, all of the cluster.")
_ONE = {
    "bundle": "acme/free/0x00000000_0xffffffff",
    "version_id": 1,
    "state": "Free",
    "source": "",
    "destination": "",
}

OWNERSHIP_ROUTES = (
    Route(
        method="GET",
        path="/v1/ownership",
        handler=get_ownership,
        checks_itself=True,
        about=About(
            summary="Who owns what, now or then.",
            queries=(
                _NAMESPACE,
                QueryParameter(name="as_of", doc=_MOMENT),
                QueryParameter(
                    name="limit",
                    doc=f"Bundles a page, at most {PAGE_MAX}.",
                    schema=whole(1, 1 << 53),
                ),
                QueryParameter(name="after", doc="The `next` of the page before."),
            ),
            example=Example(
                path="/v1/ownership?namespace=acme/free",
                status=200,
                answer={"table_version": None, "bundles": [{**_ONE, "broker": ""}], "next": ""},
            ),
        ),
    ),
    Route(
        method="GET",
        path="/v1/ownership/diff",
        handler=get_diff,
        checks_itself=True,
        about=About(
            summary="What changed from one moment to another.",
            queries=(
                _NAMESPACE,
                QueryParameter(name="from", doc=_MOMENT),
                QueryParameter(name="to", doc=f"{_MOMENT} Without it, now."),
            ),
            example=Example(
                path="/v1/ownership/diff?from=0&namespace=acme/free",
                status=200,
                answer={
                    "from": {"table_version": None, "at_ms": 0, "known_from_ms": None},
                    "to": {"table_version": None, "at_ms": None, "known_from_ms": None},
                    "changes": [
                        {
                            "bundle": _ONE["bundle"],
                            "before": None,
                            "after": {**_ONE, "cause": None, "at_ms": None},
                        }
                    ],
                },
            ),
        ),
    ),
    Route(
        method="POST",
        path="/v1/lookups",
        handler=post_lookups,
        checks_itself=True,
        is_recorded=False,
        about=About(
            summary="Who serves many topics, from one snapshot.",
            body={
                "type": "object",
                "required": ["topics"],
                "properties": {"topics": {**TEXTS, "maxItems": TOPICS_MAX}, "listener": TEXT},
            },
            example=Example(
                path="/v1/lookups",
                status=200,
                body={"topics": ["persistent://acme/free/t", "persistent://acme/none/t"]},
                answer={
                    "table_version": None,
                    "age_ms": None,
                    "answers": [
                        {
                            "topic": "persistent://acme/free/t",
                            "outcome": "no_owner",
                            "bundle": _ONE["bundle"],
                            "version_id": 1,
                            "broker": "",
                        },
                        {"topic": "persistent://acme/none/t", "outcome": "namespace_not_found"},
                    ],
                },
            ),
        ),
    ),
)
