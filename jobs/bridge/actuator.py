"""The actuator: carries out decisions through Pulsar's admin interface.

`lbcore.bridge.acting` decides what a record needs next. Here are the threads, the limits of
requests in flight and per minute, and the acknowledgements to Kafka.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace

from jobs.adapters.processes.clocks import ForwardClock
from jobs.bridge.admin_address import PulsarAdminError
from jobs.bridge.collector import Collector, Send
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.telemetry.bridge_metrics import FAILED, REFUSED, SPLIT, UNLOAD
from lbcore.bridge.acting import (
    Action,
    Attempts,
    Leave,
    LookAgain,
    Lookup,
    PulsarState,
    RecordAnswer,
    Split,
    Unload,
    next_action,
    positions_for,
)
from lbcore.bridge.guardian import Finding, Trouble
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.states import IN_FLIGHT
from lbcore.wire.messages import Ack, Acks, Envelope

logger = logging.getLogger(__name__)

QUARANTINED = "it is quarantined: `ballast status` says why"
_RETRY_S = 0.5
_REPEAT_S = 10.0
_REMEMBERED_MAX = 1_000
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits of the requests to Pulsar: in flight, and per minute.

    old_ms: age from which a record on which work has not begun counts as old.
    """

    in_flight: int = 4
    per_minute: int = 60
    old_ms: int = 120_000


