"""Slow reference models of the shedders, the transfer shedder included."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lbcore.config.shedding import SheddingConfig, TransferConfig

INT_MAX = 2**31 - 1


@dataclass(slots=True)
class PlainBundle:
    """A bundle's short-term traffic. rate: msg/s, volume: bytes/s."""

    name: str
    rate: float
    volume: float
    can_move: bool = True


@dataclass(slots=True)
class PlainBroker:
    """A broker's own report. usage: weighted, 1.0 = 100 %. listed: all bundles it reports."""

    name: str
    usage: float
    rate: float
    volume: float
    listed: int
    bundles: list[PlainBundle]


@dataclass(slots=True)
class Memory:
    """What a strategy remembers."""

    ema: dict[str, float] = field(default_factory=dict)
    low: dict[str, int] = field(default_factory=dict)
    high: dict[str, int] = field(default_factory=dict)


Taken = dict[str, list[str]]


def sorted_bundles(broker: PlainBroker, *, by_rate: bool) -> list[tuple[str, float]]:
    """The bundles that may move, most traffic first, the earlier one first of equals."""
    found = [
        (one.name, one.rate if by_rate else one.volume) for one in broker.bundles if one.can_move
    ]
    return sorted(found, key=lambda one: -one[1])


def until_reached(broker: PlainBroker, minimum: float) -> list[str]:
    """Bundles until their volume reaches the minimum; one at least."""
    taken: list[str] = []
    total = 0.0
    for name, volume in sorted_bundles(broker, by_rate=False):
        if total < minimum or not taken:
            taken.append(name)
            total += volume
    return taken


def overload(brokers: list[PlainBroker], config: SheddingConfig) -> Taken:
    answer: Taken = {}
    threshold = config.overloaded_threshold_percent / 100.0
    for broker in brokers:
        if broker.usage < threshold or broker.listed <= 1:
            continue
        minimum = broker.volume * (broker.usage - threshold + 0.05)
        taken = until_reached(broker, minimum)
        if taken:
            answer[broker.name] = taken
    return answer


def mean_usage(brokers: list[PlainBroker], memory: Memory, weight: float) -> float:
    """Advance each broker's average by one step; the mean of them."""
    total = 0.0
    for broker in brokers:
        if broker.name in memory.ema:
            old = memory.ema[broker.name]
            memory.ema[broker.name] = old * weight + (1 - weight) * broker.usage
        else:
            memory.ema[broker.name] = broker.usage
        total += memory.ema[broker.name]
    return total / len(brokers) if brokers else 0.0


def threshold(
    brokers: list[PlainBroker], memory: Memory, config: SheddingConfig, weight: float
) -> Taken:
    answer: Taken = {}
    mean = mean_usage(brokers, memory, weight)
    if mean == 0:
        return answer
    limit, floor = config.threshold_percent / 100.0, config.min_throughput_mib_per_s * 1024 * 1024
    for broker in brokers:
        usage = memory.ema[broker.name]
        if usage < mean + limit:
            continue
        minimum = broker.volume * (usage - mean - limit + 0.05)
        if minimum < floor or broker.listed <= 1:
            continue
        taken = until_reached(broker, minimum)
        if taken:
            answer[broker.name] = taken
    if not answer and config.lower_boundary:
        return _lower_boundary(brokers, memory, config, weight)
    return answer


def _lower_boundary(
    brokers: list[PlainBroker], memory: Memory, config: SheddingConfig, weight: float
) -> Taken:
    mean = mean_usage(brokers, memory, weight)
    limit, floor = config.threshold_percent / 100.0, config.min_throughput_mib_per_s * 1024 * 1024
    chosen: PlainBroker | None = None
    highest = mean - limit
    is_low = False
    for broker in brokers:
        usage = memory.ema[broker.name]
        if usage > highest and broker.listed > 1:
            highest, chosen = usage, broker
        is_low = is_low or usage < mean - limit
    if chosen is None or not is_low:
        return {}
    minimum = chosen.volume * limit * 0.5
    if floor > minimum:
        return {}
    taken = until_reached(chosen, minimum)
    return {chosen.name: taken} if taken else {}


