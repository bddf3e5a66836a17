"""Ownership now and earlier, its changes, their stream, and batch lookups.

A moment is ms since 1970, a version of ownership_events as "v120", or nothing for now. After
`reset` a watcher of the stream reads /v1/ownership again. Every `alive_ms` an `alive` has the age
of the view, the place up to which all changes were sent, and the versions of the lists of
namespaces and brokers. A comment (": end") follows when there are no more changes for now.
"""

import asyncio
import re
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import islice
from operator import attrgetter
from time import monotonic
from typing import Any

from jobs.adapters.delta.table_reader import AsOf, TableReader
from jobs.adapters.delta.table_scan import rows_in
from jobs.adapters.processes.clocks import wall_ms
from jobs.operating.answers import record_of, records_at
from jobs.service.access import Role
from jobs.service.changes import (
    ChangeFeed,
    Place,
    RecordChange,
    Rendered,
    format_place,
    parse_place,
)
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError, Reply, Request, encode, json_reply, require_role
from jobs.service.routes import TEXT, TEXTS, Example, Route, TextQuery, WholeQuery, reading
from jobs.service.v1.reading import in_background, tenant_of
from lbcore.model.names import InvalidNameError, check_namespace, locate_topic
from lbcore.ownership.changes import find_differences
from lbcore.ownership.records import State
from lbcore.route.addresses import lookup_data
from lbcore.route.bundles import BundleRoute
from lbcore.route.slices import LEFT_OUT, LeftOut
from lbcore.route.snapshot import LookupOutcome, LookupSnapshot

TOPICS_MAX = 10_000
PAGE_MAX = 10_000
_TIME_OR_VERSION = re.compile("v?[0-9]{1,15}")
_MOMENT = "A moment: now, ms since 1970, or vN for version N of ownership_events."


async def get_ownership(request: Request, context: AdminContext) -> Reply:
    """The bundles, namespace after namespace, a page at a time."""
    namespace = _namespace(request, context)
    after = request.first("after")
    limit = min(PAGE_MAX, _LIMIT.of(request))
    if request.first("as_of"):
        moment = _moment(request, "as_of")
        return await in_background(context, partial(_read_page, moment, namespace, after, limit))
    snapshot = context.view.snapshot
    names = snapshot.names
    if namespace:
        found = snapshot.namespaces.get(namespace)
        names = (namespace,) if found is not None and found.hash_function else ()
    page = _page(snapshot, names, after, limit + 1)
    digest = blake2b(snapshot.position.query_id.encode(), digest_size=8)
    await context.turns.gather(map(partial(_add_to_digest, digest), page))
    return json_reply(
        {
            "table_version": snapshot.position.table_version,
            "bundles": map(record, page[:limit]),
            "next": page[limit - 1].bundle if len(page) > limit else "",
        },
        tag=digest.hexdigest(),
    )


def _add_to_digest(digest: "blake2b", route: BundleRoute) -> LeftOut:
    """Add a record to the digest of a page: a version of a record never changes."""
    digest.update(b"%s %d\n" % (route.bundle.encode(), route.version_id))
    return LEFT_OUT


def _page(
    snapshot: LookupSnapshot, names: Sequence[str], after: str, count: int
) -> Sequence[BundleRoute]:
    """The bundles of some namespaces (sorted) that follow the one called `after`."""
    namespace, _, text = after.rpartition("/")
    found: list[BundleRoute] = []
    for name in names[bisect_left(names, namespace) :]:
        live = snapshot.namespaces[name].live
        start = bisect_right(live, text, key=attrgetter("range_text")) if name == namespace else 0
        found += live[start : start + count - len(found)]
        if len(found) == count:
            break
    return found


