"""How the cluster is, in one answer: `GET /v1/status`.

Decides nothing. Source: ours.
"""

from collections import Counter
from time import time_ns

from jobs.adapters.delta_follower import boot_ms
from jobs.admin.access import Role
from jobs.admin.context import AdminContext
from jobs.admin.exchange import Reply, Request, json_reply
from jobs.admin.routes import Route
from lbcore.model.tables import BROKERS


async def get_status(request: Request, context: AdminContext) -> Reply:
    """Bundles by state, brokers by state, and how old all that is."""
    del request
    view = context.view
    snapshot = view.snapshot
    existing = [found for found in snapshot.namespaces.values() if found.hash_function]
    states = Counter(route.state.value for found in existing for route in found.live)
    brokers = Counter(str(row["state"]) for row in context.views.rows(BROKERS.name))
    return json_reply(
        {
            "cluster": context.cluster,
            "table_version": snapshot.position.table_version,
            "age_ms": view.age_ms(boot_ms()),
            "writer_silent_ms": view.writer_silent_ms(time_ns() // 1_000_000),
            "namespaces": len(existing),
            "bundles": dict(sorted(states.items())),
            "brokers": dict(sorted(brokers.items())),
            "can_command": context.commands is not None,
        }
    )


STATUS_ROUTES = (Route(method="GET", path="/v1/status", handler=get_status, role=Role.VIEWER),)