def java_int(value: float) -> int:
    """(int) of a double."""
    return int(max(-INT_MAX - 1, min(INT_MAX, value)))


def java_wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def uniform(brokers: list[PlainBroker], config: SheddingConfig) -> Taken:
    top = {True: -1.0, False: -1.0}
    bottom = {True: float(INT_MAX), False: float(INT_MAX)}
    chosen: dict[bool, PlainBroker | None] = {True: None, False: None}
    for broker in brokers:
        for by_rate, value in ((True, broker.rate), (False, broker.volume)):
            if value > top[by_rate]:
                top[by_rate], chosen[by_rate] = value, broker
            bottom[by_rate] = min(bottom[by_rate], value)
    for by_rate in (True, False):
        if -1e-6 <= bottom[by_rate] <= 1e-6:
            bottom[by_rate] = 1.0
    percent, ratio = config.rate_difference_percent, config.throughput_ratio
    if percent > 0 and (top[True] - bottom[True]) * 100 / bottom[True] > percent:
        by_rate, floor = True, config.min_unload_rate_msg_per_s
    elif ratio > 0 and top[False] / bottom[False] > ratio:
        by_rate, floor = False, config.min_unload_throughput_bytes_per_s
    else:
        return {}
    budget = java_int((top[by_rate] - bottom[by_rate]) * config.max_unload_fraction)
    broker = chosen[by_rate]
    if broker is None or broker.listed <= 1 or budget < floor:
        return {}
    taken = _while_it_fits(sorted_bundles(broker, by_rate=by_rate), budget, config)
    return {broker.name: taken} if taken else {}


def _while_it_fits(
    bundles: list[tuple[str, float]], budget: int, config: SheddingConfig
) -> list[str]:
    taken: list[str] = []
    for name, traffic in bundles:
        if config.max_unload_bundles != -1 and len(taken) >= config.max_unload_bundles:
            break
        if traffic <= java_wrap(budget + 1000):
            taken.append(name)
            budget = java_wrap(budget + java_int(-traffic))
    return taken


def avg(brokers: list[PlainBroker], memory: Memory, config: SheddingConfig) -> Taken:
    order = sorted(brokers, key=lambda one: 100.0 * one.usage)
    pairs: list[tuple[PlainBroker, PlainBroker]] = []
    left, right = 0, len(order) - 1
    while left <= right:
        cold, hot = order[left], order[right]
        difference = 100.0 * hot.usage - 100.0 * cold.usage
        if difference < config.avg_low_threshold:
            for one in (hot, cold):
                memory.low.pop(one.name, None)
                memory.high.pop(one.name, None)
        else:
            pairs.append((cold, hot))
            for one in (cold, hot):
                memory.low[one.name] = memory.low.get(one.name, 0) + 1
                if difference < config.avg_high_threshold:
                    memory.high.pop(one.name, None)
                else:
                    memory.high[one.name] = memory.high.get(one.name, 0) + 1
        left, right = left + 1, right - 1
    if not pairs:
        memory.low.clear()
        memory.high.clear()
    answer: Taken = {}
    for cold, hot in pairs:
        taken = _act(cold, hot, memory, config)
        if taken:
            answer.setdefault(hot.name, []).extend(taken)
    return answer


def _act(cold: PlainBroker, hot: PlainBroker, memory: Memory, config: SheddingConfig) -> list[str]:
    is_full = any(
        memory.high.get(one.name, 0) >= config.avg_high_hits
        or memory.low.get(one.name, 0) >= config.avg_low_hits
        for one in (cold, hot)
    )
    if not is_full:
        return []
    for one in (cold, hot):
        memory.low.pop(one.name, None)
        memory.high.pop(one.name, None)
    rate = (hot.rate - cold.rate) * config.max_unload_fraction
    volume = (hot.volume - cold.volume) * config.max_unload_fraction
    if rate > config.min_unload_rate_msg_per_s:
        budget, by_rate = rate, True
    elif volume > config.min_unload_throughput_bytes_per_s:
        budget, by_rate = volume, False
    else:
        return []
    taken: list[str] = []
    for name, traffic in sorted_bundles(hot, by_rate=by_rate):
        if 0 < traffic <= budget:
            taken.append(name)
            budget -= traffic
    return taken


