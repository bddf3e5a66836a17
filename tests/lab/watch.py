"""Looks at a cluster once a second: who has what, how even it is, and what has moved.

Decides what a look saw; counts nothing (that is `records`). The load of a broker is what its topics
are *offered*, which is known exactly, not what somebody measured.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jobs.bridge.admin_address import AdminAddress, PulsarAdminError
from jobs.bridge.pulsar_admin import PulsarAdmin
from tests.lab.hosted_cluster import HostedCluster
from tests.lab.records import Move, Phase, Sample
from tests.pulsar.pulsar_stack import PULSAR
from tests.pulsar.traffic import Traffic

_LOOK_S = 1.0
_AROUND_S = (2.0, 5.0)
"""A message counts as around a move from so long before it was seen until so long after."""


@dataclass
class Watch:
    """What was seen. bundles: topic → its bundle; last: bundle → the number of its broker."""

    cluster: HostedCluster
    traffic: Traffic
    bundles: Mapping[str, str]
    last: dict[str, int] = field(default_factory=dict)
    phases: list[Phase] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    moved_s: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)
    killed_s: float = float("inf")
    first_used_s: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """An admin a broker: its own word is what counts, and one that is dead holds up none."""
        self._admins: dict[int, PulsarAdmin] = {}
        self._orphans: set[str] = set()

    def rates(self) -> Counter[str]:
        """Bundle → messages a second offered to it."""
        found: Counter[str] = Counter()
        for topic, rate in self.traffic.rates().items():
            found[self.bundles[topic]] += rate  # type: ignore[assignment]
        return found

    def owners(self) -> dict[str, int]:
        """Bundle → broker, of the bundles with traffic that a live broker says it owns."""
        found = {}
        for number in sorted(self.cluster.alive):
            try:
                owned = self._admin(number).owned(PULSAR, self.cluster.broker(number))
            except PulsarAdminError:
                owned = frozenset(one for one, owner in self.last.items() if owner == number)
            found.update(dict.fromkeys(owned & set(self.bundles.values()), number))
        return found

    def kill(self, number: int) -> None:
        """Kill a broker; what its bundles do then is a failover."""
        self._orphans |= {bundle for bundle, owner in self.last.items() if owner == number}
        self.killed_s = time.monotonic()
        self.cluster.kill(number)
        self._admins.pop(number, None)

    def phase(self, name: str, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Look for so long, or until it is over."""
        if not self.phases:
            self.began_s = time.monotonic()
        began_s = self.phases[-1].ended_s if self.phases else 0.0
        self.last = self.last or self.owners()
        start_s = time.monotonic()
        while (looked_s := time.monotonic()) - start_s < seconds and not is_over():
            self._look(began_s + looked_s - start_s)
            self.loads.append(os.getloadavg()[0])
            time.sleep(max(0.0, _LOOK_S - (time.monotonic() - looked_s)))
        lasted_s = min(seconds, time.monotonic() - start_s) if is_over() else seconds
        self.phases.append(Phase(name=name, began_s=began_s, ended_s=round(began_s + lasted_s, 1)))

    def is_around_move(self, at_s: float) -> bool:
        """Whether this second of `time.monotonic` lies around a move."""
        before_s, after_s = _AROUND_S
        return any(one - before_s <= at_s <= one + after_s for one in self.moved_s)

    def _admin(self, number: int) -> PulsarAdmin:
        if number not in self._admins:
            address = AdminAddress(url=f"http://{self.cluster.broker(number)}", timeout_s=5.0)
            self._admins[number] = PulsarAdmin(address)
        return self._admins[number]

    def _look(self, at_s: float) -> None:
        owners, rates = self.owners(), self.rates()
        for bundle, owner in sorted(owners.items()):
            before = self.last.get(bundle, owner)
            if before != owner:
                self.moves.append(
                    Move(
                        at_s=round(at_s, 1),
                        bundle=bundle,
                        source=before,
                        target=owner,
                        rate=round(rates[bundle], 1),
                        is_failover=bundle in self._orphans,
                    )
                )
                self.moved_s.append(time.monotonic())
            self._orphans.discard(bundle)
        self.last |= owners
        for owner in set(owners.values()):
            self.first_used_s.setdefault(owner, at_s)
        self._sample(at_s, owners, rates)

    def _sample(self, at_s: float, owners: Mapping[str, int], rates: Mapping[str, float]) -> None:
        """Only what differs from the last one is kept. In flight counts where it was last."""
        offered = dict.fromkeys(self.cluster.alive, 0.0)
        for bundle, rate in rates.items():
            owner = owners.get(bundle, self.last.get(bundle))
            if owner in offered:
                offered[owner] += rate
        mean = sum(rates.values()) / len(offered)
        ratio = round(max(offered.values()) / mean, 3)
        unowned = sum(bundle not in owners for bundle in rates)
        newest = self.samples[-1] if self.samples else None
        if newest is None or (newest.ratio, newest.unowned) != (ratio, unowned):
            self.samples.append(Sample(at_s=round(at_s, 1), ratio=ratio, unowned=unowned))
