"""Requests for the owner of a bundle: sent once, however many ask.

Decides that one record is asked for at most once in five seconds by each process, and that all who
ask within the same five seconds send a command of one id, so that the balancer carries out one of
them. Pulsar's brokers assign at the first lookup too (ExtensibleLoadManagerImpl).
"""

from collections import OrderedDict
from hashlib import blake2b

from lbcore.ownership.records import State
from lbcore.route.bundles import BundleRoute

ASKED_BY = "lookup"
"""The principal of such a command."""

TIMEOUT_MS = 5_000
_AGAIN_S = 5.0
_ASKED_MAX = 10_000


class OwnerRequests:
    """Recent requests, at most ten thousand; for one thread."""

    def __init__(self) -> None:
        self._asked_s: OrderedDict[tuple[str, int], float] = OrderedDict()

    def is_due(self, route: BundleRoute, now_s: float) -> bool:
        """True if an owner is to be requested now; the record then counts as asked. O(1).

        now_s: seconds of a monotonic clock.
        """
        key = (route.bundle, route.version_id)
        if route.state is not State.FREE or now_s - self._asked_s.get(key, -_AGAIN_S) < _AGAIN_S:
            return False
        self._asked_s[key] = now_s
        self._asked_s.move_to_end(key)
        if len(self._asked_s) > _ASKED_MAX:
            self._asked_s.popitem(last=False)
        return True


def request_id(cluster: str, route: BundleRoute, wall_s: float) -> str:
    """Return the command id shared by requests for this record within five seconds."""
    name = f"{cluster}/{route.bundle}/{route.version_id}/{int(wall_s // _AGAIN_S)}"
    return f"lookup-{blake2b(name.encode(), digest_size=16).hexdigest()}"