@dataclass
class Record:
    """One broker's load record."""

    load: float
    throughput: float
    throughput_ema: float
    updated_at_ms: int


@dataclass
class Store:
    """Everything that the shedder can look at, by name. reports: (bundle, bytes/s), in order."""

    records: dict[str, Record]
    reports: dict[str, list[tuple[str, float]]]
    registered: set[str] | None
    disowned: set[str] = field(default_factory=set)
    excluded: set[str] = field(default_factory=set)
    recent: set[str] = field(default_factory=set)
    with_policy: set[str] = field(default_factory=set)
    admitted: dict[str, set[str] | None] = field(default_factory=dict)


@dataclass
class Shedder:
    """One shedder object through several cycles."""

    config: TransferConfig
    unloaded: dict[str, int] = field(default_factory=dict)
    hits: int = 0
    counter: dict[str, int] = field(default_factory=dict)
    average: float = 0.0
    deviation: float = 0.0

    def cycle(self, store: Store, now_ms: int) -> tuple[list[tuple[str, str, str, str]], float]:
        """(source, bundle, destination or "", reason) of each decision; the final deviation."""
        if store.registered is None:
            return self._ended("Failure/Unknown", 0.0)
        skipped, loads = self._survey(store, now_ms)
        if skipped:
            return self._ended(f"Skip/{skipped}", 0.0)
        total = squares = 0.0
        for load in loads:
            total += load
            squares += load * load
        run = _Run(store, self.config, len(loads), total / len(loads), squares)
        self.average, self.deviation = run.average, run.deviation
        self.hits = self.hits + 1 if run.reason() else 0
        if self.hits <= self.config.hit_count_threshold:
            return self._ended("Skip/HitCount", run.deviation)
        run.loop()
        if not run.decisions:
            reason = "NoLoadData" if run.empty else "NoBundles" if run.few else "HitCount"
            return self._ended(f"Skip/{reason}", run.deviation)
        self.hits = 0
        return run.decisions, run.deviation

    def _survey(self, store: Store, now_ms: int) -> tuple[str, list[float]]:
        missing, is_stale, loads = set(store.registered or ()), False, []
        for name, record in store.records.items():
            missing.discard(name)
            if now_ms - record.updated_at_ms > self.config.load_data_ttl_ms:
                is_stale = True
                continue
            if name in self.unloaded:
                if record.updated_at_ms - self.unloaded[name] < self.config.shedding_delay_ms:
                    return "CoolDown", []
                del self.unloaded[name]
            loads.append(record.load)
        if not loads:
            return "OutDatedData" if is_stale else "NoBrokers", []
        return "NoLoadData" if missing else "", loads

    def _ended(self, key: str, deviation: float) -> tuple[list[Any], float]:
        self.counter[key] = self.counter.get(key, 0) + 1
        return [], deviation


@dataclass
class _Pair:
    """Two brokers, bytes/s to move, and what is left of the destination's report."""

    source: str
    destination: str
    reason: str
    target: float
    returnable: Iterator[tuple[str, float]]


