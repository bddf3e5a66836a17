"""The extensible manager's load store, as the calls of a case change it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lbcore.config.signals import SignalsConfig
from lbcore.signals.usage import BrokerScores, observe_reports, resource_percent
from tests.conformance.runner import Case
from tests.conformance.view import TRAFFIC, numbers, resources

NOW_MS = 1_800_000_000_000
FULL = 100
CLEARED = BrokerScores(
    weighted_max_ema=np.ones(1),
    throughput_ema=np.zeros(1),
    updated_at_ms=np.zeros(1, dtype=np.int64),
)
"""Scores of one broker that never reported: 100 % load, no throughput."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRecord:
    """One broker's record. scores: one row. throughput: bytes/s in plus out, the newest."""

    scores: BrokerScores
    throughput: float = 0.0

    @property
    def load(self) -> float:
        """Its weightedMaxEMA."""
        return float(self.scores.weighted_max_ema[0])

    @property
    def throughput_ema(self) -> float:
        """Its msgThroughputEMA."""
        return float(self.scores.throughput_ema[0])

    @property
    def updated_at_ms(self) -> int:
        """When it was last updated, 0 = never."""
        return int(self.scores.updated_at_ms[0])


@dataclass(slots=True, kw_only=True)
class LoadStore:
    """Records by broker, in the order of their first appearance."""

    signals: SignalsConfig
    records: dict[str, LoadRecord] = field(default_factory=dict)

    def apply(self, call: Case) -> None:
        """`brokers` replaces everything, `updateBrokers` merges, `removeBrokers` takes away."""
        if "brokers" in call:
            self.records = {}
        for broker in (*(call.get("brokers") or ()), *(call.get("updateBrokers") or ())):
            self._update(broker)
        for name in call.get("removeBrokers", ()):
            self.records.pop(name, None)

    def _update(self, broker: Mapping[str, Any]) -> None:
        old = self.records.get(broker["name"])
        is_fresh = old is None or broker.get("fresh", False)
        scores = CLEARED if is_fresh or old is None else old.scores
        given = broker
        if "cpuPercent" in broker:
            given = {"cpu": {"usage": broker["cpuPercent"], "limit": FULL}}
        percent = resource_percent(*resources(given))[np.newaxis, :]
        traffic, at_ms = numbers(broker, TRAFFIC)[np.newaxis, :], np.array([NOW_MS])
        scores = observe_reports(scores, percent, traffic, at_ms, self.signals)
        scores = _overridden(scores, broker)
        _, _, throughput_in, throughput_out = traffic[0].tolist()
        self.records[broker["name"]] = LoadRecord(
            scores=scores, throughput=throughput_in + throughput_out
        )


def _overridden(scores: BrokerScores, broker: Mapping[str, Any]) -> BrokerScores:
    """What the case sets by hand after the update."""
    if "weightedMaxEMA" in broker:
        scores = replace(scores, weighted_max_ema=np.array([float(broker["weightedMaxEMA"])]))
    if "msgThroughputEMA" in broker:
        scores = replace(scores, throughput_ema=np.array([float(broker["msgThroughputEMA"])]))
    if "updatedAt" in broker:
        return replace(scores, updated_at_ms=np.array([int(broker["updatedAt"])]))
    if "updatedAgoMs" in broker:
        return replace(scores, updated_at_ms=np.array([NOW_MS - int(broker["updatedAgoMs"])]))
    return scores