class Actuator:
    """Work on records in flight; one thread calls `consider` again and again."""

    def __init__(
        self,
        admin: PulsarAdmin,
        collector: Collector,
        cluster: str,
        limits: RequestLimits,
        send: Send,
    ) -> None:
        self._admin, self._collector, self._send = admin, collector, send
        self._cluster, self._limits = cluster, limits
        self._clock = ForwardClock()
        self._pool = ThreadPoolExecutor(limits.in_flight, thread_name_prefix="act")
        self._lock = threading.Lock()
        self._working: dict[str, str] = {}
        self._resting: dict[str, tuple[int, float]] = {}
        self._asked_s: deque[float] = deque()
        self._seqs: dict[str, int] = {}
        self._is_closed = threading.Event()
        self.forbidden = "the bridge has just started"
        self.quarantined: frozenset[str] = frozenset()
        self._metrics = collector.metrics

    def busy(self) -> frozenset[str]:
        """The bundles that are being worked on."""
        with self._lock:
            return frozenset(self._working)

    def close(self) -> None:
        """Begin nothing more; requests that Pulsar has accepted go on there."""
        self._is_closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def consider(self, records: Mapping[str, OwnershipRecord], newest: "Newest") -> None:
        """Begin work on records in flight that have none yet, in name order.

        With the modular manager only one bundle at a time goes to a broker: see
        `PollOptions.quiet_ms`. newest: returns a bundle's newest version.
        """
        in_flight = [record for record in records.values() if record.state in IN_FLIGHT]
        for record in sorted(in_flight, key=lambda one: one.bundle):
            if self._is_due(record):
                with self._lock:
                    self._working[record.bundle] = record.destination
                self._pool.submit(self._work, record, newest)

    def _is_due(self, record: OwnershipRecord) -> bool:
        with self._lock:
            if record.bundle in self._working:
                return False
            is_taking = bool(record.destination) and record.destination in self._working.values()
            if is_taking and not self._collector.is_extensible():
                return False
            version, until_s = self._resting.get(record.bundle, (0, 0.0))
        return version != record.version_id or time.monotonic() >= until_s

    def _work(self, record: OwnershipRecord, newest: "Newest") -> None:
        try:
            self._follow(record, newest)
        except Exception:
            logger.exception("work on %s has ended", record.bundle)
        finally:
            with self._lock:
                now_s = time.monotonic()
                self._working.pop(record.bundle, None)
                self._resting[record.bundle] = (record.version_id, now_s + _REPEAT_S)
                if len(self._resting) > _REMEMBERED_MAX:  # drop those whose rest is over
                    rested = self._resting.items()
                    self._resting = {name: one for name, one in rested if one[1] > now_s}

    def _follow(self, record: OwnershipRecord, newest: "Newest") -> None:
        """Do what the record needs until it is acknowledged, left, or superseded."""
        began_s = time.monotonic()
        attempts = Attempts(is_old=self._clock.now_ms() - record.timestamp_ms > self._limits.old_ms)
        while self._is_current(record, newest):
            waited_ms = round((time.monotonic() - began_s) * 1_000)
            forbidden = self._forbidden(record)
            attempts = replace(attempts, waited_ms=waited_ms, forbidden=forbidden)
            action = next_action(record, self._read_state(record), attempts)
            if isinstance(action, RecordAnswer):
                self._answer(record, action, attempts)
                return
            if isinstance(action, Leave):
                self._log("left to the mirror", record, why=action.reason)
                return
            if isinstance(action, Unload | Split):
                self._wait_for_turn()
                if self._forbidden(record) or not self._is_current(record, newest):
                    continue  # that wait may take a minute
            attempts = self._carry_out(record, action, attempts)

    def _is_current(self, record: OwnershipRecord, newest: "Newest") -> bool:
        return not self._is_closed.is_set() and newest(record.bundle) == record.version_id

    def _forbidden(self, record: OwnershipRecord) -> str:
        is_quarantined = record.bundle in self.quarantined
        return self.forbidden or (QUARANTINED if is_quarantined else "")

    def repair(self, finding: Finding) -> None:
        """Ask Pulsar once, in a thread, for what may end a finding.

        The guardian's next look shows the result.
        """
        self._pool.submit(self._mend, finding)

    def _mend(self, finding: Finding) -> None:
        is_unserved = finding.trouble is Trouble.UNSERVED
        fields = {"bundle": finding.subject, "trouble": finding.trouble.value}
        try:
            self._wait_for_turn()
            if self._is_closed.is_set() or self.forbidden:
                return
            if is_unserved:
                self._look_up(finding.subject)
            else:
                self._metrics.add("ballast_bridge_requests_total", UNLOAD)
                self._admin.unload(finding.subject)
        except PulsarAdminError as error:
            self._count_not_done(error)
            logger.warning("not mended", extra={"fields": {**fields, "why": str(error)}})
        else:
            done = "looked up" if is_unserved else "unloaded"
            logger.info("asked to mend", extra={"fields": {**fields, "done": done}})

    def _carry_out(self, record: OwnershipRecord, action: Action, attempts: Attempts) -> Attempts:
        try:
            if isinstance(action, Unload | Split):
                name = SPLIT if isinstance(action, Split) else UNLOAD
                self._log("asked", record, action=name)
                self._metrics.add("ballast_bridge_requests_total", name)
                attempts = replace(attempts, asked=attempts.asked + 1)
            if isinstance(action, Unload):
                self._admin.unload(record.bundle, action.destination)
            elif isinstance(action, Split):
                at_once = not self._collector.is_extensible()
                self._admin.split(action.bundle, positions_for(action, at_once=at_once))
            elif isinstance(action, Lookup):
                self._look_up(record.bundle)
        except PulsarAdminError as error:
            self._count_not_done(error)
            self._log("refused", record, why=str(error))
            attempts = replace(attempts, refused=str(error))
            self._is_closed.wait(_RETRY_S)
        if isinstance(action, LookAgain | Lookup):
            self._is_closed.wait(_RETRY_S)
        return attempts

    def _count_not_done(self, error: PulsarAdminError) -> None:
        result = REFUSED if error.is_refusal else FAILED
        self._metrics.add("ballast_bridge_failed_requests_total", result)

    def _look_up(self, bundle: str) -> None:
        looked = self._collector.look_up(bundle)
        if looked.refused:
            raise PulsarAdminError(looked.refused)

    def _read_state(self, record: OwnershipRecord) -> PulsarState:
        """Read Pulsar's present state; owner "" = none, None or boundaries () = unknown."""
        owner: str | None = None
        boundaries: tuple[int, ...] = ()
        with suppress(PulsarAdminError):
            if record.state is State.SPLITTING:
                namespace = record.bundle.rpartition("/")[0]
                boundaries = self._admin.boundaries(namespace)
                self._collector.note_boundaries(namespace, boundaries)
            else:
                active = self._collector.active()
                named = [name for name in (record.destination, record.source) if name in active]
                order = dict.fromkeys((*named, *active))  # most often it is one of the first
                owners = (one for one in order if record.bundle in self._collector.owned(one))
                owner = next(owners, "")
        return PulsarState(
            owner=owner, incarnations=self._collector.incarnations(), boundaries=boundaries
        )

    def _answer(self, record: OwnershipRecord, answer: RecordAnswer, attempts: Attempts) -> None:
        ack = Ack(
            bundle=record.bundle,
            version_id=record.version_id,
            outcome=answer.outcome,
            reason=answer.reason,
        )
        now_ms = self._clock.now_ms()
        with self._lock:  # until it is sent: a seq that arrives after a higher one counts as late
            seq = max(self._seqs.get(answer.broker, 0), now_ms - 1) + 1
            self._seqs[answer.broker] = seq
            if len(self._seqs) > _REMEMBERED_MAX:  # a seq below now_ms has no use
                self._seqs = {name: one for name, one in self._seqs.items() if one >= now_ms}
            envelope = Envelope(
                cluster=self._cluster,
                broker=answer.broker,
                incarnation=answer.incarnation,
                seq=seq,
                reported_at_ms=now_ms,
            )
            self._send(Acks(envelope=envelope, acks=(ack,)))
        self._metrics.add("ballast_bridge_answers_total", answer.outcome.value)
        self._log(answer.outcome.value, record, why=answer.reason, waited_ms=attempts.waited_ms)

    def _wait_for_turn(self) -> None:
        """Wait until fewer than per_minute requests were sent within a minute."""
        while not self._is_closed.is_set():
            with self._lock:
                now_s = time.monotonic()
                while self._asked_s and now_s - self._asked_s[0] >= _MINUTE_S:
                    self._asked_s.popleft()
                if len(self._asked_s) < self._limits.per_minute:
                    self._asked_s.append(now_s)
                    return
            self._is_closed.wait(_RETRY_S)

    def _log(self, event: str, record: OwnershipRecord, **more: object) -> None:
        fields = {
            "bundle": record.bundle,
            "state": record.state.value,
            "version": record.version_id,
            "source": record.source,
            "destination": record.destination,
            **{name: value for name, value in more.items() if value != ""},
        }
        logger.info(event, extra={"fields": fields})


Newest = Callable[[str], int]
"""Bundle → the version of its newest record."""
