"""Events: that the tables have changed, as server-sent events, for pages that show the cluster.

Decides what a page is told: `batch` soon after any of the tables that it shows has a new version,
as one batch commits to several, once a second at most; else `alive`, so that ages are drawn anew.
What has changed the page asks for itself. Only so many may listen; whoever is refused asks from
time to time. Source: the HTML standard's server-sent events; the events are ours. Each change
itself is `watch`'s to tell.
"""

import asyncio
from collections.abc import AsyncIterator, Hashable
from time import monotonic

from jobs.adapters.processes.clocks import wall_ms
from jobs.service.about import WHOLE, About, Example, QueryParameter
from jobs.service.access import Role
from jobs.service.changes import ChangeFeed
from jobs.service.context import AdminContext
from jobs.service.exchange import RETRY, HttpError, Request, Stream, encode
from jobs.service.routes import Route
from jobs.service.v1.watch import ALIVE_MAX_MS, ALIVE_MIN_MS, STREAM_HEADERS
from jobs.service.views import SHOWN_TABLES, SMALL_TABLES
from lbcore.model.tables import LOAD_HISTORY

LISTENERS_MAX = 100
"""Pages that may listen to one process: each costs four looks a second."""

_ALIVE_MS = 10_000
_APART_S, _LOOK_S = 1.0, 0.25
_BATCH_S = 0.3
"""How long a batch commits, after its first commit is seen: looked at before, half of it shows."""
_LOOKED_AT = tuple(table.name for table in (*SMALL_TABLES, LOAD_HISTORY, *SHOWN_TABLES))


async def get_events(request: Request, context: AdminContext) -> Stream:
    """A stream that begins with `batch`."""
    alive_ms = request.whole("alive_ms", _ALIVE_MS, minimum=ALIVE_MIN_MS, maximum=ALIVE_MAX_MS)
    if context.changes is None:
        raise HttpError(503, "This service does not follow changes")
    context.view  # noqa: B018 (503 before the first load)
    if len(context.views.listening) >= LISTENERS_MAX:
        reason = f"{LISTENERS_MAX} pages listen to this process already: ask from time to time"
        raise HttpError(503, reason, RETRY)
    return Stream(parts=_parts(context, context.changes, alive_ms / 1_000), headers=STREAM_HEADERS)


async def _parts(context: AdminContext, feed: ChangeFeed, alive_s: float) -> AsyncIterator[bytes]:
    me = object()
    context.views.listening.add(me)
    try:
        feed.join()
        known: Hashable = None
        said_s = 0.0
        while True:
            await context.turns.next()
            now = _versions(context, feed)
            if now != known or monotonic() - said_s >= alive_s:
                if known not in (None, now):
                    await asyncio.sleep(_BATCH_S)
                    now = _versions(context, feed)
                yield _event("alive" if now == known else "batch", context)
                known, said_s = now, monotonic()
                await asyncio.sleep(_APART_S - _BATCH_S)  # what comes together is told once
            else:
                await feed.wait(min(_LOOK_S, alive_s))
    finally:
        context.views.listening.discard(me)


def _versions(context: AdminContext, feed: ChangeFeed) -> Hashable:
    """Another value whenever a table has changed."""
    return (feed.history, feed.end, *map(context.views.version, _LOOKED_AT))


def _event(kind: str, context: AdminContext) -> bytes:
    """at_ms: an answer that was made since then has it all."""
    told = {
        "at_ms": wall_ms(),
        "table_version": context.view.snapshot.position.table_version,
        "age_ms": context.age_ms,
        "writer_silent_ms": context.view.writer_silent_ms(wall_ms()),
    }
    return f"event: {kind}\ndata: ".encode() + encode(told) + b"\n\n"


EVENT_ROUTES = (
    Route(
        method="GET",
        path="/v1/events",
        handler=get_events,
        role=Role.VIEWER,
        about=About(
            summary="That the tables have changed, as server-sent events: batch, alive.",
            queries=(
                QueryParameter(
                    name="alive_ms",
                    doc=f"How often to say `alive`, from {ALIVE_MIN_MS} to {ALIVE_MAX_MS}.",
                    schema=WHOLE,
                ),
            ),
            media_type="text/event-stream",
            example=Example(path="/v1/events?alive_ms=1", status=400, answer={"reason": None}),
        ),
    ),
)
