"""History over HTTP: load over time (view Heat) and events (view Timeline).

`jobs.operating.history` and `jobs.operating.history` bound the answers.
"""

from functools import partial

from jobs.adapters.processes.clocks import wall_ms
from jobs.operating.history import (
    BROKERS_MAX,
    BUNDLES_MAX,
    EVENTS_MAX,
    KINDS,
    MOMENTS_MAX,
    OF_BROKERS,
    OF_BUNDLES,
    HeatQuestion,
    TimelineQuestion,
    read_heat,
    read_timeline,
)
from jobs.service.access import Role
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError, Reply, Request
from jobs.service.routes import About, Example, QueryParameter, Route, whole
from jobs.service.v1.reading import in_background

HOUR_MS = 3_600_000
_UNTIL_MAX_MS = 10**14


def window_of(request: Request, min_ms: int, max_ms: int) -> tuple[int, int]:
    """Its end, ms since 1970, and its length, ms; raises HttpError 400."""
    until_ms = request.whole("until", 0, maximum=_UNTIL_MAX_MS) or wall_ms()
    return until_ms, request.whole("window_ms", HOUR_MS, minimum=min_ms, maximum=max_ms)


def window_queries(min_ms: int, max_ms: int) -> tuple[QueryParameter, ...]:
    """Return the query parameters that `window_of` reads."""
    return (
        QueryParameter(
            name="window_ms",
            doc="How far back, one hour unless the request says otherwise.",
            schema=whole(min_ms, max_ms),
        ),
        QueryParameter(
            name="until",
            doc="The end of it, ms since 1970; without it, now.",
            schema=whole(0, _UNTIL_MAX_MS),
        ),
    )


_WINDOW_MIN_MS, _WINDOW_MAX_MS = 60_000, 7 * 24 * HOUR_MS


async def get_heat(request: Request, context: AdminContext) -> Reply:
    """Brokers by moments; with `broker`, its bundles by moments."""
    broker = request.first("broker")
    known = OF_BUNDLES if broker else OF_BROKERS
    by = request.first("by") or ("msg_rate" if broker else "usage")
    if by not in known:
        raise HttpError(400, f"by must be one of {', '.join(known)}, got {by[:100]}")
    until_ms, window_ms = window_of(request, _WINDOW_MIN_MS, _WINDOW_MAX_MS)
    question = HeatQuestion(
        by=by,
        broker=broker,
        until_ms=until_ms,
        window_ms=window_ms,
    )
    return await in_background(context, partial(read_heat, question=question))


HEATING_ROUTES = (
    Route(
        method="GET",
        path="/v1/heat",
        handler=get_heat,
        role=Role.VIEWER,
        about=About(
            summary=f"Load over time: at most {BROKERS_MAX} brokers, or {BUNDLES_MAX} bundles of "
            f"one, by at most {MOMENTS_MAX} moments.",
            queries=(
                QueryParameter(name="by", doc=f"One of {', '.join({**OF_BROKERS, **OF_BUNDLES})}."),
                QueryParameter(name="broker", doc="Its bundles; without it, all brokers."),
                *window_queries(_WINDOW_MIN_MS, _WINDOW_MAX_MS),
            ),
            example=Example(
                path="/v1/heat?by=usage&window_ms=600000",
                status=200,
                answer={"by": "usage", "unit": "%", "broker": "", "left_out": 0},
            ),
        ),
    ),
)


_TIMELINE_MAX_MS = 90 * 24 * HOUR_MS
_ABOUT_MAX_CHARS = 500


async def get_timeline(request: Request, context: AdminContext) -> Reply:
    """The newest events within a window."""
    asked = request.first("kinds")
    kinds = tuple(asked.split(",")) if asked else tuple(KINDS)
    if not set(kinds) <= set(KINDS):
        raise HttpError(400, f"kinds must be of {', '.join(KINDS)}, separated by commas")
    until_ms, window_ms = window_of(request, 1, _TIMELINE_MAX_MS)
    question = TimelineQuestion(
        from_ms=max(0, until_ms - window_ms),
        until_ms=until_ms,
        kinds=kinds,
        about=request.first("about")[:_ABOUT_MAX_CHARS],
    )
    return await in_background(context, partial(read_timeline, question=question))


TIMELINE_ROUTES = (
    Route(
        method="GET",
        path="/v1/timeline",
        handler=get_timeline,
        role=Role.VIEWER,
        about=About(
            summary=f"What has happened, the newest first, at most {EVENTS_MAX} events.",
            queries=(
                QueryParameter(name="kinds", doc=f"Of {', '.join(KINDS)}, by commas; all without."),
                QueryParameter(name="about", doc="Only events that name it."),
                *window_queries(1, _TIMELINE_MAX_MS),
            ),
            example=Example(
                path="/v1/timeline?kinds=move", status=200, answer={"events": [], "left_out": 0}
            ),
        ),
    ),
)
