"""What has happened, over HTTP: what the console's view Timeline shows.

Decides what may be asked for; `jobs.operating.timeline` bounds the answer. Source: ours.
"""

from functools import partial

from jobs.operating.timeline import EVENTS_MAX, KINDS, TimelineQuestion, read_timeline
from jobs.service.about import About, Example, QueryParameter
from jobs.service.access import Role
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError, Reply, Request
from jobs.service.routes import Route
from jobs.service.v1.reading import in_background
from jobs.service.v1.window import HOUR_MS, window_of, window_queries

_WINDOW_MAX_MS = 90 * 24 * HOUR_MS
_ABOUT_MAX_CHARS = 500


async def get_timeline(request: Request, context: AdminContext) -> Reply:
    """The newest events within a window."""
    asked = request.first("kinds")
    kinds = tuple(asked.split(",")) if asked else tuple(KINDS)
    if not set(kinds) <= set(KINDS):
        raise HttpError(400, f"kinds must be of {', '.join(KINDS)}, separated by commas")
    until_ms, window_ms = window_of(request, 1, _WINDOW_MAX_MS)
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
                *window_queries(1, _WINDOW_MAX_MS),
            ),
            example=Example(
                path="/v1/timeline?kinds=move", status=200, answer={"events": [], "left_out": 0}
            ),
        ),
    ),
)
