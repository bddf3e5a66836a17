"""Rule for publishing a broker's load report.

The agent and the simulated fleet use it. Source: Pulsar 4.0.8
ModularLoadManagerImpl.needBrokerDataUpdate and BrokerLoadDataReporter.needBrokerDataUpdate.

Both compare with the last *published* data, so slow drift adds up, and both tests are strict. With
the default of 10 percent, a usage that went from 0.50 to 0.60 (10 points) stays unreported; 0.50 to
0.61 is reported.
"""

import math
from dataclasses import dataclass

from lbcore.config.signals import SignalsConfig
from lbcore.signals.usage import max_usage_reported, weighted_usage
from lbcore.wire.messages import TRAFFIC, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedLoad:
    """Load values that the rule compares.

    usage: 1.0 = 100 %; the weighted one (`weighted_usage`) for the modular manager, the unweighted
    one for the extensible. rate: msg/s in plus out. throughput: bytes/s in plus out.
    """

    usage: float
    rate: float
    throughput: float
    bundles: int


_RATES = tuple(TRAFFIC.index(name) for name in ("msgRateIn", "msgRateOut"))
_THROUGHPUTS = tuple(TRAFFIC.index(name) for name in ("msgThroughputIn", "msgThroughputOut"))


def reported_load(
    percent: Floats, traffic: Floats, bundles: int, config: SignalsConfig
) -> ReportedLoad:
    """A broker's load as the rule compares it.

    percent: float64[resources]; traffic: float64[4].
    """
    rows = percent.reshape(1, -1)
    by_weight = config.report_by_weight
    usage = weighted_usage(rows, config) if by_weight else max_usage_reported(rows)
    return ReportedLoad(
        usage=float(usage[0]),
        rate=float(traffic[list(_RATES)].sum()),
        throughput=float(traffic[list(_THROUGHPUTS)].sum()),
        bundles=bundles,
    )


def should_report(
    last: ReportedLoad, now: ReportedLoad, elapsed_ms: int, config: SignalsConfig
) -> bool:
    """True if `now` must be published, `elapsed_ms` after `last` was.

    For a first report, the elapsed time is infinite.
    """
    if elapsed_ms > config.report_max_interval_ms:
        return True
    change = max(
        100.0 * abs(last.usage - now.usage),
        _percent_changed(last.rate, now.rate),
        _percent_changed(last.throughput, now.throughput),
        _percent_changed(last.bundles, now.bundles),
    )
    return change > config.report_change_percent


def _percent_changed(old: float, new: float) -> float:
    if old == 0:
        return 0.0 if new == 0 else math.inf
    return 100.0 * abs((old - new) / old)
