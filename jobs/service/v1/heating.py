"""Load over time over HTTP: what the console's view Heat draws.

Decides what may be asked for; `jobs.operating.heat` bounds the answer, and a process of its own
reads it. Source: ours.
"""

from functools import partial

from jobs.operating.heat import (
    BROKERS_MAX,
    BUNDLES_MAX,
    MOMENTS_MAX,
    OF_BROKERS,
    OF_BUNDLES,
    HeatQuestion,
    read_heat,
)
from jobs.service.about import About, Example, QueryParameter
from jobs.service.access import Role
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError, Reply, Request
from jobs.service.routes import Route
from jobs.service.v1.reading import in_background
from jobs.service.v1.window import HOUR_MS, window_of, window_queries

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
