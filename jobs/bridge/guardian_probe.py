"""Observations for the guardian, with lookups of topics as clients do them.

Decides nothing but which topics are looked up: those of bundles that are in doubt, and in turn some
of all that have clients. What is wrong is `lbcore.bridge.guardian`'s to say.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from jobs.adapters.processes.clocks import ForwardClock
from jobs.bridge.admin_address import PulsarAdminError
from jobs.bridge.collector import Collector
from lbcore.bridge.anomalies import Looked, ProbeRound, Trouble
from lbcore.bridge.guardian import GuardianTimeouts, GuardState, Judged, judge
from lbcore.bridge.mirror import Look
from lbcore.ownership.records import OwnershipRecord
from lbcore.ownership.states import IN_FLIGHT

_AT_ONCE = 8
_LOOKED_UP = (Trouble.UNSERVED, Trouble.CIRCLING, Trouble.DOUBLED)


class GuardianProbe:
    """Called by one thread, once a look."""

    def __init__(self, collector: Collector, timeouts: GuardianTimeouts | None = None) -> None:
        self._patience = timeouts or GuardianTimeouts()
        self._collector = collector
        self._clock = ForwardClock()
        self._state = GuardState()
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="lookup")
        self._asked: dict[str, Future[Looked]] = {}
        self._known: dict[str, Looked] = {}
        self._turn = ""

    def close(self) -> None:
        """Look nothing up any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def watch(
        self,
        look: Look,
        records: Mapping[str, OwnershipRecord],
        unread: Mapping[str, str] | None = None,
        *,
        acts: bool,
    ) -> Judged:
        """Return the findings of this look and of the lookups answered since the last.

        unread: what could not be read of the cluster → why.
        """
        asked_for = self._collector.asked_for()
        self._take_lookups()
        seen = ProbeRound(
            listed=frozenset(look.owned),
            owned={**self._collector.unlisted(), **look.owned},
            closing=self._collector.closing,
            moving={
                name: f"{record.state.value}, version {record.version_id}"
                for name, record in records.items()
                if record.state in IN_FLIGHT
            },
            asked_for=asked_for,
            lookups=self._known,
            partitions=self._collector.partitions(),
            certificates=self._collector.certificates(),
            unread=unread or {},
            unreported={
                broker: "; ".join(found.values())
                for broker, found in self._collector.unreported().items()
            },
        )
        judged = judge(self._state, seen, self._clock.now_ms(), self._patience, acts=acts)
        self._state = judged.state
        self._look_up(asked_for)
        return judged

    def _take_lookups(self) -> None:
        """The answers that have come; of what is looked up no more nothing is known."""
        done = {name: one for name, one in self._asked.items() if one.done()}
        self._asked = {name: one for name, one in self._asked.items() if name not in done}
        waited_for = {name: self._known[name] for name in self._asked if name in self._known}
        self._known = {**waited_for, **{name: one.result() for name, one in done.items()}}

    def _look_up(self, asked_for: frozenset[str]) -> None:
        in_doubt = [name for trouble, name in self._state.lasting if trouble in _LOOKED_UP]
        for bundle in dict.fromkeys((*in_doubt[:_AT_ONCE], *self._next(sorted(asked_for)))):
            if bundle not in self._asked:
                self._asked[bundle] = self._pool.submit(self._looked, bundle)

    def _next(self, bundles: list[str]) -> Iterable[str]:
        """Some, and the next time those that follow."""
        after = [name for name in bundles if name > self._turn]
        chosen = (after + bundles)[: min(_AT_ONCE, len(bundles))]
        self._turn = chosen[-1] if chosen else ""
        return chosen

    def _looked(self, bundle: str) -> Looked:
        try:
            return self._collector.look_up(bundle)
        except PulsarAdminError as error:
            return Looked(refused=str(error))
