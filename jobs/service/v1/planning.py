"""Plans that wait for a person, over HTTP, and the way back of what was done: for reading.

Decides nothing: the tables have the plans, `jobs.operating.proposals` finds the way back. They are
proposed, approved and rejected by commands (`commands`), which take an operator. Source: ours.
"""

from functools import partial
from typing import Any

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.processes.clocks import wall_ms
from jobs.console import CommandError
from jobs.operating.proposals import proposals_of, way_back
from jobs.service.about import About, Example, QueryParameter, whole
from jobs.service.access import Role
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError, Reply, Request
from jobs.service.reader_process import ReadRefusedError
from jobs.service.routes import Route
from jobs.service.v1.reading import in_background
from lbcore.balancer.state.proposals import PlanProposal

STEPS_MAX = 1_000
"""Of one plan that is shown; the others are counted."""

_SINCE_MAX_MS = 90 * 86_400_000


async def get_plans(request: Request, context: AdminContext) -> Reply:
    """Each without its steps, the newest first."""
    del request
    return await in_background(context, _read_plans)


async def get_plan(request: Request, context: AdminContext) -> Reply:
    """One with its steps."""
    return await in_background(context, partial(_read_plan, request.params["plan"]))


async def get_way_back(request: Request, context: AdminContext) -> Reply:
    """What undoes a plan, what balancing has moved for so long, or a broker's last drain."""
    plan, drain = request.first("plan"), request.first("drain")
    since_ms = request.whole("since_ms", 0, maximum=_SINCE_MAX_MS)
    if sum(map(bool, (plan, since_ms, drain))) != 1:
        raise HttpError(400, "Either plan, since_ms or drain must say what shall go back")
    begin_ms = wall_ms() - since_ms if since_ms else 0
    return await in_background(context, partial(_read_way_back, plan, begin_ms, drain))


def _read_plans(reader: TableReader) -> dict[str, Any]:
    found = proposals_of(reader)
    return {"plans": [_told(name, found[name]) for name in reversed(found)]}


def _told(name: str, one: PlanProposal) -> dict[str, Any]:
    told = {**one.to_json(), "plan": name, "step_count": len(one.steps)}
    del told["steps"]
    return {**told, "done": one.done, "skipped": one.skipped}


def _read_plan(name: str, reader: TableReader) -> dict[str, Any]:
    one = proposals_of(reader).get(name)
    if one is None:
        raise ReadRefusedError(404, f"There is no plan {name}, or none of the last day")
    return {**_told(name, one), "steps": one.to_json()["steps"][:STEPS_MAX]}


def _read_way_back(plan: str, since_ms: int, drain: str, reader: TableReader) -> dict[str, Any]:
    try:
        moves, left = way_back(reader, plan=plan, since_ms=since_ms, drain=drain)
    except CommandError as error:
        raise ReadRefusedError(409, f"{error.what}: {error.why}") from None
    return {"moves": moves, "left": left}


def _route(path: str, handler: Any, about: About) -> Route:
    return Route(method="GET", path=path, handler=handler, role=Role.VIEWER, about=about)


PLANNING_ROUTES = (
    _route(
        "/v1/plans",
        get_plans,
        About(
            summary="The plans that wait, and those of the last day, the newest first.",
            example=Example(path="/v1/plans", status=200, answer={"plans": []}),
        ),
    ),
    _route(
        "/v1/plans/{plan}",
        get_plan,
        About(
            summary=f"One with at most {STEPS_MAX} steps, and load before and after.",
            answers={200: "The plan.", 404: "No plan of that name, or none of the last day."},
            example=Example(path="/v1/plans/unknown", status=404, answer={"reason": None}),
        ),
    ),
    _route(
        "/v1/way-back",
        get_way_back,
        About(
            summary="The moves that undo a plan, what balancing did, or a drain; for propose_plan.",
            queries=(
                QueryParameter(name="plan", doc="The plan whose moves go back."),
                QueryParameter(
                    name="since_ms",
                    doc="Instead: all that balancing has moved for so long.",
                    schema=whole(0, _SINCE_MAX_MS),
                ),
                QueryParameter(
                    name="drain", doc="Instead: what the last drain of this broker took away."
                ),
            ),
            answers={200: "Bundle to broker, and what stays.", 409: "Nothing can go back."},
            example=Example(path="/v1/way-back?plan=unknown", status=409, answer={"reason": None}),
        ),
    ),
)
