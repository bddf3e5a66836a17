"""What shadows would have done, over HTTP: what the console's view Shadow shows.

Decides what may be asked for; `jobs.operating.shadowing` bounds the answer. Source: ours.
"""

from functools import partial

from jobs.operating.shadowing import MOMENTS_MAX, STEPS_MAX, read_shadows
from jobs.service.about import About, Example
from jobs.service.access import Role
from jobs.service.context import AdminContext
from jobs.service.exchange import Reply, Request
from jobs.service.routes import Route
from jobs.service.v1.reading import in_background
from jobs.service.v1.window import HOUR_MS, window_of, window_queries

_WINDOW_MAX_MS = 90 * 24 * HOUR_MS


async def get_shadows(request: Request, context: AdminContext) -> Reply:
    """Each shadow within a window."""
    until_ms, window_ms = window_of(request, 1, _WINDOW_MAX_MS)
    from_ms = max(0, until_ms - window_ms)
    return await in_background(context, partial(read_shadows, from_ms=from_ms, until_ms=until_ms))


SHADOW_ROUTES = (
    Route(
        method="GET",
        path="/v1/shadow",
        handler=get_shadows,
        role=Role.VIEWER,
        about=About(
            summary="What the strategies of cluster.shadow would have done: sums, imbalance at "
            f"{MOMENTS_MAX} moments at most, the last {STEPS_MAX} moves of each.",
            queries=window_queries(1, _WINDOW_MAX_MS),
            example=Example(path="/v1/shadow?window_ms=600000", status=200, answer={"shadows": []}),
        ),
    ),
)
