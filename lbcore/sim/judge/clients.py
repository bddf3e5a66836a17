"""Publishers and consumers: when they reconnect after a topic is served again.

Decides what a move costs clients. While nobody serves a topic they look it up again and again, the
pause doubling up to a minute (or are told at once: retry 0); then each looks up and connects, and a
broker accepts so many connections a second, first come, first served. What clients do to lookups
and brokers beyond that is not in it. The pause is the Pulsar client's backoff (100 ms to 60 s), the
queue its broker's `maxConcurrentLookupRequest` and connection handling, as one rate.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lbcore.sim.engine.coverage import Outage
from lbcore.sim.scenario.model import Client

LONGEST_PAUSE_MS = 60_000
_PARTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnection:
    """Clients that are connected again at about one time.

    away_ms: from the end of service until they begin to look up the broker that has it; wait_ms:
    from then until they are connected. rate: what their topics carry, msg/s in + out.
    """

    at_ms: int
    away_ms: int
    wait_ms: int
    clients: float
    rate: float


def reconnections(outages: Iterable[Outage], client: Client) -> list[Reconnection]:
    """Return the reconnections of clients after outages that ended.

    They are ordered by the end of the outage, then by broker.
    """
    free_ms: dict[int, float] = {}
    found: list[Reconnection] = []
    for outage in sorted(outages, key=lambda one: (one.ended_ms, one.broker, one.began_ms)):
        noticed_ms = outage.ended_ms + _notice_ms(outage.ended_ms - outage.began_ms, client)
        asked_ms = float(noticed_ms + client.lookup_ms)
        start = max(asked_ms, free_ms.get(outage.broker, 0.0))
        count = outage.topics * (client.publishers + client.consumers)
        lasts = count * 1_000.0 / client.accept if client.accept else 0.0
        free_ms[outage.broker] = start + lasts
        found += _parts(outage, noticed_ms, (start, lasts), count, client)
    return found


def _parts(
    outage: Outage, noticed_ms: int, queue: tuple[float, float], count: int, client: Client
) -> Iterator[Reconnection]:
    """The clients in up to _PARTS parts, by when the broker accepts them."""
    start, lasts = queue
    parts = min(_PARTS, max(1, count)) if lasts else 1
    for part in range(parts):
        connected = start + lasts * (part + 1) / parts + client.connect_ms
        yield Reconnection(
            at_ms=round(connected),
            away_ms=noticed_ms - outage.began_ms,
            wait_ms=round(connected) - noticed_ms,
            clients=count / parts,
            rate=outage.rate / parts,
        )


def _notice_ms(lasted_ms: int, client: Client) -> int:
    """Return the time from the return of service to a client's next try.

    Its first try is as service ended.
    """
    if not client.retry_ms:
        return 0
    tried_ms, pause_ms = 0, client.retry_ms
    while tried_ms < lasted_ms:
        tried_ms += pause_ms
        pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
    return tried_ms - lasted_ms
