"""Slow reference models of filters and placement."""

import contextlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mmh3

from lbcore.plan.filter.policies import IsolationPolicy
from lbcore.plan.place.request import PlaceRequest, PlaceSettings
from lbcore.plan.snapshot import Floats, Snapshot


class FilterFailedError(Exception):
    """A filter throws."""


@dataclass
class Cluster:
    """A snapshot and what is known beside it, by name."""

    snapshot: Snapshot
    weighted: Floats
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
        return float(self.weighted[self.number[name]])

    def add(self, row: int, broker: str) -> None:
        self.topics[broker] += int(self.snapshot.bundles.topics[row])
        self.holders.append((self.spaces[row], broker))

    def closed(self, name: str) -> bool:
        """Whether a broker drains, flaps or is suspected."""
        at = self.number[name]
        return bool(self.snapshot.brokers.is_draining[at] or self.is_unsteady(at))

    def is_unsteady(self, at: int) -> bool:
        flapping = self.snapshot.brokers.is_flapping
        return bool((flapping is not None and flapping[at]) or self._is_suspected(at))

    def _is_suspected(self, at: int) -> bool:
        suspected = self.snapshot.brokers.is_suspected
        return bool(suspected is not None and suspected[at])

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
        return bool(self.snapshot.brokers.is_draining[at] or self._is_suspected(at))

    def policy(self, space: str) -> IsolationPolicy | None:
        for policy in self.snapshot.policies.isolation:
            if any(re.fullmatch(pattern, space) for pattern in policy.namespaces):
                return policy
        return None

    def by_policies(self, row: int, available: Sequence[str]) -> list[str]:
        policy = self.policy(self.spaces[row])
        if policy is None:
            return [name for name in available if self._is_shared(name)]
        primaries = [name for name in available if _matches(policy.primary, name)]
        secondaries = [
            name for name in available if name not in primaries and _matches(policy.secondary, name)
        ]
        counted = [name for name in primaries if name in self.open_brokers()]
        both = primaries + (secondaries if len(counted) < policy.min_limit else [])
        return [name for name in available if name in both]

    def _is_shared(self, name: str) -> bool:
        policies = self.snapshot.policies.isolation
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
        return self.snapshot.policies.anti_affinity.get(space, "").strip().lower()

    def fewest_of_namespace(self, row: int, candidates: list[str]) -> list[str]:
        counts = Counter(broker for space, broker in self.holders if space == self.spaces[row])
        least = min((counts[name] for name in candidates), default=0)
        return [name for name in candidates if counts[name] == least]

    def of_class(self, candidates: list[str]) -> list[str]:
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


WRAP = 2_147_483_647


@dataclass
class Memory:
    """What a strategy object remembers between calls."""

    smoothed: dict[str, float] = field(default_factory=dict)
    count: int = 0
    order: list[str] = field(default_factory=list)
    excluded_count: int = 0
    excluded_order: list[str] = field(default_factory=list)


