"""Number of moves decided by balancing within the last hour, by tenant.

`phases.limit` compares it with `shedding.max_moves_per_hour` and `max_moves_per_hour_of_tenant`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from lbcore.model.times import HOUR_MS

Hourly: TypeAlias = Mapping[str, tuple[tuple[int, int], ...]]
"""Tenant → (when, how many moves were decided then), oldest first."""


def moves_within_hour(hourly: Hourly, now_ms: int) -> Counter[str]:
    """Tenant → moves since an hour before now. O(entries)."""
    found: Counter[str] = Counter()
    for tenant, entries in hourly.items():
        found[tenant] = sum(count for at_ms, count in entries if at_ms > now_ms - HOUR_MS)
    return found


def with_moves(hourly: Hourly, tenants: Iterable[str], now_ms: int) -> Hourly:
    """Add what is decided now, one tenant a move; drop what is older than an hour."""
    added = Counter(tenants)
    if not added:
        return hourly
    found = {}
    for tenant in sorted(hourly.keys() | added.keys()):
        kept = [one for one in hourly.get(tenant, ()) if one[0] > now_ms - HOUR_MS]
        if tenant in added:
            kept.append((now_ms, added[tenant]))
        if kept:
            found[tenant] = tuple(kept)
    return found
