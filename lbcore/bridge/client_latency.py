"""Latency for a broker's clients: time to publish, and to load a topic.

It is known only as far as Pulsar reports it. Decides the first from the growth of the sums on a
broker's Prometheus page between two looks. The quantiles beside them are of the past minutes, which
would hold a pace back long after. The second is a page's own mean, because Pulsar begins its sums
anew. The time that clients wait while they look for a topic's new broker is not included. Source:
Pulsar 4.0.8, AbstractTopic (pulsar_broker_publish_latency) and BrokerOperabilityMetrics
(pulsar_topic_load_times), both in ms.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lbcore.bridge.answers import samples
from lbcore.wire.rules import MAX_NUMBER

_PUBLISHED = ("pulsar_broker_publish_latency_sum", "pulsar_broker_publish_latency_count")
_LOADED = ("pulsar_topic_load_times_sum", "pulsar_topic_load_times_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySums:
    """Of one page: ms in all, and how often; None where it has no such."""

    published: tuple[float, float] | None = None
    loaded: tuple[float, float] | None = None


def parse_client_latency(raw: bytes) -> LatencySums:
    """Return the sums of a broker's Prometheus page. O(bytes).

    What can't be read is left out.
    """
    page = raw.decode("utf-8", "replace")
    found = {
        name: value
        for name, _, value in samples(page, (*_PUBLISHED, *_LOADED))
        if 0.0 <= value <= MAX_NUMBER
    }
    return LatencySums(published=_pair(found, _PUBLISHED), loaded=_pair(found, _LOADED))


def publish_ms(before: LatencySums, now: LatencySums) -> float | None:
    """Return the mean between two pages; None if unknown or after a restart."""
    if before.published is None or now.published is None:
        return None
    total_ms, count = (now.published[at] - before.published[at] for at in (0, 1))
    if count < 0 or total_ms < 0:
        return None
    return total_ms / count if count else 0.0


def load_ms(now: LatencySums) -> float | None:
    """The mean time that a topic has taken to load of late; None when it is not told."""
    if now.loaded is None:
        return None
    total_ms, count = now.loaded
    return total_ms / count if count else 0.0


def worst_ms(found: Iterable[float | None]) -> float | None:
    """Of several brokers; None when none of them tells."""
    return max((one for one in found if one is not None), default=None)


def _pair(found: Mapping[str, float], names: tuple[str, str]) -> tuple[float, float] | None:
    total, count = (found.get(name) for name in names)
    return None if total is None or count is None else (total, count)
