"""The league of the cluster's own load, over HTTP: what the console's view League shows.

Decides nothing; `ballast backtest --keep` makes what is shown. Source: ours.
"""

from jobs.operating.league_reading import read_league
from jobs.service.about import About, Example
from jobs.service.access import Role
from jobs.service.context import AdminContext
from jobs.service.exchange import Reply, Request
from jobs.service.routes import Route
from jobs.service.v1.reading import in_background


async def get_league(request: Request, context: AdminContext) -> Reply:
    """The newest backtest that was kept."""
    del request
    return await in_background(context, read_league)


LEAGUE_ROUTES = (
    Route(
        method="GET",
        path="/v1/league",
        handler=get_league,
        role=Role.VIEWER,
        about=About(
            summary="What the newest `ballast backtest --keep` found on the cluster's recorded "
            "load: each strategy's figures, the best first, and what really happened (`recorded`).",
            example=Example(
                path="/v1/league", status=200, answer={"run": None, "runs": 0, "strategies": []}
            ),
        ),
    ),
)