def _read_page(
    moment: str, namespace: str, after: str, limit: int, reader: TableReader
) -> dict[str, Any]:
    found = records_at(reader, moment, namespace)
    rows = (row for row in rows_in(found.table) if row["bundle"] > after)
    page = list(map(record_of, islice(rows, limit + 1)))
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
    before, after = (records_at(reader, at, namespace) for at in (before_at, after_at))
    changes = (
        {
            "bundle": change.bundle,
            "before": change.before and record_of(change.before),
            "after": change.after and record_of(change.after),
        }
        for change in find_differences(rows_in(before.table), rows_in(after.table))
    )
    return {"from": _about(before), "to": _about(after), "changes": changes}


async def post_lookups(request: Request, context: AdminContext) -> dict[str, Any]:
    """Many topics from one snapshot; none waits for an owner."""
    asked = request.json()
    topics = asked.get("topics") if isinstance(asked, dict) else None
    listener = asked.get("listener", "") if isinstance(asked, dict) else ""
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise HttpError(400, 'The body must be {"topics": [...]}, each a text')
    if len(topics) > TOPICS_MAX or not isinstance(listener, str):
        raise HttpError(400, f"at most {TOPICS_MAX} topics at once, and listener must be a text")
    snapshot = context.view.snapshot
    if not request.caller.may(Role.VIEWER, context.cluster):
        await context.turns.gather(_check_visible(request, context, topic) for topic in topics)
    return {
        "table_version": snapshot.position.table_version,
        "age_ms": context.age_ms,
        "writer_silent_ms": context.view.writer_silent_ms(wall_ms()),
        "answers": (_lookup_answer(snapshot, topic, listener) for topic in topics),
    }


def _check_visible(request: Request, context: AdminContext, topic: str) -> LeftOut:
    """Raises HttpError 403 for a topic of a tenant that the caller may not see."""
    try:
        tenant = tenant_of(locate_topic(topic)[0])
    except InvalidNameError:
        return LEFT_OUT  # of no tenant: answered with invalid_name
    require_role(request.caller, Role.VIEWER, context.cluster, tenant)
    return LEFT_OUT


def _lookup_answer(snapshot: LookupSnapshot, topic: str, listener: str) -> dict[str, Any]:
    try:
        if not topic[topic.rfind("/") + 1 :].strip():
            locate_topic(topic)  # for a blank local name `answer` would find a bundle
        answer = snapshot.answer(topic, listener)
    except InvalidNameError as error:
        return {"topic": topic, "outcome": "invalid_name", "reason": str(error)}
    shown: dict[str, Any] = {"topic": topic, "outcome": answer.outcome.value}
    if answer.route is not None:
        shown |= {"bundle": answer.route.bundle, "version_id": answer.route.version_id}
        shown["broker"] = answer.route.broker
    address = answer.address
    if address is not None and answer.outcome is LookupOutcome.FOUND:
        shown |= lookup_data(address, address.listeners[listener] if listener else None)
    return shown


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


def _namespace(request: Request, context: AdminContext) -> str:
    """Return the requested namespace, "" = all.

    All namespaces need a viewer of the whole cluster.
    """
    name = request.first("namespace")
    require_role(request.caller, Role.VIEWER, context.cluster, tenant_of(name))
    try:
        return check_namespace(name) if name else ""
    except InvalidNameError as error:
        raise HttpError(400, str(error)) from None


def _moment(request: Request, name: str, default: str | None = None) -> str:
    text = request.first(name, default or "")
    if text == "now":
        return ""
    if _TIME_OR_VERSION.fullmatch(text) or (not text and default is not None):
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


_NAMESPACE = TextQuery("namespace", "Only this one; without it, all of the cluster.")
_LIMIT = WholeQuery("limit", f"Bundles a page, at most {PAGE_MAX}.", 1, 1 << 53, PAGE_MAX)
_RECORD = {"bundle": str, "version_id": int, "state": State, "source": str, "destination": str}
_PAST = [{**_RECORD, "cause": str, "at_ms": int}, None]
_WHEN = {"table_version": int, "at_ms": int, "known_from_ms": int}
_URLS = ("brokerUrl?", "brokerUrlTls?", "httpUrl?", "httpUrlTls?", "nativeUrl?")
LOOKUP_DATA = {"brokerUrlSsl": str, **dict.fromkeys(_URLS, str)}
"""Pulsar's answer to a lookup."""


