"""Durations and returns of moves, from the ownership events.

Remembers what is under way, and where each moved bundle was within the last hour; both are
forgotten by time, so memory is bounded by the moves of an hour. Source: the latencies are Pulsar
4.0.8's (UnloadManager); thrash is as defined in `lbcore.sim.summary`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from lbcore.ownership.records import State
from lbcore.sim.summary import HOUR_MS

EVENT_COLUMNS = (
    "cluster",
    "bundle",
    "state",
    "state_before",
    "source",
    "destination",
    "destination_before",
    "at_ms",
    "cause",
    "is_forced",
)


class Event(NamedTuple):
    """A row of ownership_events, as far as it is looked at."""

    cluster: str
    bundle: str
    state: str
    state_before: str
    source: str
    destination: str
    destination_before: str
    at_ms: int
    cause: str
    is_forced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """One part of a move that has ended. part: release, assign or unload."""

    part: str
    broker: str
    ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """A bundle that another broker has opened. cause: what began its way."""

    cause: str
    is_return: bool


@dataclass(slots=True)
class _Way:
    owner: str
    cause: str
    began_ms: int
    step_ms: int
    closing: str = ""


class MoveTracker:
    """Follows the bundles of all clusters, event by event in the order of the table."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[str, str], _Way] = {}
        self._left_ms: dict[tuple[str, str], dict[str, int]] = {}

    def take(self, event: Event) -> Iterator[Latency | Landed]:
        """Process an event; yield the latencies and the move that it ends."""
        key = (event.cluster, event.bundle)
        way = self._under_way.get(key)
        if event.state == State.RELEASING.value:
            self._under_way[key] = _Way(
                event.source, event.cause, event.at_ms, event.at_ms, event.source
            )
            return
        if way is not None and way.closing and event.state != State.OWNED.value:
            yield Latency(part="release", broker=way.closing, ms=event.at_ms - way.step_ms)
            way.closing = ""
        if event.state not in (State.ASSIGNING.value, State.FREE.value):
            self._under_way.pop(key, None)
            if way is not None and event.state == State.OWNED.value:
                yield from self._end(key, way, event)
        elif way is not None:
            way.step_ms = event.at_ms
        else:
            owner = event.destination_before if event.state_before == State.OWNED.value else ""
            self._under_way[key] = _Way(owner, event.cause, event.at_ms, event.at_ms)

    def forget(self, now_ms: int) -> None:
        """Drop what is older than an hour."""
        for key in [key for key, way in self._under_way.items() if _is_old(way.step_ms, now_ms)]:
            del self._under_way[key]
        for key, left in list(self._left_ms.items()):
            kept = {broker: at for broker, at in left.items() if not _is_old(at, now_ms)}
            if kept:
                self._left_ms[key] = kept
            else:
                del self._left_ms[key]

    def _end(self, key: tuple[str, str], way: _Way, event: Event) -> Iterator[Latency | Landed]:
        if event.state_before == State.ASSIGNING.value:
            yield Latency(part="assign", broker=event.destination, ms=event.at_ms - way.step_ms)
        if not way.owner or way.owner == event.destination:
            return
        yield Latency(part="unload", broker=way.owner, ms=event.at_ms - way.began_ms)
        left = self._left_ms.setdefault(key, {})
        is_return = not _is_old(left.get(event.destination, -HOUR_MS), event.at_ms)
        left[way.owner] = event.at_ms
        yield Landed(cause=way.cause, is_return=is_return)


def _is_old(at_ms: int, now_ms: int) -> bool:
    return now_ms - at_ms >= HOUR_MS
