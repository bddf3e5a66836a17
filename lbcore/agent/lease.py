"""An agent's lease: how long it may serve since Kafka's confirmation.

By its own clock. Decides until when; the service asks at every use, so that a process that was
frozen, or whose network is cut, finds out by itself. Does not say what is served (`agent.usable`).
Two confirmations carry the lease: Kafka has acknowledged a report, so the balancer has no reason to
take the broker for dead before broker_timeout_ms after it was sent; and the topic ownership was
read to its end, so that no record was missed. Part of `agent`. Leases as in Gray and Cheriton,
1989.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

NEVER_MS = -(2**62)
FOR_EVER_MS = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportConfirmed:
    """Event: all in-sync replicas have a message of broker-load sent at sent_ms.

    sent_ms: its envelope's reportedAt, which is the agent's own clock before it was handed over.
    """

    sent_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndConfirmed:
    """Event: records committed to ownership before asked_ms were given before this."""

    asked_ms: int


Confirmation: TypeAlias = ReportConfirmed | EndConfirmed


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Confirmed times of a lease.

    reported_ms, read_ms: the newest sent_ms and asked_ms. returned_ms: when a confirmation came
    after the lease had run out the last time; NEVER_MS = it never has.
    """

    reported_ms: int = NEVER_MS
    read_ms: int = NEVER_MS
    returned_ms: int = NEVER_MS

    def confirmed(self, event: Confirmation, lease_ms: int, now_ms: int) -> "Lease":
        """The lease after a confirmation that is taken in at now_ms.

        When it comes too late, the lease has run out before: see `until_ms`.
        """
        returned_ms = now_ms if self._has_run_out(lease_ms, now_ms) else self.returned_ms
        lease = replace(self, returned_ms=returned_ms)
        if isinstance(event, ReportConfirmed):
            return replace(lease, reported_ms=max(self.reported_ms, event.sent_ms))
        return replace(lease, read_ms=max(self.read_ms, event.asked_ms))

    def until_ms(self, lease_ms: int) -> int:
        """The last moment at which anything may be served; NEVER_MS = nothing may now.

        After it has run out once, one whole lease must pass under confirmations, and the end of
        ownership be reached after it: by then a record is read that gave the bundles away because
        the broker was silent, also when the balancer was behind while it decided so.
        """
        if self.read_ms < self.returned_ms + lease_ms:
            return NEVER_MS
        return min(self.reported_ms, self.read_ms) + lease_ms

    def _has_run_out(self, lease_ms: int, now_ms: int) -> bool:
        known = (at_ms for at_ms in (self.reported_ms, self.read_ms) if at_ms != NEVER_MS)
        return any(now_ms - at_ms > lease_ms for at_ms in known)
