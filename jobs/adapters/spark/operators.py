"""The two operators of the streaming query: input, Machine and output of each."""

from collections.abc import Sequence
from typing import Any

import orjson
import pandas as pd

from jobs.adapters.spark.partitioning import plain_cluster
from jobs.adapters.spark.spark_machine import NOW_MS, Key, Operator
from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.effects import REPORT, Effect, pack_effect
from lbcore.config.tree import Config
from lbcore.scorer.broker_states import RawMessage
from lbcore.scorer.group_update import GroupUpdate, pack_update, unpack_update
from lbcore.scorer.scorer import BrokerScorer, parser_of
from lbcore.wire.messages import Position

INPUT_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp_ms",
    "key",
    "value",
    "refusal",
    "is_full",
)
UPDATE_SCHEMA = f"cluster string, group_id int, {NOW_MS} long, blob binary"
EFFECT_SCHEMA = "cluster string, kind string, blob binary"


def scorer_operator(config: Config) -> Operator:
    """Return the operator of BrokerScorer, keyed by (cluster, group)."""

    def make(key: Key) -> BrokerScorer:
        group = int(key[1]) % config.pipeline.scorer_groups
        parse = parser_of(config, orjson.loads)
        return BrokerScorer(config, cluster=plain_cluster(key[0]), group=group, parse=parse)

    return Operator(
        name="scorer",
        schema=UPDATE_SCHEMA,
        make_machine=make,
        decode=raw_messages,
        encode=_encode_updates,
    )


def balancer_operator(config: Config) -> Operator:
    """Return the operator of ClusterBalancer, keyed by (cluster)."""

    def make(key: Key) -> ClusterBalancer:
        cluster = plain_cluster(key[0])
        return ClusterBalancer(cluster=cluster, config=config.for_cluster(cluster))

    return Operator(
        name="balancer",
        schema=EFFECT_SCHEMA,
        make_machine=make,
        decode=lambda frame: [unpack_update(bytes(blob)) for blob in frame["blob"]],
        encode=_encode_effects,
    )


def raw_messages(frame: pd.DataFrame) -> list[RawMessage]:
    """Kafka's rows as messages."""
    columns = [frame[name].tolist() for name in INPUT_COLUMNS]
    return [
        RawMessage(
            position=Position(
                topic=topic,
                partition=int(partition),
                offset=int(offset),
                timestamp_ms=int(timestamp_ms),
            ),
            key=None if key is None else bytes(key),
            value=None if value is None else bytes(value),
            refusal=refusal,
            is_full=is_full,
        )
        for topic, partition, offset, timestamp_ms, key, value, refusal, is_full in zip(
            *columns, strict=True
        )
    ]


def _encode_updates(key: Key, effects: Sequence[GroupUpdate], now_ms: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "cluster": [key[0]] * len(effects),
            "group_id": [int(key[1])] * len(effects),
            NOW_MS: [now_ms] * len(effects),
            "blob": [pack_update(update) for update in effects],
        }
    )


def _encode_effects(key: Key, effects: Sequence[Effect], now_ms: int) -> pd.DataFrame:
    del now_ms  # the sink reads it in the report
    wanted = [effect for effect in effects if effect.rows or effect.kind == REPORT]
    columns: dict[str, list[Any]] = {
        "cluster": [plain_cluster(key[0])] * len(wanted),
        "kind": [effect.kind for effect in wanted],
        "blob": [pack_effect(effect) for effect in wanted],
    }
    return pd.DataFrame(columns)
