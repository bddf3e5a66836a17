"""Watching: each change of ownership as a server-sent event, for as long as the client listens.

Decides what a stream begins with, and when it must begin anew: after `reset` the client reads
/v1/ownership again. Every 15 s without a change an `alive` says how old the view is. Source: the
HTML standard's server-sent events; the events are ours.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from time import monotonic, time_ns
from typing import Any

from jobs.adapters.delta_follower import boot_ms
from jobs.admin.about import About, Example, Query
from jobs.admin.access import Role
from jobs.admin.changes import Change, ChangeFeed, Place, format_place, parse_place
from jobs.admin.context import AdminContext
from jobs.admin.exchange import HttpError, Request, Stream, encode
from jobs.admin.routes import Route
from jobs.admin.v1.ownership import record
from jobs.admin.v1.reading import require, tenant_of

ALIVE_S = 15.0
_PART_MAX = 500
_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


async def get_watch(request: Request, context: AdminContext) -> Stream:
    """A stream from now on, or from where Last-Event-ID ended."""
    namespace = request.first("namespace")
    require(request, context, Role.VIEWER, tenant_of(namespace))
    if context.changes is None:
        raise HttpError(503, "This service does not follow changes")
    context.view  # noqa: B018 (503 before the first load)
    given = request.headers.get("last-event-id") or request.first("last_event_id")
    place = parse_place(given) if given else None
    if given and place is None:
        raise HttpError(400, "Last-Event-ID must be the id of an event of this stream")
    watcher = Watcher(context, context.changes, namespace)
    return Stream(parts=watcher.parts(place), headers=_HEADERS)


class Watcher:
    """One client's way through the changes. namespace: "" = all."""

    def __init__(
        self, context: AdminContext, feed: ChangeFeed, namespace: str, alive_s: float = ALIVE_S
    ) -> None:
        self._context = context
        self._feed = feed
        self._namespace = namespace
        self._alive_s = alive_s

    async def parts(self, place: Place | None) -> AsyncIterator[bytes]:
        """The stream, in pieces of at most 500 events."""
        self._feed.join()
        if place is None or place > self._feed.end:
            kind = "start" if place is None else "reset"
            place = self._feed.end
            yield _event(kind, place, self._ages())
        said_s = monotonic()
        while True:
            found = await self._next(place)
            if found is None:
                place = self._feed.end
                part = _event("reset", place, self._ages())
            else:
                changes, place = found
                part = b"".join(map(_change_event, filter(self._is_meant, changes)))
                if not changes:
                    await self._feed.wait(max(0.0, said_s + self._alive_s - monotonic()))
            if not part and monotonic() - said_s >= self._alive_s:
                part = _event("alive", None, self._ages())
            if part:
                said_s = monotonic()
                yield part

    async def _next(self, place: Place) -> tuple[Sequence[Change], Place] | None:
        """What comes after a place: from memory, else from the log, None when that is gone."""
        found = self._feed.after(place, _PART_MAX)
        if found is not None:
            return found, (found[-1].place if found else place)
        return await asyncio.to_thread(self._feed.read_log, place, _PART_MAX)

    def _is_meant(self, change: Change) -> bool:
        return self._namespace in ("", change.route.namespace)

    def _ages(self) -> dict[str, Any]:
        view = self._context.view
        return {
            "table_version": view.snapshot.position.table_version,
            "age_ms": view.age_ms(boot_ms()),
            "writer_silent_ms": view.writer_silent_ms(time_ns() // 1_000_000),
        }


def _change_event(change: Change) -> bytes:
    version = {"table_version": change.place[0]}
    return _event("change", change.place, {**record(change.route), **version})


def _event(kind: str, place: Place | None, value: Any) -> bytes:
    identity = b"" if place is None else b"id: %s\n" % format_place(place).encode()
    return b"%sevent: %s\ndata: %s\n\n" % (identity, kind.encode(), encode(value))


WATCH_ROUTES = (
    Route(
        method="GET",
        path="/v1/watch",
        handler=get_watch,
        checks_itself=True,
        about=About(
            summary="Each change of ownership, as server-sent events: start, change, alive, reset.",
            queries=(
                Query(name="namespace", doc="Only this one; without it, all of the cluster."),
                Query(name="last_event_id", doc="As the header Last-Event-ID: where to go on."),
            ),
            media_type="text/event-stream",
            example=Example(
                path="/v1/watch?last_event_id=never", status=400, answer={"reason": None}
            ),
        ),
    ),
)
