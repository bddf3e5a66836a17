"""How often somebody may ask: a bucket of permits a name, refilled steadily.

Decides whether one request more is within the rate. Source: the token bucket (RFC 2697's idea).
"""

import time
from collections import OrderedDict
from collections.abc import Callable

_NAMES_MAX = 10_000


class RateLimiter:
    """Allows per_s requests a second for each name, up to a second's worth at once; 0 = any.

    Remembers the 10,000 names that asked last: one that comes back later begins with a full bucket,
    which it would have by then at any rate of use that is worth limiting.
    """

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_s = per_s
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, name: str) -> bool:
        """Take one permit, if there is one."""
        if not self.per_s:
            return True
        now_s = self._clock()
        size = max(1.0, self.per_s)
        permits, since_s = self._buckets.pop(name, (size, now_s))
        permits = min(size, permits + (now_s - since_s) * self.per_s)
        is_allowed = permits >= 1
        self._buckets[name] = (permits - is_allowed, now_s)
        if len(self._buckets) > _NAMES_MAX:
            self._buckets.popitem(last=False)
        return is_allowed
