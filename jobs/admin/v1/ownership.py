"""Who owns what, now, then, and what has changed in between; and many lookups at once.

Decides how a moment is written: ms since 1970, a version of ownership_events as "v120", or nothing
for now. Source: ours.
"""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from jobs.adapters.table_reader import AsOf, TableReader
from jobs.admin.about import TEXT, TEXTS, About, Example, Query, whole
from jobs.admin.access import Role
from jobs.admin.context import AdminContext
from jobs.admin.exchange import HttpError, Reply, Request, json_reply
from jobs.admin.routes import Route
from jobs.admin.v1.reading import in_background, require, tenant_of
from lbcore.model.names import InvalidNameError, check_namespace
from lbcore.ownership.differences import find_differences
from lbcore.route.addresses import lookup_data
from lbcore.route.bundles import BundleRoute
from lbcore.route.snapshot import Answer, Outcome

TOPICS_MAX = 10_000
PAGE_MAX = 10_000
_DIGITS_MAX = 15
_SHOWN = ("bundle", "version_id", "state", "source", "destination", "cause", "at_ms")
_MOMENT = "A moment: ms since 1970, or vN for version N of ownership_events."


async def get_ownership(request: Request, context: AdminContext) -> Reply:
    """The bundles in name order, a page at a time."""
    namespace = _namespace(request, context)
    if request.first("as_of"):
        moment = _moment(request, "as_of")
        found = await in_background(context, lambda reader: _at(reader, moment, namespace))
        rows = [{name: row[name] for name in _SHOWN} for row in found.rows]
        return json_reply(
            {**_about(found), **_page(request, ((row["bundle"], row) for row in rows))}
        )
    snapshot = context.snapshot
    spaces = sorted(snapshot.namespaces.values(), key=lambda space: space.namespace)
    wanted = [s for s in spaces if s.hash_function and namespace in ("", s.namespace)]
    page = _page(request, ((route.bundle, route) for space in wanted for route in space.live))
    shown = {**page, "bundles": [record(route) for route in page["bundles"]]}
    return json_reply({"table_version": snapshot.position.table_version, **shown})


async def get_diff(request: Request, context: AdminContext) -> Reply:
    """The bundles whose owner or state differs between two moments."""
    namespace = _namespace(request, context)
    moments = _moment(request, "from"), _moment(request, "to", default="")

    def read(reader: TableReader) -> tuple[AsOf, AsOf]:
        return _at(reader, moments[0], namespace), _at(reader, moments[1], namespace)

    before, after = await in_background(context, read)
    changes = [
        {"bundle": change.bundle, "before": _row(change.before), "after": _row(change.after)}
        for change in find_differences(before.rows, after.rows)
    ]
    return json_reply(
        {
            "from": _about(before),
            "to": _about(after),
            "changes": changes,
        }
    )


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
    may_all = request.caller.may(Role.VIEWER, context.cluster)
    answers = []
    for topic in topics:
        try:
            answer = snapshot.answer(topic, listener)
        except InvalidNameError as error:
            answers.append({"topic": topic, "outcome": "invalid_name", "reason": str(error)})
            continue
        if not may_all:
            require(request, context, Role.VIEWER, _tenant_of_topic(topic))
        answers.append({"topic": topic, **_found(answer, listener)})
    about = {"table_version": snapshot.position.table_version}
    return json_reply({**about, "answers": answers})


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
    if address is not None and answer.outcome is Outcome.FOUND:
        shown |= lookup_data(address, address.listeners[listener] if listener else None)
    return shown


def _tenant_of_topic(topic: str) -> str:
    """The name has been found to be one: a full one, or a short one of public/default's form."""
    rest = topic.partition("://")[2] or topic
    return tenant_of(rest) if "/" in rest else "public"


def _namespace(request: Request, context: AdminContext) -> str:
    """The namespace that is asked for, "" = all, which takes a viewer of the whole cluster."""
    name = request.first("namespace")
    require(request, context, Role.VIEWER, tenant_of(name))
    try:
        return check_namespace(name) if name else ""
    except InvalidNameError as error:
        raise HttpError(400, str(error)) from None


def _moment(request: Request, name: str, default: str | None = None) -> str:
    text = request.first(name, default or "")
    digits = text.removeprefix("v")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
    if is_number or (not text and default is not None):
        return text
    raise HttpError(400, f"{name} must be ms since 1970, or vN for a version of ownership_events")


def _at(reader: TableReader, moment: str, namespace: str) -> AsOf:
    condition = f"namespace = '{namespace}'" if namespace else ""
    if not moment:
        return reader.newest(condition)
    if moment.startswith("v"):
        return reader.at_version(int(moment[1:]), condition)
    return reader.at_time(int(moment), condition)


def _about(found: AsOf) -> dict[str, int]:
    return {
        "table_version": found.version,
        "at_ms": found.at_ms,
        "known_from_ms": found.known_from_ms,
    }


def _row(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if row is None else {name: row[name] for name in _SHOWN}


def _page(request: Request, found: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Those after the bundle `after`; next: what to give as `after` for more, "" at the end."""
    after, limit = request.first("after"), request.whole("limit", PAGE_MAX, minimum=1)
    rest = sorted((pair for pair in found if pair[0] > after), key=itemgetter(0))
    page = rest[: min(limit, PAGE_MAX)]
    more = page[-1][0] if len(page) < len(rest) else ""
    return {"bundles": [value for _, value in page], "next": more}


_NAMESPACE = Query(name="namespace", doc="Only this one; without it, all of the cluster.")
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
                Query(name="as_of", doc=_MOMENT),
                Query(
                    name="limit",
                    doc=f"Bundles a page, at most {PAGE_MAX}.",
                    schema=whole(1, 1 << 53),
                ),
                Query(name="after", doc="The `next` of the page before."),
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
                Query(name="from", doc=_MOMENT),
                Query(name="to", doc=f"{_MOMENT} Without it, now."),
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
