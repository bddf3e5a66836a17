"""Usage that a simulated broker measures, given the load of its bundles.

Decides a broker's resource usage: a linear function of traffic plus a little seeded noise, so that
usage follows load. `load` provides the load of the bundles.
"""

from dataclasses import dataclass

import numpy as np

from lbcore.model.resources import COUNT, complete
from lbcore.sim.load.load import FULL_RATE_MSG_PER_S, Floats
from lbcore.sim.load.noise import uniform


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUsage:
    """Usage that a broker would measure of itself.

    Each array has one number per resource; a limit of -1 = not known.
    """

    usage: Floats
    limit: Floats


_CPU_IDLE_PERCENT = 3.0
_NIC_KBIT_PER_S = 1_000_000.0
_HEAP_MB, _HEAP_IDLE_MB, _HEAP_MB_PER_TOPIC = 4096.0, 256.0, 0.05
_DIRECT_MB, _DIRECT_IDLE_MB = 8192.0, 128.0


def usage_of(stats: Floats, capacity: float, noise: float) -> BrokerUsage:
    """A broker's usage for the sum of its bundles' rows (float64[8], BUNDLE_COLUMNS).

    cpu = 3 % + 97 % × (msg/s in + out) / (40,000 × capacity) + noise, 100 % at most; bandwidth in
    kbit/s of 1 Gbit × capacity; heap 256 MB + 0.05 a topic of 4,096 × capacity; direct memory
    128 MB + two seconds of input. Example: 20,000 msg/s, capacity 1, noise 0: cpu 51.5.
    noise: percentage points on cpu, see `cpu_noise`.
    """
    rate = float(stats[0] + stats[1])
    cpu = _CPU_IDLE_PERCENT + (100.0 - _CPU_IDLE_PERCENT) * rate / (FULL_RATE_MSG_PER_S * capacity)
    usage = (
        min(max(0.0, cpu + noise), 100.0),
        _HEAP_IDLE_MB + _HEAP_MB_PER_TOPIC * float(stats[4]),
        _DIRECT_IDLE_MB + float(stats[2]) * 2.0 / 1e6,
        float(stats[2]) * 8.0 / 1000.0,
        float(stats[3]) * 8.0 / 1000.0,
    )
    nic = _NIC_KBIT_PER_S * capacity
    limit = (100.0, _HEAP_MB * capacity, _DIRECT_MB * capacity, nic, nic)
    unknown = (-1.0,) * (COUNT - len(limit))
    return BrokerUsage(usage=np.array(complete(usage)), limit=np.array((*limit, *unknown)))


def cpu_noise(seed: int, broker: str, step: int, amplitude: float = 0.5) -> float:
    """Percentage points in [-amplitude, amplitude) for one broker at one time step."""
    return (2.0 * uniform(seed, f"cpu {broker} {step}") - 1.0) * amplitude
