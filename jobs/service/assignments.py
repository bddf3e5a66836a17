"""Asks for an owner of a bundle that is looked up and has none: once, however many wait for it.

Decides when to ask: under ownership.assign = "on_demand", unless it was asked a moment ago
(`lbcore.route.owner_requests`). The waiters see the answer in the tables, like everybody. Source:
ours.
"""

import asyncio
import logging
from time import monotonic, time

from jobs.service.access import Caller
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError
from lbcore.config.ownership import ON_DEMAND
from lbcore.route.bundles import BundleRoute
from lbcore.route.owner_requests import ASKED_BY, TIMEOUT_MS, OwnerRequests, request_id
from lbcore.wire.kinds.bundle_commands import AssignBundle

logger = logging.getLogger(__name__)

_LOOKUP = Caller(name=ASKED_BY, address="")


class Assignments:
    """Turns lookups of unowned bundles into commands, one a record within five seconds."""

    def __init__(self, context: AdminContext) -> None:
        self.asked = 0
        self._context = context
        self._requests = OwnerRequests()
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, route: BundleRoute) -> None:
        """A lookup waits for this bundle; returns at once. Called in the event loop."""
        if not self._is_on_demand() or not self._requests.is_due(route, monotonic()):
            return
        self.asked += 1
        task = asyncio.ensure_future(self._send(route))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _is_on_demand(self) -> bool:
        context = self._context
        assign = context.views.settings.get("ownership.assign", context.started.ownership.assign)
        return context.commands is not None and assign == ON_DEMAND

    async def _send(self, route: BundleRoute) -> None:
        try:
            outcome = await self._context.command_as(
                AssignBundle(bundle=route.bundle),
                _LOOKUP,
                timeout_ms=TIMEOUT_MS,
                command_id=request_id(self._context.cluster, route, time()),
            )
            said = outcome.reason or outcome.status
        except HttpError as error:
            said = error.reason
        logger.info("assignment_asked", extra={"fields": {"bundle": route.bundle, "outcome": said}})
