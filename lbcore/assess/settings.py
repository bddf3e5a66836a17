"""Harmful settings of Pulsar: key, effect, and a better value.

Read from brokers' configurations as they run. Source: Pulsar 4.0.8, ServiceConfiguration and the
classes that read the keys; the pathologies are those of docs/strategies.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lbcore.bridge.answers import Settings

_TRUE, _FALSE = "true", "false"
_FEW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    """A setting that hurts. value: as it is; better: what to set, in Pulsar's words."""

    key: str
    value: str
    reason: str
    better: str
    brokers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    key: str
    hurts: Callable[[str], bool]
    reason: str
    better: str


def _is(text: str) -> Callable[[str], bool]:
    return lambda value: value.lower() == text


def _ends(text: str) -> Callable[[str], bool]:
    return lambda value: value.endswith(text)


def _above(limit: float) -> Callable[[str], bool]:
    return lambda value: _number(value) > limit


_RULES = (
    _Rule(
        key="loadBalancerEnabled",
        hurts=_is(_FALSE),
        reason="no broker reports its load, so nothing is ever placed or shed by load",
        better="true",
    ),
    _Rule(
        key="loadBalancerSheddingEnabled",
        hurts=_is(_FALSE),
        reason="an overloaded broker keeps its bundles until somebody unloads them",
        better="true, or let Ballast act (then it must stay false)",
    ),
    _Rule(
        key="loadBalancerAutoBundleSplitEnabled",
        hurts=_is(_FALSE),
        reason="a bundle that grows hot stays one piece, and one piece can't be shared by brokers",
        better="true",
    ),
    _Rule(
        key="loadBalancerLoadSheddingStrategy",
        hurts=_ends(".OverloadShedder"),
        reason="it looks at single brokers above a fixed limit only: below it nothing is evened out"
        ", and when all are above it bundles go round in circles",
        better="org.apache.pulsar.broker.loadbalance.impl.AvgShedder, with AvgShedder as placement",
    ),
    _Rule(
        key="loadBalancerLoadSheddingStrategy",
        hurts=_ends(".ThresholdShedder"),
        reason="it gives away from brokers above the mean, but never fills one that is far below "
        "it, and averages so long that it acts on load that is gone",
        better="org.apache.pulsar.broker.loadbalance.impl.AvgShedder, with AvgShedder as placement",
    ),
    _Rule(
        key="loadBalancerLoadSheddingStrategy",
        hurts=_ends(".UniformLoadShedder"),
        reason="it compares message rates only: brokers of unlike size or unlike messages are taken"
        " for equal",
        better="org.apache.pulsar.broker.loadbalance.impl.AvgShedder, with AvgShedder as placement",
    ),
    _Rule(
        key="loadBalancerHistoryResourcePercentage",
        hurts=_above(0.8),
        reason="nine tenths of each average are the past: the shedder goes on unloading a broker "
        "that has long cooled down",
        better="0.5",
    ),
    _Rule(
        key="loadBalancerReportUpdateMaxIntervalMinutes",
        hurts=_above(5),
        reason="a broker whose load changes little is judged by figures that are so old",
        better="1",
    ),
    _Rule(
        key="loadBalancerMemoryResourceWeight",
        hurts=_above(0),
        reason="a JVM's heap fills and empties with its garbage collector, not with load",
        better="0",
    ),
    _Rule(
        key="loadBalancerCPUResourceWeight",
        hurts=lambda value: _number(value) == 0,
        reason="a broker whose processors are busy is not taken for loaded",
        better="1.0",
    ),
    _Rule(
        key="loadBalancerSheddingGracePeriodMinutes",
        hurts=_above(60),
        reason="a bundle that was moved once stays for so long, hot or not",
        better="30",
    ),
    _Rule(
        key="loadBalancerDistributeBundlesEvenlyEnabled",
        hurts=_is(_TRUE),
        reason="brokers with more bundles than the mean get none, however little load those have",
        better="false, once the bundles' loads differ much",
    ),
    _Rule(
        key="defaultNumberOfNamespaceBundles",
        hurts=lambda value: 0 < _number(value) < _FEW,
        reason="a namespace begins with so few pieces that few brokers can share it",
        better="4 or more; at least twice the brokers that shall share a namespace",
    ),
)
_ABOUT_BALANCING = ("loadBalance", "loadManager", "defaultNumberOfNamespaceBundles")


def harms_of(settings: Mapping[str, Settings | None]) -> list[Harm]:
    """Return the harmful settings over all brokers. O(brokers × rules).

    settings: by broker, None = it did not report them. Covers dynamic and static settings alike.
    One that brokers have differently is a harm of its own.
    """
    reported = {name: found for name, found in sorted(settings.items()) if found is not None}
    found = []
    for rule in _RULES:
        values = {name: one[rule.key] for name, one in reported.items() if rule.key in one}
        brokers = tuple(name for name, value in values.items() if rule.hurts(value))
        is_shedders = rule.key == "loadBalancerLoadSheddingStrategy"
        if brokers and not (is_shedders and not is_shedding(reported)):
            found.append(
                Harm(
                    key=rule.key,
                    value=values[brokers[0]],
                    reason=rule.reason,
                    better=rule.better,
                    brokers=brokers,
                )
            )
    return found + _differing(reported)


def is_shedding(settings: Mapping[str, Settings | None]) -> bool | None:
    """True if any broker sheds by itself; None if none reported its settings."""
    reported = [found for found in settings.values() if found is not None]
    if not reported:
        return None
    keys = ("loadBalancerEnabled", "loadBalancerSheddingEnabled")
    return any(all(found.get(key, _TRUE) == _TRUE for key in keys) for found in reported)


def _differing(reported: Mapping[str, Settings]) -> list[Harm]:
    keys = sorted(
        {key for found in reported.values() for key in found if key.startswith(_ABOUT_BALANCING)}
    )
    values = {key: sorted({one.get(key, "not set") for one in reported.values()}) for key in keys}
    return [
        Harm(
            key=key,
            value=" / ".join(found),
            reason="brokers differ in it, so the rules change with the broker that leads",
            better="the same value on every broker",
            brokers=tuple(reported),
        )
        for key, found in values.items()
        if len(found) > 1
    ]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
