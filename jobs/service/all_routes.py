"""All routes of the admin service, in one table.

Decides nothing. Each subject's module declares its own; this is what `serve_lookup` serves and what
the OpenAPI document is drawn from. Source: ours.
"""

from jobs.service.pulsar.routes import PULSAR_ROUTES
from jobs.service.routes import Route
from jobs.service.status_page import PAGE_ROUTES
from jobs.service.v1.commands import COMMAND_ROUTES
from jobs.service.v1.events import EVENT_ROUTES
from jobs.service.v1.explaining import EXPLAINING_ROUTES
from jobs.service.v1.foreseeing import FORESEEING_ROUTES
from jobs.service.v1.heating import HEATING_ROUTES
from jobs.service.v1.league import LEAGUE_ROUTES
from jobs.service.v1.openapi import openapi_route
from jobs.service.v1.overview import OVERVIEW_ROUTES
from jobs.service.v1.ownership import OWNERSHIP_ROUTES
from jobs.service.v1.planning import PLANNING_ROUTES
from jobs.service.v1.shadows import SHADOW_ROUTES
from jobs.service.v1.showing import SHOWING_ROUTES
from jobs.service.v1.timeline import TIMELINE_ROUTES
from jobs.service.v1.watch import WATCH_ROUTES

_OWN = (
    *SHOWING_ROUTES,
    *OVERVIEW_ROUTES,
    *HEATING_ROUTES,
    *EXPLAINING_ROUTES,
    *FORESEEING_ROUTES,
    *PLANNING_ROUTES,
    *TIMELINE_ROUTES,
    *SHADOW_ROUTES,
    *LEAGUE_ROUTES,
    *OWNERSHIP_ROUTES,
    *WATCH_ROUTES,
    *EVENT_ROUTES,
    *COMMAND_ROUTES,
)

ROUTES: tuple[Route, ...] = (*_OWN, openapi_route(_OWN), *PAGE_ROUTES, *PULSAR_ROUTES)
