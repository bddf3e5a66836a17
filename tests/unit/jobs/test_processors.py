"""Both stateful processors under Spark's TwsTester: what they give is what their Machines give."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pytest
from pyspark.sql.streaming import TwsTester  # type: ignore[attr-defined]

from jobs.adapters.spark import spark_machine
from jobs.adapters.spark.operators import (
    INPUT_COLUMNS,
    balancer_operator,
    raw_messages,
    scorer_operator,
)
from jobs.adapters.spark.spark_machine import NOW_MS, MachineProcessor
from lbcore.balancer.state.batch_context import BalancerState
from lbcore.balancer.state.effects import REPORT, Effect, pack_effect
from lbcore.config.tree import Config
from lbcore.machine import Step
from lbcore.scorer.group_update import GroupUpdate, pack_update
from lbcore.scorer.tracks import RawMessage
from tests.support.worlds.world import CLUSTER, World


@pytest.fixture(autouse=True)
def held(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    """Return the states that the worker holds between two batches: none at first."""
    found: dict[Any, Any] = {}
    monkeypatch.setattr(spark_machine, "_HELD", found)
    return found


class ScorerProcessor(MachineProcessor):
    """Has two columns for a key; TwsTester hands them over as one."""

    def handleInputRows(  # noqa: N802 Spark's name
        self,
        key: Any,
        rows: Any,
        timerValues: Any,  # noqa: N803 Spark's name
    ) -> Any:
        return super().handleInputRows(key[0], rows, timerValues)


class WorldOnTws(World):
    """A world whose batches also go through the processors, as Spark calls them."""

    def __init__(self, config: Config, brokers: int) -> None:
        self.scorer = TwsTester(ScorerProcessor(scorer_operator(config)))
        self.balancer = TwsTester(MachineProcessor(balancer_operator(config)))
        self.scorer_batches = self.balancer_batches = 0
        super().__init__(config, brokers)

    def step_scorer(self, group: int, messages: Sequence[RawMessage]) -> Step[Any, Any]:
        step = super().step_scorer(group, messages)
        rows = self.scorer.testInPandas((CLUSTER, group), self.frame(messages))
        assert rows["blob"].tolist() == [pack_update(update) for update in step.effects]
        self.scorer_batches += 1
        return step

    def step_balancer(self, updates: Sequence[GroupUpdate]) -> Step[BalancerState, Effect]:
        step = super().step_balancer(updates)
        blobs = [pack_update(update) for update in updates]
        frame = pd.DataFrame({"blob": blobs, NOW_MS: [self.batch_ms] * len(blobs)})
        rows = self.balancer.testInPandas(CLUSTER, frame)
        wanted = [one for one in step.effects if one.rows or one.kind == REPORT]
        assert rows["blob"].tolist() == [pack_effect(one) for one in wanted]
        self.balancer_batches += 1
        return step

    def frame(self, messages: Sequence[RawMessage]) -> pd.DataFrame:
        """Rows of a micro-batch, as Kafka's source gives them."""
        rows = [
            {
                "topic": one.position.topic,
                "partition": one.position.partition,
                "offset": one.position.offset,
                "timestamp_ms": one.position.timestamp_ms,
                "key": one.key,
                "value": one.value,
                "refusal": one.refusal,
                NOW_MS: self.batch_ms,
            }
            for one in messages
        ]
        return pd.DataFrame(rows, columns=[*INPUT_COLUMNS, NOW_MS])


@pytest.mark.parametrize("is_held", [True, False])
def test_processors_give_what_the_machines_give(held: dict[Any, Any], *, is_held: bool) -> None:
    """From the first heartbeat over a broker's death; a worker that forgets its state reads it."""
    world = WorldOnTws(Config(), 3)
    world.command("create_namespace", namespace="t/n", bundles=8)
    for moment in range(40):
        if moment == 20:
            world.kill("broker-1:8080")
        if not is_held:
            held.clear()
        world.run(1_000)
    assert world.scorer_batches > 20
    assert world.balancer_batches > 20
    assert {str(row["destination"]) for row in world.newest()} == {"broker-0:8080", "broker-2:8080"}


def test_rebuilt_state_is_the_initial_state(held: dict[Any, Any]) -> None:
    """What a rebuild hands to Spark is read as the state that the balancer had."""
    world = WorldOnTws(Config(), 2)
    world.command("create_namespace", namespace="t/n", bundles=4)
    world.run(15_000)
    operator = balancer_operator(world.config)
    chunks: Mapping[str, bytes] = operator.make_machine((CLUSTER,)).pack(world.state)
    initial = pd.DataFrame({"name": list(chunks), "blob": list(chunks.values())})
    held.clear()
    world.balancer = TwsTester(MachineProcessor(operator), initialStatePandas=[(CLUSTER, initial)])
    world.run(5_000)
    assert world.balancer_batches > 10


def test_rows_that_are_no_messages_are_given_on() -> None:
    """The scorer judges them, not the decoder: a null key, no bytes, a refusal of the source."""
    world = WorldOnTws(Config(), 1)
    world.put(("broker-load", 0), None, b"\xff", world.now_ms)
    world.put(("broker-load", 0), b"", None, world.now_ms)
    messages = world.read_rows()
    assert raw_messages(world.frame(messages)) == messages
