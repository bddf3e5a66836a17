"""Asks for an owner of a bundle that is looked up and has none: once, however many wait for it.

Decides when to ask: under ownership.assign = "on_demand", unless it was asked a moment ago. All
workers and replicas give such a command the same id, so that the balancer carries out one of them.
The waiters see the answer in the tables, like everybody. Source: ours; Pulsar's brokers assign at
the first lookup too (ExtensibleLoadManagerImpl.assign).
"""

import asyncio
import logging
from collections import OrderedDict
from time import monotonic, time
from uuid import NAMESPACE_OID, uuid5

from jobs.service.access import Caller
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError
from lbcore.config.ownership import ON_DEMAND
from lbcore.ownership.records import State
from lbcore.route.bundles import BundleRoute
from lbcore.wire.kinds.bundle_commands import AssignBundle

logger = logging.getLogger(__name__)

_AGAIN_S = 5.0
_TIMEOUT_MS = 5_000
_ASKED_MAX = 10_000
_LOOKUP = Caller(name="lookup", address="")


class Assignments:
    """Turns lookups of unowned bundles into commands, one a record within five seconds."""

    def __init__(self, context: AdminContext) -> None:
        self.asked = 0
        self._context = context
        self._asked_s: OrderedDict[tuple[str, int], float] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, route: BundleRoute) -> None:
        """A lookup waits for this bundle; returns at once. Called in the event loop."""
        if route.state is not State.FREE or not self._is_on_demand():
            return
        now_s, key = monotonic(), (route.bundle, route.version_id)
        if now_s - self._asked_s.get(key, -_AGAIN_S) < _AGAIN_S:
            return
        self._asked_s[key] = now_s
        self._asked_s.move_to_end(key)
        if len(self._asked_s) > _ASKED_MAX:
            self._asked_s.popitem(last=False)
        self.asked += 1
        task = asyncio.ensure_future(self._send(route))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _is_on_demand(self) -> bool:
        context = self._context
        assign = context.views.settings.get("ownership.assign", context.config.ownership.assign)
        return context.commands is not None and assign == ON_DEMAND

    async def _send(self, route: BundleRoute) -> None:
        try:
            outcome = await self._context.command_as(
                AssignBundle(bundle=route.bundle),
                _LOOKUP,
                timeout_ms=_TIMEOUT_MS,
                command_id=_command_id(self._context.cluster, route),
            )
            said = outcome.reason or outcome.status
        except HttpError as error:
            said = error.reason
        logger.info("assignment_asked", extra={"fields": {"bundle": route.bundle, "outcome": said}})


def _command_id(cluster: str, route: BundleRoute) -> str:
    """The same for all who ask for an owner of this record within the same five seconds."""
    window = int(time() // _AGAIN_S)
    name = f"{cluster}/{route.bundle}/{route.version_id}/{window}"
    return f"lookup-{uuid5(NAMESPACE_OID, name)}"
