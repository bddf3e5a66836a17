"""How a BrokerScorer is made from the configuration: its parser, percentages and smoothing.

Decides nothing. Source: Pulsar 4.0.8 BrokerLoadData.update, through `signals.broker_score`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from lbcore.config.tree import Config
from lbcore.machines.scorer import BrokerScorer, Parse
from lbcore.machines.tracks import RawMessage, Smoothed
from lbcore.signals.broker_score import BrokerReports, BrokerScores, cleared_scores, observe_reports
from lbcore.signals.usage import resource_percent
from lbcore.wire.messages import BrokerLoad, Message, Rejected, Topic
from lbcore.wire.parse import parse
from lbcore.wire.rules import Rules


def make_scorer(
    config: Config, *, cluster: str, group: int, loads: Callable[[Any], Any]
) -> BrokerScorer:
    """The scorer of one (cluster, group). loads: decodes JSON text, ValueError when it can't."""
    prefix = config.pipeline.topic_prefix
    clusters = frozenset(config.pipeline.clusters)
    rules = Rules(clusters=clusters, limits=config.wire, loads=loads)

    def parse_raw(raw: RawMessage) -> Message | Rejected:
        topic = Topic(raw.position.topic[len(prefix) :])
        return parse(topic, raw.key, raw.value, rules)

    return make_scorer_of(config, cluster=cluster, group=group, parse_raw=parse_raw)


def make_scorer_of(config: Config, *, cluster: str, group: int, parse_raw: Parse) -> BrokerScorer:
    """As `make_scorer`, for messages that are parsed otherwise than from the wire's JSON."""
    signals = config.for_cluster(cluster).signals

    def smooth(last: Smoothed | None, load: BrokerLoad, at_ms: int) -> Smoothed:
        reports = BrokerReports(
            rows=np.zeros(1, dtype=np.int64),
            percent=_percent(load)[np.newaxis],
            traffic=load.traffic[np.newaxis],
            at_ms=np.array([at_ms], dtype=np.int64),
        )
        scores = observe_reports(_scores(last), reports, signals)
        return Smoothed(
            weighted_max_ema=float(scores.weighted_max_ema[0]),
            throughput_ema=float(scores.throughput_ema[0]),
            updated_ms=at_ms,
        )

    return BrokerScorer(group=group, parse=parse_raw, percent=_percent, smooth=smooth)


def _percent(load: BrokerLoad) -> "np.ndarray[Any, np.dtype[np.float64]]":
    return resource_percent(load.usage, load.limit)


def _scores(last: Smoothed | None) -> BrokerScores:
    blank = cleared_scores(1)
    if last is None:
        return blank
    return BrokerScores(
        max_usage=blank.max_usage,
        weighted_max_ema=np.array([last.weighted_max_ema]),
        throughput_ema=np.array([last.throughput_ema]),
        updated_at_ms=np.array([last.updated_ms], dtype=np.int64),
    )
