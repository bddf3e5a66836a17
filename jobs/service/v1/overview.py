"""The cluster at one glance, as one answer: what the console and `ballast top` show.

Decides nothing but that it is made at most every 1.2 s for those who just ask, and once for all who
were told of the same batch. Source: ours.
"""

from functools import partial
from typing import Any

from jobs.adapters.delta.table_reader import TableReader
from jobs.operating.job_settings import started_with
from jobs.operating.overview import read_overview
from jobs.service.about import WHOLE, About, Example, QueryParameter
from jobs.service.access import Role
from jobs.service.context import AdminContext
from jobs.service.exchange import Reply, Request
from jobs.service.routes import Route
from jobs.service.v1.reading import Kept
from jobs.service.v1.showing import about_service
from lbcore.config.tree import Config
from lbcore.explain.job_state import JobSurroundings

_kept = Kept(1.2)


async def get_overview(request: Request, context: AdminContext) -> Reply:
    """Status, the last hour's balance, the last decisions in words, how old it is, who asks."""
    since_ms = request.whole("since_ms", 0)
    read = partial(partial, _read, context.config, context.around)  # of a moment
    more = {"service": about_service(context), "caller": about_caller(request, context)}
    return await _kept.reply(context, read, more, since_ms)


def about_caller(request: Request, context: AdminContext) -> dict[str, str]:
    """Who asks, and the highest role on the whole cluster: what a page may offer."""
    caller = request.caller
    roles = [role.name.lower() for role in Role if caller.may(role, context.cluster)]
    return {"name": caller.name, "role": roles[-1] if roles else ""}


def _read(
    config: Config, around: JobSurroundings, now_ms: int, reader: TableReader
) -> dict[str, Any]:
    return read_overview(reader, started_with(reader, config), now_ms, around).to_json()


OVERVIEW_ROUTES = (
    Route(
        method="GET",
        path="/v1/overview",
        handler=get_overview,
        role=Role.VIEWER,
        about=About(
            summary="The cluster at one glance: status, balance of the last hour, last decisions.",
            queries=(
                QueryParameter(
                    name="since_ms",
                    doc="The answer is to be made since then, `at_ms` of an event; ms since 1970.",
                    schema=WHOLE,
                ),
            ),
            example=Example(
                path="/v1/overview",
                status=200,
                answer={
                    **dict.fromkeys(("status", "service", "caller")),
                    "balance": [],
                    "decisions": [],
                },
            ),
        ),
    ),
)