_ALIVE = WholeQuery("alive_ms", "How often to say `alive`.", 500, 60_000, 15_000)
END_OF_PART = b": end\n\n"
_CATCH_UP_S = 2.0
_RENDERED_MAX = 64
_PART_MAX = 500
_OF_ANOTHER_TABLE: Place = (1 << 60, 0)
"""A place after every table's end: the stream begins with `reset`."""

_NO_ID = (
    "Last-Event-ID must be the id of an event of this stream, which names the table and a place in "
    "it (TABLE-VERSION.NUMBER): read /v1/ownership and ask without it, to begin anew"
)
STREAM_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


async def get_watch(request: Request, context: AdminContext) -> Reply:
    """A stream from now on, or from where Last-Event-ID ended."""
    namespace = _namespace(request, context)
    if context.changes is None:
        raise HttpError(503, "This service does not follow changes")
    context.view  # noqa: B018 (503 before the first load)
    given = request.headers.get("last-event-id") or request.first("last_event_id")
    table, _, text = (given or "").rpartition("-")
    place = parse_place(text) if given else None
    if given and (place is None or not table):
        raise HttpError(400, _NO_ID)
    if place is not None and table != context.changes.table:
        place = _OF_ANOTHER_TABLE
    watcher = Watcher(context, context.changes, namespace, _ALIVE.of(request) / 1_000)
    return Reply(stream=watcher.parts(place), headers=STREAM_HEADERS)


class Watcher:
    """Stream of changes for one client. namespace: "" = all."""

    def __init__(
        self, context: AdminContext, feed: ChangeFeed, namespace: str, alive_s: float
    ) -> None:
        self._context = context
        self._feed = feed
        self._namespace = namespace
        self._alive_s = alive_s

    async def parts(self, place: Place | None) -> AsyncGenerator[bytes, None]:
        """The stream, in pieces of at most 500 events."""
        self._feed.join()
        if place is not None:
            await self._catch_up(place)
        if place is None or place > self._feed.end:
            kind = "start" if place is None else "reset"
            place = self._feed.end
            yield self._event(kind, place, self._ages(place))
        alive_at_s, history = monotonic(), self._feed.history
        while True:
            await self._context.turns.next()
            # taken before the changes: a reload meanwhile must not get events of the old table
            end, part, rendered = self._feed.end, b"", self._feed.rendered
            found = await self._next(place) if self._feed.history == history else None
            if found is None or self._feed.history != history:
                place, history = self._feed.end, self._feed.history
                part = self._event("reset", place, self._ages(place))
            elif found[0]:
                part = self._render(rendered, place, *found)
                place = found[1]
            else:
                place = max(place, end)  # a commit may have brought nothing
                await self._feed.added.wait(max(0.0, alive_at_s + self._alive_s - monotonic()))
                if monotonic() - alive_at_s >= self._alive_s:
                    alive_at_s = monotonic()
                    await self._context.turns.next()  # clients connected together are due together
                    part = self._event("alive", place, self._ages(place))
            if part:
                yield part

    async def _catch_up(self, place: Place) -> None:
        """Wait for a place of another replica, which may be ahead of this one."""
        until_s = monotonic() + _CATCH_UP_S
        while place > self._feed.end and (left_s := until_s - monotonic()) > 0:
            await self._feed.added.wait(left_s)

    def _render(
        self, rendered: Rendered, before: Place, changes: Sequence[RecordChange], after: Place
    ) -> bytes:
        """Return the changes as events, rendered once for all clients at the same place."""
        key = (before, after, self._namespace)
        part = rendered.get(key)
        if part is None:
            meant = [one for one in changes if self._namespace in ("", one.route.namespace)]
            part = b"".join(
                self._event(
                    "change", one.place, {**record(one.route), "table_version": one.place[0]}
                )
                for one in meant
            )
            if part and self._feed.after(after, 1) == []:
                part += END_OF_PART
            rendered[key] = part
            if len(rendered) > _RENDERED_MAX:
                rendered.pop(next(iter(rendered)))
        return part

    async def _next(self, place: Place) -> tuple[Sequence[RecordChange], Place] | None:
        """Return the changes after a place: from memory or the log; None if it is gone."""
        found = self._feed.after(place, _PART_MAX)
        if found is not None:
            return found, (found[-1].place if found else place)
        return await asyncio.to_thread(self._feed.read_log, place, _PART_MAX)

    def _event(self, kind: str, place: Place, value: Any) -> bytes:
        identity = f"{self._feed.table}-{format_place(place)}"
        return f"id: {identity}\nevent: {kind}\ndata: ".encode() + encode(value) + b"\n\n"

    def _ages(self, place: Place) -> dict[str, Any]:
        view, views = self._context.view, self._context.views
        return {
            "table_version": place[0],
            "age_ms": self._context.age_ms,
            "writer_silent_ms": view.writer_silent_ms(wall_ms()),
            "namespaces_version": views.version("namespaces"),
            "brokers_version": views.version("brokers"),
        }


