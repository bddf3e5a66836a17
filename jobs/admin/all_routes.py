"""All routes of the admin service, in one table.

Decides nothing. Each subject's module declares its own; this is what `serve_lookup` serves and what
the OpenAPI document is drawn from. Source: ours.
"""

from jobs.admin.pulsar.routes import PULSAR_ROUTES
from jobs.admin.routes import Route
from jobs.admin.status import STATUS_ROUTES

ROUTES: tuple[Route, ...] = (*STATUS_ROUTES, *PULSAR_ROUTES)
