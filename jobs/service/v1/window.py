"""A window of time as requests ask for it: how far back, and until when.

Decides nothing but what stands where a request says nothing. Source: ours.
"""

from jobs.adapters.processes.clocks import wall_ms
from jobs.service.about import QueryParameter, whole
from jobs.service.exchange import Request

HOUR_MS = 3_600_000
_UNTIL_MAX_MS = 10**14


def window_of(request: Request, min_ms: int, max_ms: int) -> tuple[int, int]:
    """Its end, ms since 1970, and its length, ms; raises HttpError 400."""
    until_ms = request.whole("until", 0, maximum=_UNTIL_MAX_MS) or wall_ms()
    return until_ms, request.whole("window_ms", HOUR_MS, minimum=min_ms, maximum=max_ms)


def window_queries(min_ms: int, max_ms: int) -> tuple[QueryParameter, ...]:
    """What `window_of` reads."""
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