OWNERSHIP_ROUTES = (
    reading(
        "/v1/ownership",
        get_ownership,
        "Who owns what, now or then.",
        {
            "table_version": int,
            "at_ms?": int,
            "known_from_ms?": int,
            "bundles": [{**_RECORD, "broker?": str, "cause?": str, "at_ms?": int}],
            "next": str,
        },
        queries=(
            _NAMESPACE,
            TextQuery("as_of", _MOMENT),
            _LIMIT,
            TextQuery("after", "The `next` of the page before."),
        ),
        checks_itself=True,
        example=Example("/v1/ownership?namespace=acme/free&limit=10"),
    ),
    reading(
        "/v1/ownership/diff",
        get_diff,
        "What changed from one moment to another.",
        {
            "from": _WHEN,
            "to": _WHEN,
            "changes": [{"bundle": str, "before": _PAST, "after": _PAST}],
        },
        queries=(
            _NAMESPACE,
            TextQuery("from", _MOMENT),
            TextQuery("to", f"{_MOMENT} Without it, now."),
        ),
        checks_itself=True,
        example=Example("/v1/ownership/diff?from=0&namespace=acme/free"),
    ),
    Route(
        method="POST",
        path="/v1/lookups",
        handler=post_lookups,
        checks_itself=True,
        is_recorded=False,
        summary="Who serves many topics, from one snapshot.",
        answer={
            **dict.fromkeys(("table_version", "age_ms", "writer_silent_ms"), int),
            "answers": [
                {
                    "topic": str,
                    "outcome": str,
                    "reason?": str,
                    "brokerUrlSsl?": str,
                    "bundle?": str,
                    "version_id?": int,
                    "broker?": str,
                    **dict.fromkeys(_URLS, str),
                }
            ],
        },
        body={
            "type": "object",
            "required": ["topics"],
            "properties": {"topics": {**TEXTS, "maxItems": TOPICS_MAX}, "listener": TEXT},
        },
        example=Example(
            "/v1/lookups",
            body={"topics": ["persistent://acme/free/t", "persistent://acme/none/t"]},
        ),
    ),
    reading(
        "/v1/watch",
        get_watch,
        "Each change of ownership, as server-sent events: start, change, alive, reset.",
        str,
        queries=(
            _NAMESPACE,
            _ALIVE,
            TextQuery("last_event_id", "As the header Last-Event-ID: where to go on."),
        ),
        checks_itself=True,
        media_type="text/event-stream",
        example=Example("/v1/watch?last_event_id=never", 400),
    ),
)
