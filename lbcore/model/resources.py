"""Resources of a broker, in the order of reports, arrays and tables.

A new one is a record here, at the end (else older rows are read wrongly), and `make draw`: fields
of the wire, columns of views, metrics, texts and weights follow. Arrays of percentages have one
column each. Source: Pulsar 4.0.8's LocalBrokerData and BrokerLoadData.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource, told as usage and limit and judged in percent of the limit.

    name: of columns and metrics of ours. wire: of the report's field. metric: as Pulsar's metrics
    have it. label: in sentences. weight: the field of `signals` with its factor, "" = it weighs 1.
    is_local: it counts for the maximum of Pulsar's LocalBrokerData.
    """

    name: str
    wire: str
    metric: str
    label: str
    weight: str = ""
    is_local: bool = True


RESOURCES: tuple[Resource, ...] = (
    Resource(name="cpu", wire="cpu", metric="cpu", label="the processor", weight="cpu_weight"),
    Resource(
        name="memory",
        wire="memory",
        metric="memory",
        label="the heap",
        weight="memory_weight",
        is_local=False,
    ),
    Resource(
        name="direct_memory",
        wire="directMemory",
        metric="directMemory",
        label="direct memory",
        weight="direct_memory_weight",
    ),
    Resource(
        name="bandwidth_in",
        wire="bandwidthIn",
        metric="bandwidth_in",
        label="the incoming bandwidth",
        weight="bandwidth_in_weight",
    ),
    Resource(
        name="bandwidth_out",
        wire="bandwidthOut",
        metric="bandwidth_out",
        label="the outgoing bandwidth",
        weight="bandwidth_out_weight",
    ),
)

WIRE_NAMES = tuple(one.wire for one in RESOURCES)
COUNT = len(RESOURCES)
LEAST_COUNT = 5
"""Number of resources that agents of the first version report; the others count as 0."""
LOCAL = tuple(at for at, one in enumerate(RESOURCES) if one.is_local)
"""Columns of those that count for the local maximum."""


def position(name: str) -> int:
    """The column of a resource by its own name; raises ValueError for another one."""
    return [one.name for one in RESOURCES].index(name)


def complete(percent: Sequence[float]) -> tuple[float, ...]:
    """Return the row of percentages with 0 for resources added since it was written."""
    return (*percent, *(0.0,) * (COUNT - len(percent)))


def local_max(percent: Sequence[float]) -> float:
    """The highest percentage of those that count for the local maximum; 0 of none."""
    return max((float(value) for at, value in enumerate(percent) if at in LOCAL), default=0.0)