class _Run:
    """One cycle after its gate."""

    def __init__(
        self, store: Store, config: TransferConfig, count: int, average: float, squares: float
    ) -> None:
        self.store, self.config, self.count = store, config, count
        self.average, self.squares = average, squares
        variance = squares / count - average * average
        self.deviation = math.sqrt(variance) if variance >= 0 else math.nan
        self.order = sorted(store.records, key=lambda name: store.records[name].load)
        self.low, self.high, self.pairs = 0, len(self.order) - 1, 0
        self.empty = self.few = 0
        self.marked = self.gained = 0.0
        self.decisions: list[tuple[str, str, str, str]] = []

    def reason(self) -> str:
        target = self.config.target_std
        low = self.store.records[self.order[self.low]]
        high = self.store.records[self.order[self.high]]
        if self.deviation > target:
            return "Overloaded"
        share = min(0.5, max(0.0, target / 2.0))
        if low.load < self.average * share or low.throughput_ema < high.throughput_ema * share:
            return "Underloaded"
        threshold = self.config.overloaded_threshold_percent / 100.0
        if high.load > threshold and high.load > self.average + target:
            return "Overloaded"
        return ""

    def loop(self) -> None:
        while self.pairs < self.config.max_pairs_per_cycle and self.low < self.high:
            reason = self.reason()
            if not reason:
                return
            source, destination = self.order[self.high], self.order[self.low]
            self.high -= 1
            self.one_pair(source, destination, reason)

    def one_pair(self, source: str, destination: str, reason: str) -> None:
        report = self.store.reports.get(source) or []
        if not report:
            self.empty += 1
            return
        if len(report) == 1:
            self.few += 1
            return
        most, least = self.store.records[source], self.store.records[destination]
        target = _divide(most.throughput * ((most.load - least.load) / 2), most.load)
        returnable = iter(self.store.reports.get(destination) or [])
        self.marked, self.gained = 0.0, 0.0
        pair = _Pair(source, destination, reason, target, returnable)
        self.walk(pair, report)
        if not self.marked > 0:
            self.few += 1
            return
        freed = (self.marked - self.gained) * most.load
        self.predict(most.load, least.load, _divide(freed, most.throughput))

    def walk(self, pair: "_Pair", report: list[tuple[str, float]]) -> None:
        remaining = len(report)
        for bundle, throughput in report:
            if bundle in self.store.disowned | self.store.excluded | self.store.recent:
                continue
            if not self.can(bundle, pair.source, pair.destination):
                continue
            if remaining <= 1:
                return
            if throughput == 0:
                continue
            is_above = self.marked - self.gained + throughput > pair.target
            if is_above and not self.make_room(pair, throughput):
                return
            named = pair.destination if self.config.is_destination_planned else ""
            self.decide(pair.source, bundle, named, pair.reason)
            self.marked += throughput
            remaining -= 1

    def make_room(self, pair: "_Pair", throughput: float) -> bool:
        """Take bundles back so that one that overshoots may go."""
        if not self.config.is_destination_planned:
            return False
        most = self.store.records[pair.source].throughput
        mine = most - self.marked + self.gained - throughput
        least = self.store.records[pair.destination].throughput
        theirs = least + self.marked - self.gained + throughput
        back = self.swap(pair, most, mine, theirs)
        total = 0.0
        for returned, its_throughput in back:
            self.decide(pair.destination, returned, pair.source, pair.reason)
            total += its_throughput
        if self.config.count_swapped_back:
            self.gained += total
        return bool(back)

    def predict(self, most: float, least: float, moved: float) -> None:
        self.squares -= most * most + least * least
        left = math.nan if math.isnan(moved) else max(0.0, most - moved)
        self.squares += left * left + (least + moved) * (least + moved)
        self.deviation = math.sqrt(abs(self.squares / self.count - self.average * self.average))
        self.pairs += 1
        self.low += 1

    def swap(
        self, pair: "_Pair", limit: float, mine: float, theirs: float
    ) -> list[tuple[str, float]]:
        """Bundles to take back; none = it can't be balanced."""
        taken = []
        for bundle, throughput in pair.returnable:
            if throughput == 0 or not self.can(bundle, pair.destination, pair.source):
                continue
            if mine + throughput < limit and theirs - throughput < limit:
                taken.append((bundle, throughput))
                mine, theirs = mine + throughput, theirs - throughput
                if theirs <= mine < limit * 0.75:
                    return taken
        return []

    def can(self, bundle: str, source: str, destination: str) -> bool:
        if bundle in self.store.with_policy and not self.config.shed_bundles_with_policies:
            return False
        admitted = self.store.admitted.get(bundle, self.store.registered)
        if admitted is None or destination not in admitted & (self.store.registered or set()):
            return False
        left = (admitted & (self.store.registered or set())) - {source}
        return bool(left) and (destination in left or not self.config.is_destination_planned)

    def decide(self, source: str, bundle: str, destination: str, reason: str) -> None:
        decision = (source, bundle, destination, reason)
        if decision not in self.decisions:
            self.decisions.append(decision)


def _divide(left: float, right: float) -> float:
    if right == 0:
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left)
    return left / right
