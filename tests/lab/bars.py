"""What Ballast must do better in the lab than every shedder of Pulsar: met or missed.

Decides the three bars of each strategy of Ballast, by medians over the runs: time above 1.25 at
most half of the best of Pulsar's, no more moves than that one, and a new broker with traffic within
two intervals. Where something was not run or watched for too short, it is not judged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.lab.records import ADDED, Record, middle

_MET, _MISSED, _UNKNOWN = "met", "missed", "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """verdict: met, missed, or not judged."""

    contender: str
    claim: str
    verdict: str
    figures: str

    def __str__(self) -> str:
        """For people."""
        return f"{self.verdict}: {CONTENDERS[self.contender].title}: {self.claim}: {self.figures}"


def by_contender(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Contender → its runs in order, contenders in theirs."""
    found: dict[str, list[Record]] = {}
    for name in CONTENDERS:
        runs = sorted((one for one in records if one.contender == name), key=lambda one: one.run)
        if runs:
            found[name] = runs
    return found


def bars(records: Sequence[Record]) -> list[Bar]:
    """Three for each strategy of Ballast that was run."""
    runs = by_contender(records)
    theirs = {name: found for name, found in runs.items() if CONTENDERS[name].ballast is None}
    ours = [name for name in runs if CONTENDERS[name].ballast is not None]
    return [bar for name in ours for bar in _of(name, runs[name], theirs)]


def _of(name: str, runs: Sequence[Record], theirs: Mapping[str, Sequence[Record]]) -> list[Bar]:
    used = _new_broker(name, runs)
    if not theirs:
        return [_unjudged(name, "half the time above 1.25"), _unjudged(name, "no more moves"), used]
    best = min(theirs, key=lambda one: (_above(theirs[one]), _moves(theirs[one])))
    title = CONTENDERS[best].title
    above, their_above = _above(runs), _above(theirs[best])
    moves, their_moves = _moves(runs), _moves(theirs[best])
    return [
        Bar(
            contender=name,
            claim="time above 1.25 is at most half of the best of Pulsar's",
            verdict=_verdict(is_met=2 * above <= their_above),
            figures=f"{above / 60:.1f} min, {title} {their_above / 60:.1f} min",
        ),
        Bar(
            contender=name,
            claim="no more moves than the best of Pulsar's",
            verdict=_verdict(is_met=moves <= their_moves),
            figures=f"{moves:g}, {title} {their_moves:g}",
        ),
        used,
    ]


def _new_broker(name: str, runs: Sequence[Record]) -> Bar:
    claim, limit_s = "a new broker has traffic within two intervals", 2 * INTERVAL_S
    used_s = middle([one.new_broker_s for one in runs])
    phases = [one.phase(ADDED) for one in runs]
    watched_s = min((one.ended_s - one.began_s for one in phases if one), default=0.0)
    if used_s < 0 and watched_s < limit_s:
        verdict = _UNKNOWN
    else:
        verdict = _verdict(is_met=0 <= used_s <= limit_s)
    told = f"after {used_s:.0f} s" if used_s >= 0 else f"not within {watched_s:.0f} s"
    return Bar(contender=name, claim=claim, verdict=verdict, figures=told)


def _unjudged(name: str, claim: str) -> Bar:
    told = "no shedder of Pulsar was run"
    return Bar(contender=name, claim=claim, verdict=_UNKNOWN, figures=told)


def _verdict(*, is_met: bool) -> str:
    return _MET if is_met else _MISSED


def _above(runs: Sequence[Record]) -> float:
    return middle([one.above_s() for one in runs])


def _moves(runs: Sequence[Record]) -> float:
    return middle([float(len(one.own_moves)) for one in runs])


_PACKAGE = "org.apache.pulsar.broker.loadbalance"
_MODULAR = f"{_PACKAGE}.impl.ModularLoadManagerImpl"
_EXTENSIBLE = f"{_PACKAGE}.extensions.ExtensibleLoadManagerImpl"

INTERVAL_S = 60
PULSAR_SETTINGS: Mapping[str, str] = {
    "loadManagerClassName": _MODULAR,
    "loadBalancerEnabled": "true",
    "loadBalancerSheddingEnabled": "false",  # until traffic flows, evenly
    "loadBalancerAutoBundleSplitEnabled": "false",
    "loadBalancerSheddingIntervalMinutes": "1",
    "loadBalancerSheddingGracePeriodMinutes": "1",
    "loadBalancerHostUsageCheckIntervalMinutes": "1",
    "loadBalancerOverrideBrokerNicSpeedGbps": "0.02",
    "statsUpdateInitialDelayInSecs": "10",
    "statsUpdateFrequencyInSecs": "10",
    "minUnloadMessage": "1",
    "minUnloadMessageThroughput": "1",
    "loadBalancerBundleUnloadMinThroughputThreshold": "0",
    "maxUnloadPercentage": "0.5",
}
BALLAST_SETTINGS = (
    "splitting.enabled=false",
    "shedding.min_unload_rate_msg_per_s=1",
    "shedding.min_unload_throughput_bytes_per_s=1",
    "shedding.grace_period_ms=60000",
)
OVERLAYS = ("pulsar",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """pulsar: what its brokers have beside PULSAR_SETTINGS. ballast: its job's settings, or None.

    None: Pulsar sheds by itself, and nothing of Ballast runs.
    """

    title: str
    pulsar: Mapping[str, str]
    ballast: tuple[str, ...] | None = None

    @property
    def broker_settings(self) -> dict[str, str]:
        """Of the brokers' broker.conf."""
        return {**PULSAR_SETTINGS, **self.pulsar}

    @property
    def job_settings(self) -> tuple[str, ...]:
        """Of Ballast's job, each for --set."""
        return (*BALLAST_SETTINGS, *(self.ballast or ()))


def _sheds(name: str, **more: str) -> dict[str, str]:
    return {"loadBalancerLoadSheddingStrategy": f"{_PACKAGE}.{name}", **more}


CONTENDERS: Mapping[str, Contender] = {
    "threshold": Contender(title="ThresholdShedder", pulsar=_sheds("impl.ThresholdShedder")),
    "avg": Contender(
        title="AvgShedder",
        pulsar=_sheds(
            "impl.AvgShedder", loadBalancerLoadPlacementStrategy=f"{_PACKAGE}.impl.AvgShedder"
        ),
    ),
    "uniform": Contender(title="UniformLoadShedder", pulsar=_sheds("impl.UniformLoadShedder")),
    "transfer": Contender(
        title="TransferShedder (extensible)",
        pulsar=_sheds("extensions.scheduler.TransferShedder", loadManagerClassName=_EXTENSIBLE),
    ),
    "ballast-avg": Contender(title="Ballast, avg", pulsar={}, ballast=()),
    "ballast": Contender(
        title="Ballast, ballast",
        pulsar={},
        ballast=("shedding.strategy=ballast", "placement.strategy=ballast"),
    ),
}
