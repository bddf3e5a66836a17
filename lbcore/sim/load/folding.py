"""Measured entities folded into bundles: from a trace of machines to brokers.

Decides the rule. An entity (a virtual machine, a container, a topic) lies on the hash ring where
murmur3_32 of its name says, and belongs to the bundle whose range has it, of N ranges of equal
width: as Pulsar places topics, whatever the order of the file, and as unevenly. A bundle carries
the sum of its entities. What a resource weighs is in `KINDS`; what the simulator's brokers don't
report by bundle weighs nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lbcore.model.bundles import NamespaceBundles, even_boundaries
from lbcore.model.hashing import HashFunction, hash_topics
from lbcore.model.resources import complete
from lbcore.sim.load.load import FULL_RATE_MSG_PER_S, Floats, Ints
from lbcore.sim.load.series import Grid

MESSAGE_BYTES = 1024.0
_PER_PERCENT = FULL_RATE_MSG_PER_S / 100.0
_ROUND = 1

_CPU = {"percent": 1.0, "share": 100.0, "cores": 100.0, "mhz": 0.04, "ghz": 40.0}
_BYTES = {
    "b/s": 1.0,
    "kb/s": 1e3,
    "mb/s": 1e6,
    "kib/s": 1024.0,
    "mib/s": 1048576.0,
    "bit/s": 0.125,
    "kbit/s": 125.0,
    "mbit/s": 125e3,
}
_MESSAGES = {"msg/s": 1.0}
UNITS: Mapping[str, Mapping[str, float]] = {
    "cpu": _CPU,
    "msg": _MESSAGES,
    "msg_in": _MESSAGES,
    "msg_out": _MESSAGES,
    "bytes": _BYTES,
    "bytes_in": _BYTES,
    "bytes_out": _BYTES,
    "memory": {"percent": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "kib": 1024.0, "mib": 1048576.0},
    "disk": _BYTES,
    "sessions": {"count": 1.0},
}
"""Kind of resource → its units → how many of the kind's own unit (percent of a core, msg/s,
bytes/s, bytes, count) one is. A core has 2.5 GHz. Where a replay says its mean, only proportions
matter."""

_WEIGHTLESS = ("memory", "disk", "sessions")
"""Kinds that no simulated broker reports by bundle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceColumn:
    """A column of a trace. unit: of UNITS[kind]."""

    column: str
    kind: str
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Bundles' load. rates: float64[intervals, bundles, 4] as `recording.COLUMNS`.

    topics: int64[bundles], entities of each. said: a sentence a resource, what was made of it.
    """

    start_ms: int
    step_ms: int
    bundles: tuple[str, ...]
    topics: Ints
    rates: Floats
    said: tuple[str, ...]


class FoldingError(ValueError):
    """Nothing in it weighs; the text says why."""


def fold(
    grid: Grid, entities: Sequence[str], resources: Sequence[TraceColumn], space: tuple[str, int]
) -> Folded:
    """Return a namespace's bundle loads. Raises FoldingError.

    space: its name, how many bundles. Messages are what was told as such; where nothing was, CPU: 1
    percent of a core = 400 msg/s, of which 100 % of a broker are 40,000; where neither was, a
    message a KiB. Half of what has no direction goes in, half out. Bytes that nobody told: 1 KiB a
    message.
    """
    edges = np.array(even_boundaries(space[1]), dtype=np.int64)
    places = hash_topics(HashFunction.MURMUR3_32, entities)
    numbers = np.minimum(np.searchsorted(edges, places, side="right") - 1, space[1] - 1)
    amounts = {
        kind: _sum_of(grid, resources, kind)
        for kind in UNITS
        if any(one.kind == kind for one in resources)
    }
    rates, said = _rates(amounts)
    if not rates.any():
        raise FoldingError("; ".join(said) or "it has no resource")
    folded = np.zeros((len(rates), space[1], rates.shape[2]))
    for entity, bundle in enumerate(numbers.tolist()):
        folded[:, bundle] += rates[:, entity]
    ranges = NamespaceBundles(space[0], tuple(edges.tolist())).ranges()
    return Folded(
        start_ms=grid.start_ms,
        step_ms=grid.step_ms,
        bundles=tuple(f"{space[0]}/{each.text}" for each in ranges),
        topics=np.bincount(numbers, minlength=space[1]).astype(np.int64),
        rates=np.round(folded, _ROUND),
        said=tuple(said),
    )


def dealt(folded: Folded, brokers: int, mean_percent: float) -> Iterator[dict[str, object]]:
    """Return a row a broker and interval, with bundles dealt in turn to b1..bN.

    As `load_history` has them. mean_percent: CPU of a broker at the mean of all rates; what it is
    at others is in proportion.
    """
    mean = float(folded.rates[:, :, :2].sum(axis=(1, 2)).mean()) / brokers
    for interval, rates in enumerate(folded.rates):
        for broker in range(brokers):
            own = rates[broker::brokers]
            cpu = round(float(own[:, :2].sum()) / mean * mean_percent, 3)
            yield {
                "broker": f"b{broker + 1}",
                "minute_ms": folded.start_ms + interval * folded.step_ms,
                "percent": list(complete([cpu])),
                "bundles": list(folded.bundles[broker::brokers]),
                "msg_rate_in": own[:, 0].tolist(),
                "msg_rate_out": own[:, 1].tolist(),
                "msg_throughput_in": own[:, 2].tolist(),
                "msg_throughput_out": own[:, 3].tolist(),
                "topics": np.maximum(folded.topics[broker::brokers], 1).astype(float).tolist(),
            }


def _sum_of(grid: Grid, resources: Sequence[TraceColumn], kind: str) -> Floats:
    """float64[intervals, entities] of one kind, in its own unit."""
    total = np.zeros(grid.values.shape[:2])
    for at, one in enumerate(resources):
        if one.kind == kind:
            total += grid.values[:, :, at] * UNITS[kind][one.unit]
    return total


def _rates(amounts: Mapping[str, Floats]) -> tuple[Floats, list[str]]:
    """float64[intervals, entities, 4] of all resources, and what was made of each."""
    said = [
        f"{kind} weighs nothing: it is 0 throughout" for kind in amounts if _is_idle(amounts, kind)
    ]
    left = {kind: found for kind, found in amounts.items() if not _is_idle(amounts, kind)}
    said += [
        f"{kind} weighs nothing: no broker of the simulator reports it by bundle"
        for kind in left
        if kind in _WEIGHTLESS
    ]
    nothing = np.zeros(next(iter(amounts.values())).shape) if amounts else np.zeros((0, 0))
    messages = _directed(left, "msg", nothing)
    volumes = _directed(left, "bytes", nothing)
    told = [kind for kind in ("msg", "msg_in", "msg_out") if kind in left]
    volume = [kind for kind in ("bytes", "bytes_in", "bytes_out") if kind in left]
    if told:
        said += [f"{kind} is the bundles' messages" for kind in told]
        if "cpu" in left:
            said.append("cpu weighs nothing: messages are told, and brokers' CPU follows them")
    elif "cpu" in left:
        half = left["cpu"] * (0.5 * _PER_PERCENT)
        messages = [half, half]
        said.append("cpu became messages: 1 percent of a core = 400 msg/s, half in, half out")
    elif volume:
        messages = [found / MESSAGE_BYTES for found in volumes]
        said.append("messages are not told: one a KiB")
    said += [f"{kind} is the bundles' bytes" for kind in volume]
    if not volume:
        volumes = [found * MESSAGE_BYTES for found in messages]
        if any(found.any() for found in messages):
            said.append("bytes are not told: 1 KiB a message")
    return np.stack((*messages, *volumes), axis=2), said


def _directed(left: Mapping[str, Floats], kind: str, nothing: Floats) -> list[Floats]:
    """In and out; half of what has no direction to each."""
    half = left.get(kind, nothing) * 0.5
    return [half + left.get(f"{kind}_in", nothing), half + left.get(f"{kind}_out", nothing)]


def _is_idle(amounts: Mapping[str, Floats], kind: str) -> bool:
    return not amounts[kind].any()