@dataclass
class Placer:
    """One plan of the model."""

    request: PlaceRequest
    cluster: Cluster
    memory: Memory
    seed: int
    planned_rate: dict[str, float] = field(default_factory=dict)
    planned_usage: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.settings = self.cluster.settings
        self.placement = self.settings.placement
        self.names = self.cluster.snapshot.brokers.names
        self.is_extensible = self.settings.filters.pipeline == "extensible"
        self.strategy = self.placement.strategy
        is_modular_usage = self.strategy == "least_resource_usage_with_weight"
        if is_modular_usage and not self.is_extensible and self.placement.smooth_once_per_plan:
            fresh = self.cluster.snapshot.brokers.is_fresh
            for at, name in enumerate(self.names):
                if fresh[at] or name not in self.memory.smoothed:
                    self.smooth(name)

    def run(self) -> list[int]:
        """A broker index for each bundle of the request."""
        rows = self.request.bundles.tolist()
        order = list(range(len(rows)))
        if self.placement.heaviest_first:
            order.sort(key=lambda at: -self.rate_of(rows[at]))
        found = [-1] * len(rows)
        for at in order:
            chosen = self.place(at, rows[at])
            found[at] = -1 if chosen is None else self.names.index(chosen)
        return found

    def place(self, at: int, row: int) -> str | None:
        """The broker of the bundle at a position of the request."""
        excluded, pin = int(self.request.excluded[at]), int(self.request.pins[at])
        names = dict(enumerate(self.names))
        narrow = self.cluster.extensible if self.is_extensible else self.cluster.modular
        left, admitted = narrow(row, names.get(excluded, ""), names.get(pin, ""))
        is_excluded = self.cluster.spaces[row] in self.settings.excluded_namespaces
        if is_excluded and not self.is_extensible:
            chosen = self.take_turn(left, "excluded_")
        else:
            chosen = self.select(left, at, row)
        threshold = self.placement.overloaded_threshold_percent / 100.0
        if chosen and not self.is_extensible and self.cluster.usage(chosen) > threshold:
            chosen = self.select(admitted, at, row) or chosen
        if chosen and (self.placement.count_planned or not self.request.is_unload[at]):
            self.cluster.add(row, chosen)
            self.count(row, chosen)
        return chosen

    def count(self, row: int, broker: str) -> None:
        bundles, brokers = self.cluster.snapshot.bundles, self.cluster.snapshot.brokers
        rate = max(self.rate_of(row), self.floor_of(row))
        self.planned_rate[broker] = self.planned_rate.get(broker, 0.0) + rate
        if not self.placement.count_planned:
            return
        throughput = float(bundles.short[row, 2] + bundles.short[row, 3])
        own = throughput * self.unit_usage() / float(brokers.capacity[self.names.index(broker)])
        self.planned_usage[broker] = self.planned_usage.get(broker, 0.0) + own

    def floor_of(self, row: int) -> float:
        floor, bundles = self.placement.planned_rate_floor_msg_per_s, self.cluster.snapshot.bundles
        known = bundles.is_load_known
        if known is None or not floor:
            return floor
        rates = [float(a + b) for (a, b, *_), one in zip(bundles.short, known, strict=True) if one]
        mean = sum(rates) / len(rates) if rates else 0.0
        return min(floor, max(mean, floor / 1_000)) if known[row] else max(floor, mean)

    def unit_usage(self) -> float:
        brokers = self.cluster.snapshot.brokers
        traffic, capacity = brokers.traffic, brokers.capacity
        total = usage = 0.0
        for at, name in enumerate(self.names):
            total += float(traffic[at, 2] + traffic[at, 3])
            usage += self.cluster.usage(name) * float(capacity[at])
        return usage / total if total > 0 else 0.0

    def select(self, candidates: list[str], at: int, row: int) -> str | None:
        if self.strategy == "round_robin":
            return self.take_turn(candidates, "")
        if self.strategy == "least_resource_usage_with_weight":
            if not self.is_extensible and not self.placement.smooth_once_per_plan:
                for name in candidates:
                    self.smooth(name)
            return self.draw(self.below_average(candidates), row)
        planned = int(self.request.planned[at])
        if self.strategy == "avg":
            if planned >= 0 and self.names[planned] in candidates:
                return self.names[planned]
            if not self.placement.count_planned:
                return self.draw(candidates, row)
        return self.draw(self.least_rate(candidates), row)

    def draw(self, best: list[str], row: int) -> str | None:
        if not best:
            return None
        bundles = self.cluster.snapshot.bundles
        key = f"{bundles.names[row]}@{bundles.versions[row]}"
        return best[mmh3.hash(key, self.seed, signed=False) % len(best)]

    def least_rate(self, candidates: list[str]) -> list[str]:
        threshold = self.placement.overloaded_threshold_percent / 100.0
        scores = {name: self.rate(name) for name in candidates}
        cool = [
            name
            for name in candidates
            if not self.cluster.usage(name) > threshold
            and not (self.placement.count_planned and self.is_full(name))
        ]
        if not cool and not self.placement.count_planned:
            return candidates
        among = cool or candidates
        least = min((scores[name] for name in among), default=0.0)
        return [name for name in among if scores[name] == least]

    def rate_of(self, row: int) -> float:
        """A bundle's long-term message rate; where plans are counted, at least the present one."""
        bundles = self.cluster.snapshot.bundles
        long = float(bundles.long[row, 0] + bundles.long[row, 1])
        if not self.placement.count_planned:
            return long
        rate = max(long, float(bundles.short[row, 0] + bundles.short[row, 1]))
        owner = int(bundles.owner[row])
        total = self.own_rate(owner) if owner >= 0 else 0.0
        return rate * (max(total, self.reported_rate(owner)) / total) if total > 0.0 else rate

    def own_rate(self, broker: int) -> float:
        """What a broker's bundles carry, by the higher of their rates."""
        bundles = self.cluster.snapshot.bundles
        found = 0.0
        for row, owner in enumerate(bundles.owner.tolist()):
            if owner == broker:
                long = float(bundles.long[row, 0] + bundles.long[row, 1])
                found += max(long, float(bundles.short[row, 0] + bundles.short[row, 1]))
        return found

    def reported_rate(self, broker: int) -> float:
        traffic = self.cluster.snapshot.brokers.traffic
        return float(traffic[broker, 0] + traffic[broker, 1])

    def rate(self, name: str) -> float:
        if self.placement.count_planned:
            number = self.names.index(name)
            own = max(self.own_rate(number), self.reported_rate(number))
            return self.planned_rate.get(name, 0.0) + (own + self.awaited_rate(number))
        return self.planned_rate.get(name, 0.0) + self.long_term_rate(name)

    def is_full(self, name: str) -> bool:
        """Whether what it has been promised would make it overloaded."""
        capacity = self.cluster.snapshot.brokers.capacity.tolist()
        numbers = range(len(self.names))
        total = sum(max(self.own_rate(at), self.reported_rate(at)) for at in numbers)
        used = sum(self.cluster.usage(self.names[at]) * capacity[at] for at in numbers)
        if total <= 0.0 or used <= 0.0:
            return False
        number = self.names.index(name)
        threshold = self.placement.overloaded_threshold_percent / 100.0
        room = (threshold - self.cluster.usage(name)) * capacity[number] * (total / used)
        room -= self.awaited_rate(number)
        return room < 0.0 or self.planned_rate.get(name, 0.0) > room

    def awaited_rate(self, broker: int) -> float:
        """What a broker's bundles count for that nobody could report yet."""
        bundles = self.cluster.snapshot.bundles
        if bundles.is_awaited is None:
            return 0.0
        awaited = zip(bundles.is_awaited.tolist(), bundles.owner.tolist(), strict=True)
        rows = [row for row, (is_one, owner) in enumerate(awaited) if is_one and owner == broker]
        return len(rows) * self.floor_of(rows[0]) if rows else 0.0

    def long_term_rate(self, name: str) -> float:
        """Pulsar's: in and out summed apart."""
        bundles, number = self.cluster.snapshot.bundles, self.names.index(name)
        rate_in = rate_out = 0.0
        for row, owner in enumerate(bundles.owner.tolist()):
            if owner == number:
                rate_in += float(bundles.long[row, 0])
                rate_out += float(bundles.long[row, 1])
        return rate_in + rate_out

    def smooth(self, name: str) -> None:
        brokers, at = self.cluster.snapshot.brokers, self.names.index(name)
        history: float | None = self.memory.smoothed.get(name)
        if brokers.bundle_count[at] == 0 or brokers.traffic[at, 0] + brokers.traffic[at, 1] == 0:
            history = None
        usage, weight = self.cluster.usage(name), self.settings.history_weight
        self.memory.smoothed[name] = (
            usage if history is None else history * weight + (1 - weight) * usage
        )

    def below_average(self, candidates: list[str]) -> list[str]:
        usage = {name: self.known_usage(name) for name in candidates}
        total, count = 0.0, 0
        for name in candidates:
            if not math.isnan(usage[name]):
                total, count = total + usage[name], count + 1
        difference = self.placement.usage_difference_percent / 100.0
        best = [name for name in candidates if count and usage[name] + difference <= total / count]
        best = best or candidates
        if not self.placement.count_planned or len(best) < len(candidates):
            return best
        known = [usage[name] for name in candidates if not math.isnan(usage[name])]
        return [name for name in candidates if known and usage[name] == min(known)] or candidates

    def known_usage(self, name: str) -> float:
        """Smoothed plus planned usage, NaN = unknown."""
        brokers, at = self.cluster.snapshot.brokers, self.names.index(name)
        if self.is_extensible:
            reported = float(brokers.weighted_max_ema[at])
            smoothed = reported if brokers.updated_at_ms[at] > 0 else math.nan
        else:
            smoothed = self.memory.smoothed.get(name, math.nan)
        return smoothed + self.planned_usage.get(name, 0.0)

    def take_turn(self, candidates: list[str], which: str) -> str | None:
        if not candidates:
            return None
        count = getattr(self.memory, f"{which}count")
        order: list[str] = getattr(self.memory, f"{which}order")
        at = count % len(candidates)
        if len(order) != len(candidates) or order[at] not in candidates:
            order = candidates
        setattr(self.memory, f"{which}count", 0 if count == WRAP else count + 1)
        setattr(self.memory, f"{which}order", list(order))
        return order[at]


def remembered(memory: Memory) -> dict[str, Any]:
    """The memory in the form of `PlacementState.to_json`."""
    return {
        "smoothed_usage": dict(sorted(memory.smoothed.items())),
        "round_robin": {"count": memory.count, "order": memory.order},
        "excluded_round_robin": {
            "count": memory.excluded_count,
            "order": memory.excluded_order,
        },
    }
