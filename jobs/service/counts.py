"""What the admin service counts; the metrics read it.

Decides nothing. Plain numbers of one event loop. Source: ours.
"""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class GateCounts:
    """Requests that were not let in, by reason: a closed set."""

    refused: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class AdminCounts:
    """Answers by status, open streams, and refusals that were too many to be recorded."""

    statuses: Counter[int] = field(default_factory=Counter)
    unrecorded: int = 0
    streams: int = 0


@dataclass(slots=True, kw_only=True)
class AuditCounts:
    """Entries that stand in the service's log only, because Kafka was away for too long."""

    dropped: int = 0
