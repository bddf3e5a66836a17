"""How a handler of Pulsar's paths has something done: ask, wait, answer.

Decides what is answered when the balancer refuses, is still at it, or is not there: Pulsar's
refusal, 503 with the reason, never a success that has not happened. Source: ours; a Pulsar broker
waits as long as the unload itself may take.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TypeAlias

from jobs.adapters.processes.clocks import boot_ms, wall_ms
from jobs.service.context import AdminContext, CommandEnd
from jobs.service.exchange import RETRY, HttpError, Reply, Request, Stream
from jobs.service.routes import Handler
from lbcore.balancer.state.outcome import ACCEPTED, REFUSED
from lbcore.ownership.records import State
from lbcore.pulsar.errors import CONFLICT, PulsarError
from lbcore.route.bundles import BundleRoute
from lbcore.wire.kinds.command_about import CommandArguments

Refusal: TypeAlias = Callable[[str], PulsarError]

_SILENT_MAX_MS = 60_000
_EXTRA_MS = 10_000
_LOOK_S = 0.02
_UNDER_WAY = frozenset({State.ASSIGNING, State.RELEASING, State.SPLITTING})


def answering(handler: Handler) -> Handler:
    """The handler with Pulsar's refusals turned into answers."""

    @wraps(handler)
    async def wrapped(request: Request, context: AdminContext) -> Reply | Stream:
        try:
            return await handler(request, context)
        except PulsarError as error:
            raise HttpError(error.status, error.reason) from None

    return wrapped


def conflict(reason: str) -> PulsarError:
    """The balancer's own words: something came between."""
    return PulsarError(CONFLICT, reason)


async def carry_out(
    request: Request,
    context: AdminContext,
    arguments: CommandArguments,
    refused: Refusal = conflict,
) -> CommandEnd:
    """Have a command done.

    refused: what a refusal of the balancer's (with its sentence) is answered with. Raises
    PulsarError, and HttpError 503 when the balancer is away or needs longer than an unload may.
    """
    silent_ms = context.view.writer_silent_ms(wall_ms())
    if silent_ms > _SILENT_MAX_MS:
        reason = (
            f"The balancer has been silent for {silent_ms} ms, so nothing was asked of it: try "
            "again when it is back"
        )
        raise HttpError(503, reason, RETRY)
    wait_ms = context.started.ownership.unload_timeout_ms + _EXTRA_MS
    outcome = await context.command(arguments, request, timeout_ms=wait_ms)
    if outcome.is_done:
        return outcome
    if outcome.status == REFUSED:
        raise refused(outcome.reason)
    if outcome.status == ACCEPTED:
        reason = f"Command {outcome.command_id} is still under way after {wait_ms} ms"
        raise HttpError(503, reason, RETRY)
    raise HttpError(503, f"Command {outcome.command_id}: {outcome.reason}", RETRY)


async def at_rest(
    context: AdminContext, find: Callable[[], Sequence[BundleRoute]]
) -> Sequence[BundleRoute]:
    """Some bundles when none is on its way any more, or when a transition's time is over.

    Pulsar, too, waits for an owner before it acts on a bundle. find: looks at them again.
    """
    deadline_ms = boot_ms() + context.started.ownership.in_flight_timeout_ms
    while True:
        routes = find()
        if boot_ms() >= deadline_ms or not any(route.state in _UNDER_WAY for route in routes):
            return routes
        await asyncio.sleep(_LOOK_S)
