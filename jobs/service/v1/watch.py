"""Server-sent events: changes of ownership (/v1/watch).

After `reset` a watcher reads /v1/ownership again. At least every 15 s an `alive` says how old the
view is, up to where all changes have been told, and the versions of the lists of namespaces and
brokers. A comment (": end") follows when there are no more changes for now.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from time import monotonic
from typing import Any

from jobs.adapters.processes.clocks import wall_ms
from jobs.service.access import Role
from jobs.service.changes import ChangeFeed, Place, RecordChange, format_place, parse_place
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError, Reply, Request, encode
from jobs.service.routes import Example, TextQuery, WholeQuery, reading
from jobs.service.v1.ownership import record
from jobs.service.v1.reading import require, tenant_of

ALIVE_S = 15.0
_ALIVE = WholeQuery("alive_ms", "How often to say `alive`.", 500, 60_000, 15_000)
END_OF_PART = b": end\n\n"
_CATCH_UP_S = 2.0
_RENDERED_MAX = 64
_PART_MAX = 500
_OF_ANOTHER_TABLE: Place = (1 << 60, 0)
"""A place that no table comes to."""

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
    namespace = request.first("namespace")
    require(request, context, Role.VIEWER, tenant_of(namespace))
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
    """One client's way through the changes. namespace: "" = all."""

    def __init__(
        self, context: AdminContext, feed: ChangeFeed, namespace: str, alive_s: float = ALIVE_S
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
        said_s, history = monotonic(), self._feed.history
        while True:
            await self._context.turns.next()
            end, part = self._feed.end, b""
            found = await self._next(place) if self._feed.history == history else None
            if found is None:
                place, history = self._feed.end, self._feed.history
                part = self._event("reset", place, self._ages(place))
            elif found[0]:
                part = self._render(place, *found)
                place = found[1]
            else:
                place = max(place, end)  # a commit may have brought nothing
                await self._feed.wait(max(0.0, said_s + self._alive_s - monotonic()))
                if monotonic() - said_s >= self._alive_s:
                    said_s = monotonic()
                    await self._context.turns.next()  # all who came together are due together
                    part = self._event("alive", place, self._ages(place))
            if part:
                yield part

    async def _catch_up(self, place: Place) -> None:
        """Another replica may have been a moment ahead of this one."""
        until_s = monotonic() + _CATCH_UP_S
        while place > self._feed.end and (left_s := until_s - monotonic()) > 0:
            await self._feed.wait(left_s)

    def _render(self, before: Place, changes: Sequence[RecordChange], after: Place) -> bytes:
        """The changes as events; made once for all who are at the same place."""
        key = (before, after, self._namespace)
        part = self._feed.rendered.get(key)
        if part is None:
            part = b"".join(map(self._change, filter(self._is_meant, changes)))
            if part and self._feed.after(after, 1) == []:
                part += END_OF_PART
            self._feed.rendered[key] = part
            if len(self._feed.rendered) > _RENDERED_MAX:
                self._feed.rendered.pop(next(iter(self._feed.rendered)))
        return part

    async def _next(self, place: Place) -> tuple[Sequence[RecordChange], Place] | None:
        """Return the changes after a place: from memory or the log; None if it is gone."""
        found = self._feed.after(place, _PART_MAX)
        if found is not None:
            return found, (found[-1].place if found else place)
        return await asyncio.to_thread(self._feed.read_log, place, _PART_MAX)

    def _change(self, change: RecordChange) -> bytes:
        version = {"table_version": change.place[0]}
        return self._event("change", change.place, {**record(change.route), **version})

    def _event(self, kind: str, place: Place, value: Any) -> bytes:
        identity = f"{self._feed.table}-{format_place(place)}"
        return f"id: {identity}\nevent: {kind}\ndata: ".encode() + encode(value) + b"\n\n"

    def _is_meant(self, change: RecordChange) -> bool:
        return self._namespace in ("", change.route.namespace)

    def _ages(self, place: Place) -> dict[str, Any]:
        view, views = self._context.view, self._context.views
        return {
            "table_version": place[0],
            "age_ms": self._context.age_ms,
            "writer_silent_ms": view.writer_silent_ms(wall_ms()),
            "namespaces_version": views.version("namespaces"),
            "brokers_version": views.version("brokers"),
        }


_STREAM = "text/event-stream"

WATCH_ROUTES = (
    reading(
        "/v1/watch",
        get_watch,
        "Each change of ownership, as server-sent events: start, change, alive, reset.",
        str,
        queries=(
            TextQuery("namespace", "Only this one; without it, all of the cluster."),
            _ALIVE,
            TextQuery("last_event_id", "As the header Last-Event-ID: where to go on."),
        ),
        checks_itself=True,
        media_type=_STREAM,
        example=Example("/v1/watch?last_event_id=never", 400),
    ),
)
