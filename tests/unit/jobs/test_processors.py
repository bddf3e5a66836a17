"""The operators under Spark's own tester, their state's index, and where reading goes on."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.streaming import TwsTester  # type: ignore[attr-defined]

from jobs.adapters.kafka.connection import KafkaPlace
from jobs.adapters.spark import spark_machine
from jobs.adapters.spark.operators import (
    INPUT_COLUMNS,
    balancer_operator,
    raw_messages,
    scorer_operator,
)
from jobs.adapters.spark.spark_machine import (
    NOW_MS,
    MachineProcessor,
    _CachedState,
    _entry,
    _is_inline,
)
from lbcore.balancer.batch_context import BalancerState
from lbcore.balancer.effects import REPORT, Effect, pack_effect
from lbcore.config.tree import Config
from lbcore.machine import Step
from lbcore.scorer.broker_states import RawMessage
from lbcore.scorer.group_update import GroupUpdate, pack_update
from tests.support.worlds.measured_world import MeasuredWorld, Tables
from tests.support.worlds.world import CLUSTER, World


@pytest.fixture(autouse=True)
def held(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    """Return the states that the worker holds between two batches: none at first."""
    found: dict[Any, Any] = {}
    monkeypatch.setattr(spark_machine, "_CACHE", found)
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
                "is_full": one.is_full,
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


LONG_ENOUGH_S = 0.5


def test_outcome_of_a_command_is_written_after_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, early = threading.Event(), list[bool]()
    write = Tables.write

    def slowly(self: Tables, name: str, rows: pa.Table, batch_id: int, metadata: Any) -> None:
        if name == "policies":
            early.append(answered.wait(LONG_ENOUGH_S))
        elif name == "commands" and "done" in rows["status"].to_pylist():
            answered.set()
        write(self, name, rows, batch_id, metadata)

    world = MeasuredWorld(Config(), 3)
    world.run(3_000)
    monkeypatch.setattr(Tables, "write", slowly)
    world.command("pause", reason="holidays")
    world.run(3_000)
    assert answered.is_set()
    assert early[:1] == [False]


_LARGE = 3_000


def test_digest_of_the_same_bytes_is_not_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes that no batch touched are not read for it."""
    chunk = bytes(_LARGE)
    held = _CachedState(index={"a": _entry(chunk)}, state=None, chunks={"a": chunk})
    taken: list[bytes] = []
    monkeypatch.setattr(spark_machine, "_entry", lambda blob: taken.append(blob) or "new")
    assert held.entry_of("a", chunk) == held.index["a"]
    assert taken == []


@pytest.mark.parametrize("size", [1, _LARGE])
def test_line_of_other_or_new_bytes_is_their_own(size: int) -> None:
    """Also where the name is known, or the bytes under another name."""
    one, other = b"1" * size, b"2" * size
    held = _CachedState(index={"a": _entry(one)}, state=None, chunks={"a": one})
    assert held.entry_of("a", other) == _entry(other) != _entry(one)
    assert held.entry_of("b", one) == _entry(one)


def test_small_chunk_stands_in_the_index_and_a_large_one_does_not() -> None:
    assert _is_inline(_entry(b"")) is True
    assert _is_inline(_entry(bytes(_LARGE))) is False


PLACE = KafkaPlace(
    cluster_id="k",
    topics={"acks": "a", "commands": "c", "load": "anew"},
    bounds={"acks": {0: (2, 9)}, "commands": {0: (0, 7), 1: (3, 3)}, "load": {0: (0, 5)}},
)
LAST = {
    "offsets": {"acks": {"0": 4}, "commands": {"0": 2, "1": 3}, "load": {"0": 5}},
    "topics": {"acks": "a", "commands": "c", "load": "before"},
}


def test_reading_goes_on_after_the_last_commit_and_anew_where_the_topic_is_new() -> None:
    ends = {"acks": {"0": 4}, "commands": {"0": 2, "1": 3}, "load": {"0": 0}}
    assert PLACE.ends_after(LAST) == ends
    assert PLACE.ends_after(None)["acks"] == {"0": 2}


def test_a_topic_is_skipped_to_its_end() -> None:
    ends = {**PLACE.ends_after(LAST), "commands": {"0": 7, "1": 3}}
    assert PLACE.ends_beyond("commands", LAST) == ends
