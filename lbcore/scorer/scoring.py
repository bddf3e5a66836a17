"""Construction of a BrokerScorer from the configuration: parser and smoothing.

Source: Pulsar 4.0.8 BrokerLoadData.update, through `signals.broker_score`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lbcore.config.tree import Config
from lbcore.scorer.scorer import BrokerScorer, Parse
from lbcore.scorer.tracks import RawMessage, Smoothed
from lbcore.signals.averages import with_rows
from lbcore.signals.broker_score import BrokerReports, BrokerScores, cleared_scores, observe_reports
from lbcore.signals.usage import resource_percent
from lbcore.wire.messages import BrokerLoad, Floats, Message, Rejected, Topic
from lbcore.wire.parse import parse_rows, refused_by_source
from lbcore.wire.rules import ParseRules


def make_scorer(
    config: Config, *, cluster: str, group: int, loads: Callable[[Any], Any]
) -> BrokerScorer:
    """Return the scorer of one (cluster, group).

    loads: decodes JSON text, ValueError when it can't.
    """
    parse_raw = parser_of(config, loads)
    return make_scorer_of(config, cluster=cluster, group=group, parse_raw=parse_raw)


def parser_of(config: Config, loads: Callable[[Any], Any]) -> Parse:
    """Return the parser of messages that are the wire's JSON.

    loads: as for `make_scorer`.
    """
    prefix = config.pipeline.topic_prefix
    clusters = frozenset(config.pipeline.clusters)
    rules = ParseRules(clusters=clusters, limits=config.wire, loads=loads)

    def parse_raw(raw: RawMessage) -> Message | Rejected:
        if raw.refusal:
            return refused_by_source(raw.refusal, raw.key, raw.value, rules)
        topic = Topic(raw.position.topic[len(prefix) :])
        return parse_rows(topic, raw.key, raw.value, rules)

    return parse_raw


def make_scorer_of(config: Config, *, cluster: str, group: int, parse_raw: Parse) -> BrokerScorer:
    """Return a scorer as `make_scorer`, for messages not parsed from the wire's JSON."""
    signals = config.for_cluster(cluster).signals

    def smooth(
        lasts: Sequence[Smoothed | None], loads: Sequence[BrokerLoad], at_ms: Sequence[int]
    ) -> list[tuple[Smoothed, Floats]]:
        percent = resource_percent(
            np.stack([load.usage for load in loads]), np.stack([load.limit for load in loads])
        )
        reports = BrokerReports(
            rows=np.arange(len(loads), dtype=np.int64),
            percent=percent,
            traffic=np.stack([load.traffic for load in loads]),
            at_ms=np.array(at_ms, dtype=np.int64),
        )
        scores = observe_reports(_scores(lasts), reports, signals)
        emas = zip(scores.weighted_max_ema.tolist(), scores.throughput_ema.tolist(), strict=True)
        return [
            (Smoothed(weighted_max_ema=usage, throughput_ema=throughput, updated_ms=at), row)
            for (usage, throughput), at, row in zip(emas, at_ms, percent, strict=True)
        ]

    return BrokerScorer(group=group, parse=parse_raw, smooth=smooth)


def _scores(lasts: Sequence[Smoothed | None]) -> BrokerScores:
    blank = cleared_scores(len(lasts))
    known = [(row, last) for row, last in enumerate(lasts) if last is not None]
    if not known:
        return blank
    rows = np.array([row for row, _ in known], dtype=np.int64)
    emas = np.array([(last.weighted_max_ema, last.throughput_ema) for _, last in known])
    updated_ms = np.array([last.updated_ms for _, last in known], dtype=np.int64)
    return BrokerScores(
        max_usage=blank.max_usage,
        weighted_max_ema=with_rows(blank.weighted_max_ema, rows, emas[:, 0]),
        throughput_ema=with_rows(blank.throughput_ema, rows, emas[:, 1]),
        updated_at_ms=with_rows(blank.updated_at_ms, rows, updated_ms),
    )
