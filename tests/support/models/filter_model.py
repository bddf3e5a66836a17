"""The filters once more, slow and plain: one bundle, one broker at a time, by name.

The model that `lbcore.plan.filter` is held against; it shares no code with it, only the values that
come in. Source: Pulsar 4.0.8 LoadManagerShared, ModularLoadManagerImpl, ExtensibleLoadManagerImpl;
ours where the settings say so.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from lbcore.plan.filter.index import FilterInput
from lbcore.plan.filter.policies import IsolationPolicy
from lbcore.plan.place.request import PlaceSettings
from lbcore.plan.snapshot import Snapshot


class FilterFailedError(Exception):
    """A filter throws."""


@dataclass
class Cluster:
    """A snapshot and what is known beside it, by name."""

    snapshot: Snapshot
    inputs: FilterInput
    settings: PlaceSettings
    topics: dict[str, int] = field(default_factory=dict)
    holders: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        brokers, bundles = self.snapshot.brokers, self.snapshot.bundles
        self.number = {name: at for at, name in enumerate(brokers.names)}
        self.topics = dict(zip(brokers.names, brokers.topic_count.tolist(), strict=True))
        self.spaces = [bundles.namespaces[at] for at in bundles.namespace]
        self.holders = [
            (self.spaces[row], brokers.names[owner])
            for row, owner in enumerate(bundles.owner.tolist())
            if owner >= 0
        ]

    def usage(self, name: str) -> float:
        """Weighted usage, 1.0 = 100 %."""
        return float(self.inputs.usage[self.number[name]])

    def add(self, row: int, broker: str) -> None:
        """Count a bundle on its broker."""
        self.topics[broker] += int(self.snapshot.bundles.topics[row])
        self.holders.append((self.spaces[row], broker))

    def closed(self, name: str) -> bool:
        """Whether a broker drains, flaps or is suspected."""
        at = self.number[name]
        return bool(self.snapshot.brokers.is_draining[at] or self.is_unsteady(at))

    def is_unsteady(self, at: int) -> bool:
        """Whether a broker flaps or is suspected."""
        return bool(self.inputs.is_flapping[at] or self.inputs.is_suspected[at])

    def open_brokers(self) -> list[str]:
        """Those that neither drain nor are unsteady; if there are none, those that only flap."""
        names = self.snapshot.brokers.names
        found = [name for name in names if not self.closed(name)]
        if found:
            return found
        return [name for name in names if not self.is_shut(name)]

    def is_shut(self, name: str) -> bool:
        """Whether a broker drains or is suspected: it gets nothing, whoever else is there."""
        at = self.number[name]
        return bool(self.snapshot.brokers.is_draining[at] or self.inputs.is_suspected[at])

    def policy(self, space: str) -> IsolationPolicy | None:
        """The first isolation policy that matches."""
        for policy in self.inputs.policies.isolation:
            if any(re.fullmatch(pattern, space) for pattern in policy.namespaces):
                return policy
        return None

    def by_policies(self, row: int, available: Sequence[str]) -> list[str]:
        """As applyNamespacePolicies."""
        policy = self.policy(self.spaces[row])
        if policy is None:
            return [name for name in available if self._is_shared(name)]
        primaries = [name for name in available if _matches(policy.primary, name)]
        secondaries = [
            name for name in available if name not in primaries and _matches(policy.secondary, name)
        ]
        counted = [name for name in primaries if name in self.open_brokers()]
        if self.settings.filters.primary_usage_limits and policy.usage_threshold_percent != 100:
            limit = policy.usage_threshold_percent
            counted = [name for name in counted if self.usage(name) * 100.0 < limit]
        both = primaries + (secondaries if len(counted) < policy.min_limit else [])
        return [name for name in available if name in both]

    def _is_shared(self, name: str) -> bool:
        policies = self.inputs.policies.isolation
        return not any(_matches(one.primary, name) for one in policies)

    def admitted(self, row: int) -> list[str]:
        """Open brokers that the policies admit; flapping ones when there are no others."""
        names = list(self.snapshot.brokers.names)
        openly = set(self.open_brokers())
        by_policies = self.by_policies(row, names)
        found = [name for name in by_policies if name in openly]
        if found:
            return found
        return [name for name in by_policies if not self.is_shut(name)]

    def least_of_group(self, row: int, candidates: list[str]) -> list[str]:
        """As filterAntiAffinityGroupOwnedBrokers."""
        if not self._group(self.spaces[row]) or not candidates:
            return candidates
        counts = self.group_counts(row)
        if self.settings.filters.failure_domains:
            candidates = self._least_domains(candidates, counts)
        least = min(counts[name] for name in candidates)
        return [name for name in candidates if counts[name] == least]

    def group_counts(self, row: int) -> Counter[str]:
        """getAntiAffinityNamespaceOwnedBrokers; empty without a group."""
        group = self._group(self.spaces[row])
        held = {pair for pair in self.holders if group and self._group(pair[0]) == group}
        return Counter(broker for _, broker in held)

    def _least_domains(self, candidates: list[str], counts: Counter[str]) -> list[str]:
        if not any(self.snapshot.brokers.failure_domains):
            return candidates
        sums: Counter[str] = Counter()
        for name in candidates:
            sums[self._domain(name)] += counts[name]
        least = min(sums[self._domain(name)] for name in candidates)
        return [name for name in candidates if sums[self._domain(name)] == least]

    def _domain(self, name: str) -> str:
        return self.snapshot.brokers.failure_domains[self.number[name]] or "default"

    def _group(self, space: str) -> str:
        return self.inputs.policies.anti_affinity.get(space, "").strip().lower()

    def fewest_of_namespace(self, row: int, candidates: list[str]) -> list[str]:
        """As removeMostServicingBrokersForNamespace."""
        counts = Counter(broker for space, broker in self.holders if space == self.spaces[row])
        least = min((counts[name] for name in candidates), default=0)
        return [name for name in candidates if counts[name] == least]

    def of_class(self, candidates: list[str]) -> list[str]:
        """BrokerLoadManagerClassFilter."""
        wanted = self.settings.filters.load_manager_class
        classes = self.snapshot.brokers.load_manager_classes
        if not wanted:
            return candidates
        return [name for name in candidates if classes[self.number[name]] == wanted]

    def of_latest(self, candidates: list[str]) -> list[str]:
        """BrokerVersionFilter on versions "major.minor.patch" without anything after."""
        if not self.settings.filters.prefer_later_versions or not candidates:
            return candidates
        versions = {}
        for name in candidates:
            parts = self.snapshot.brokers.versions[self.number[name]].split(".")
            if len(parts) != 3 or not all(part.isdigit() for part in parts):
                raise FilterFailedError(name)
            versions[name] = tuple(int(part) for part in parts)
        latest = max(versions.values())
        return [name for name in candidates if versions[name] == latest]

    def modular(self, row: int, excluded: str, pin: str) -> tuple[list[str], list[str]]:
        """(candidates after all filters, candidates by policies)."""
        admitted = [name for name in self.admitted(row) if name != excluded]
        admitted = [pin] if pin in admitted else admitted
        limit = self.settings.filters.max_topics_per_broker
        left = [name for name in admitted if self.topics[name] <= limit] or admitted
        left = self.least_of_group(row, left)
        if self.settings.filters.distribute_evenly or self.spaces[row] == "pulsar/system":
            left = self.fewest_of_namespace(row, left)
        try:
            left = self.of_latest(self.of_class(left))
        except FilterFailedError:
            left = admitted
        return left or admitted, admitted

    def extensible(self, row: int, excluded: str, pin: str) -> tuple[list[str], list[str]]:
        """The same for the extensible manager, which has no second choice."""
        left = [name for name in self.open_brokers() if name != excluded]
        left = [pin] if pin in left and pin in self.admitted(row) else left
        left = self.of_class(left)
        limit = self.settings.filters.max_topics_per_broker
        left = [name for name in left if self.topics[name] < limit]
        with contextlib.suppress(FilterFailedError):
            left = self.of_latest(left)
        left = self.least_of_group(row, left)
        admitted = self.admitted(row)
        return [name for name in left if name in admitted], []


def _matches(patterns: Sequence[str], broker: str) -> bool:
    names = (broker, re.sub(r":\d+$", "", broker))
    return any(re.fullmatch(pattern, name) for pattern in patterns for name in names)
