"""Packed state of the machines: chunks, schemas, plain values, scorer tracks."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Annotated, Any

import numpy as np
import pytest

from lbcore import packing
from lbcore.balancer.balancer import OLDEST_SCHEMA, STATE_SCHEMA, ClusterBalancer
from lbcore.balancer.state.book import (
    BrokerEntry,
    Memo,
    NamespaceEntry,
    pack_book,
    pack_brokers,
    pack_plan,
    unpack_book,
    unpack_brokers,
    unpack_plan,
)
from lbcore.balancer.state.rules import ClusterRules
from lbcore.balancer.state.topic_book import TopicBook
from lbcore.config.tree import Config
from lbcore.machine import UnknownStateSchemaError
from lbcore.model.resources import COUNT, complete
from lbcore.packing import LEFT_OUT, applied, plain_of
from lbcore.plan.decision import PlanState
from lbcore.scorer.scorer import make_scorer
from lbcore.scorer.tracks import STATE_SCHEMA as TRACKS_STATE_SCHEMA
from lbcore.scorer.tracks import (
    BrokerTrack,
    PendingParts,
    RawMessage,
    Smoothed,
    pack_tracks,
    unpack_tracks,
)
from lbcore.wire.messages import Position
from tests.pack_state import packed_today

LOADED = BrokerEntry(
    incarnation="i",
    is_draining=True,
    reported_ms=2**41,
    percent=complete([1.5, 2.0, 0.1, 99.99, 7.0]),
    traffic=(1e9, 2.0, 0.3, 4.0),
    weighted_max_ema=0.1 + 0.2,
    throughput_ema=1e12,
    topic_count=2**40,
    bundle_count=3,
    capacity=2.0,
    texts={"web_service_url": "http://b:80"},
    listeners={"internal": {"url": "b:90"}},
    starts_ms=(5, 9),
    restarted_ms=9,
    died_clock_ms=7,
)
BROKERS = {"broker-2": LOADED, "broker-10": BrokerEntry(incarnation="other")}
NAMESPACES = {"t/n": NamespaceEntry(hash="crc32", highest_version=4, properties={"a": [1]})}


def test_brokers_unpacked_are_those_that_were_packed() -> None:
    assert unpack_brokers(pack_brokers(BROKERS, {})) == BROKERS
    assert unpack_brokers(pack_brokers({}, {})) == {}


def test_report_changes_the_loads_alone() -> None:
    memo: Memo = {}
    before = pack_brokers(BROKERS, memo)
    reported = replace(LOADED, reported_ms=9, percent=(2.0,) * COUNT, texts=dict(LOADED.texts))
    after = pack_brokers({**BROKERS, "broker-2": reported}, memo)
    assert after["brokers"] is before["brokers"]
    assert after["brokers.loads"] != before["brokers.loads"]


def test_broker_that_moves_is_packed_again() -> None:
    memo: Memo = {}
    pack_brokers(BROKERS, memo)
    moved = {**BROKERS, "broker-2": replace(LOADED, texts={"web_service_url": "http://c:80"})}
    assert unpack_brokers(pack_brokers(moved, memo)) == moved
    assert unpack_brokers(pack_brokers({"broker-2": LOADED}, memo)) == {"broker-2": LOADED}


def test_book_unpacked_is_what_was_packed() -> None:
    settings = {"shedding.strategy": "avg"}
    packed = pack_book(NAMESPACES, {"c-2": "done", "c-1": "failed"}, settings, {})
    namespaces, commands, again = unpack_book(packed)
    assert (namespaces, list(commands), again) == (NAMESPACES, ["c-2", "c-1"], settings)


def test_book_is_packed_again_only_when_it_changed_or_its_commands_stand_otherwise() -> None:
    memo: Memo = {}
    first = pack_book(NAMESPACES, {"c-2": "done", "c-1": "done"}, {}, memo)["book"]
    same = pack_book(dict(NAMESPACES), {"c-2": "done", "c-1": "done"}, {}, memo)["book"]
    turned = pack_book(NAMESPACES, {"c-1": "done", "c-2": "done"}, {}, memo)["book"]
    assert same is first
    assert turned != first


def test_blob_unpacked_gives_its_contents() -> None:
    arrays = {"a": np.arange(6, dtype=np.int32).reshape(2, 3), "b": np.array([True, False])}
    plain, found = packing.unpack(packing.pack({"x": [1, "é", None]}, arrays))
    assert plain == {"x": [1, "é", None]}
    assert all((found[name] == arrays[name]).all() for name in arrays)
    assert found["a"].dtype == np.int32


def test_blob_of_equal_contents_has_equal_bytes_in_any_order() -> None:
    one = packing.pack({"x": 1, "y": 2}, {"a": np.zeros(2), "b": np.ones(1)})
    other = packing.pack({"y": 2, "x": 1}, {"b": np.ones(1), "a": np.zeros(2)})
    assert one == other


@pytest.mark.parametrize("cut", [0, 3, 9, 40])
def test_blob_that_was_cut_is_refused_with_what_to_do(cut: int) -> None:
    blob = packing.pack({"x": 1}, {"a": np.arange(100)})
    with pytest.raises(packing.MalformedBlobError, match="ballast state rebuild"):
        packing.unpack(blob[:cut])


def test_blob_with_another_beginning_is_refused() -> None:
    blob = packing.pack({}, {})
    with pytest.raises(packing.MalformedBlobError):
        packing.unpack(b"XXXX" + blob[4:])


@pytest.mark.parametrize("names", [[], [""], ["a"], ["a", "", "é"]])
def test_names_joined_come_back(names: list[str]) -> None:
    assert packing.split_names(packing.join_names(names), len(names)) == names


class Colour(Enum):
    """Colours."""

    RED = "red"


@dataclass(frozen=True)
class Sail:
    """A record with a field of each kind."""

    colour: Colour
    raw: bytes
    doors: Mapping[int, frozenset[str]]
    name: str | None = None
    noise: Annotated[tuple[str, ...], LEFT_OUT] = ()


@pytest.mark.parametrize(
    "sail",
    [
        Sail(Colour.RED, b"", {}),
        Sail(Colour.RED, b"\0\xff", {3: frozenset("ab"), -1: frozenset()}, name="x"),
    ],
)
def test_record_comes_back_without_what_is_left_out(sail: Sail) -> None:
    way = plain_of(Sail)
    loud = Sail(sail.colour, sail.raw, sail.doors, sail.name, noise=("bang",))
    assert applied(way.back, json.loads(json.dumps(applied(way.to, loud)))) == sail


@pytest.mark.parametrize("hint", [set[int], Mapping[float, int], complex, str | int])
def test_type_that_json_has_nothing_for_is_refused(hint: Any) -> None:
    with pytest.raises(TypeError, match="packed"):
        plain_of(hint)


MINUTE_MS = 60_000
PLAN = PlanState(
    strategy="avg",
    gave_ms={"broker-1": 5},
    unloaded_ms={"t/n/b": MINUTE_MS + 7, "t/n/a": MINUTE_MS, "t/n/c": 3 * MINUTE_MS},
)


def test_unpacking_is_the_inverse() -> None:
    assert unpack_plan(pack_plan(PLAN, {})) == PLAN
    assert unpack_plan(pack_plan(PlanState(), {})) == PlanState()


def test_chunks_do_not_tell_in_which_order_bundles_were_moved() -> None:
    turned = replace(PLAN, unloaded_ms=dict(reversed(PLAN.unloaded_ms.items())))
    assert pack_plan(turned, {}) == pack_plan(PLAN, {})
    assert list(unpack_plan(pack_plan(turned, {})).unloaded_ms) == ["t/n/a", "t/n/b", "t/n/c"]


def test_only_the_minutes_that_moves_came_to_or_left_change() -> None:
    before = pack_plan(PLAN, {})
    moved = {"t/n/a": MINUTE_MS, "t/n/b": 3 * MINUTE_MS + 1, "t/n/c": 3 * MINUTE_MS}
    after = pack_plan(replace(PLAN, unloaded_ms=moved), {})
    assert {name for name in after if before[name] != after[name]} == {"moved/1", "moved/3"}
    grown = pack_plan(replace(PLAN, unloaded_ms={**PLAN.unloaded_ms, "t/n/d": 0}), {})
    assert grown == {**before, "moved/0": grown["moved/0"]}


def test_the_very_same_plan_is_not_packed_again() -> None:
    memo: Memo = {}
    first = pack_plan(PLAN, memo)
    assert pack_plan(PLAN, memo) is first
    other = pack_plan(replace(PLAN, strategy="threshold"), memo)
    assert other["plan"] != first["plan"]
    assert pack_plan(PLAN, {}) == first


def test_minutes_with_the_same_moves_are_not_packed_again() -> None:
    memo: Memo = {}
    first = pack_plan(PLAN, memo)
    again = {**PLAN.unloaded_ms, "t/n/c": 3 * MINUTE_MS + 1}
    after = pack_plan(replace(PLAN, unloaded_ms=again), memo)
    assert after["moved/1"] is first["moved/1"]
    assert after == pack_plan(replace(PLAN, unloaded_ms=again), {})
    assert after["moved/3"] != first["moved/3"]
    left = pack_plan(replace(PLAN, unloaded_ms={"t/n/a": MINUTE_MS}), memo)
    assert sorted(left) == ["moved/1", "plan"]
    assert unpack_plan(left).unloaded_ms == {"t/n/a": MINUTE_MS}


packed = cache(packed_today)


def chunks_of(texts: Mapping[str, str]) -> dict[str, bytes]:
    return {name: base64.b64decode(text) for name, text in texts.items()}


def balancer() -> ClusterBalancer:
    return ClusterBalancer(cluster="local", config=Config())


def row_of(record: Any) -> dict[str, Any]:
    names = ("bundle", "version_id", "source", "destination", "destination_incarnation")
    return {**{name: getattr(record, name) for name in names}, "state": record.state.value}


def test_state_is_read_whole() -> None:
    known = packed()
    state = balancer().unpack(chunks_of(known["balancer"]))
    records = [state.ledger.record(name) for name in state.ledger.names]
    assert [row_of(record) for record in records if record is not None] == known["records"]
    assert sorted(state.brokers) == known["brokers"]
    assert sorted(state.namespaces) == known["namespaces"]
    assert state.commands == known["commands"]
    assert state.settings == known["settings"]
    assert state.rules == ClusterRules(config_changes=known["config_changes"])
    assert state.topics == TopicBook()


def test_state_that_was_read_goes_on() -> None:
    known, machine = packed(), balancer()
    now_ms = known["now_ms"] + 1_000
    state = machine.step(machine.unpack(chunks_of(known["balancer"])), [], now_ms).state
    assert state is not None
    again = machine.pack(machine.unpack(machine.pack(state)))
    assert again == machine.pack(state)
    assert len(state.ledger) == len(known["records"])


def test_scorers_are_read_and_go_on() -> None:
    known, found = packed(), []
    for group, texts in known["scorers"].items():
        scorer = make_scorer(Config(), cluster="local", group=int(group), loads=json.loads)
        state = scorer.unpack(chunks_of(texts))
        assert scorer.unpack(scorer.pack(state)) == state
        found += state
    assert sorted(found) == known["brokers"]


@pytest.mark.parametrize("schema", [1, OLDEST_SCHEMA - 1, STATE_SCHEMA + 1])
def test_state_of_another_schema_is_refused_with_the_command_that_helps(schema: int) -> None:
    known = chunks_of(packed()["balancer"])
    plain, arrays = packing.unpack(known["clock"])
    known["clock"] = packing.pack({**plain, "schema": schema}, arrays)
    with pytest.raises(UnknownStateSchemaError, match="ballast state rebuild"):
        balancer().unpack(known)


def test_state_of_today_is_read_by_a_version_with_the_next_schema(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = packed()
    monkeypatch.setattr("lbcore.balancer.balancer.STATE_SCHEMA", STATE_SCHEMA + 1)
    machine = balancer()
    state = machine.unpack(chunks_of(known["balancer"]))
    assert len(machine.unpack(machine.pack(state)).ledger) == len(known["records"])


@pytest.mark.parametrize("chunk", sorted(packed()["balancer"]))
def test_chunk_that_was_cut_is_refused(chunk: str) -> None:
    known = chunks_of(packed()["balancer"])
    known[chunk] = known[chunk][: len(known[chunk]) // 2]
    with pytest.raises(ValueError, match=r".+"):
        balancer().unpack(known)


def message(part: int) -> RawMessage:
    place = Position(topic="bundle-load", partition=1, offset=2**40 + part, timestamp_ms=12 + part)
    return RawMessage(position=place, key=b"local/b", value=b"\0\xff" * part + b"x")


STATE = {
    "b": BrokerTrack(
        incarnation="2",
        heard_ms=13,
        superseded=("0", "1"),
        seqs={"broker-load": 4, "acks": 0},
        smoothed=Smoothed(weighted_max_ema=0.1, throughput_ema=1e9, updated_ms=11),
        pending=PendingParts(seq=5, parts={2: message(2), 0: message(0)}),
    ),
    "a": BrokerTrack(incarnation="é"),
    "c": BrokerTrack(
        incarnation="3", heard_ms=14, pending=PendingParts(seq=1, parts={1: message(1)})
    ),
}


@pytest.mark.parametrize("state", [STATE, {}, {"a": STATE["a"]}, dict(reversed(STATE.items()))])
def test_tracks_come_back_and_equal_ones_have_equal_bytes(state: dict[str, BrokerTrack]) -> None:
    blob = pack_tracks(state)
    assert unpack_tracks(blob) == state
    assert pack_tracks(dict(sorted(state.items()))) == blob


@pytest.mark.parametrize("schema", [1, TRACKS_STATE_SCHEMA + 1])
def test_tracks_of_another_schema_are_refused_with_the_command_that_helps(schema: int) -> None:
    plain, arrays = packing.unpack(pack_tracks(STATE))
    other = packing.pack({**plain, "schema": schema}, arrays)
    with pytest.raises(UnknownStateSchemaError, match="ballast state rebuild"):
        unpack_tracks(other)
