"""The modular shedders once more, slow and plain: one broker, one bundle at a time.

The vectorised ones must agree with these on random clusters. Written from the rules, not from the
code under test.
"""

from dataclasses import dataclass, field

from lbcore.config.shedding import SheddingConfig

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
    """OverloadShedder."""
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
    """ThresholdShedder with the lower boundary."""
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
    """The sum of two ints."""
    return (value + 2**31) % 2**32 - 2**31


def uniform(brokers: list[PlainBroker], config: SheddingConfig) -> Taken:
    """UniformLoadShedder."""
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
    """AvgShedder, the shedding half."""
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
