"""Packed state of the machines: chunks, schemas, plain values, scorer state."""

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
from lbcore.balancer.rules import ClusterRules, PlanProposal, PlanStatus
from lbcore.balancer.topic_book import TopicBook
from lbcore.config.tree import Config
from lbcore.machine import UnknownStateSchemaError
from lbcore.packing import LEFT_OUT, plain_of
from lbcore.scorer.broker_states import STATE_SCHEMA as SCORER_STATE_SCHEMA
from lbcore.scorer.broker_states import (
    BrokerState,
    PendingParts,
    RawMessage,
    Smoothed,
)
from lbcore.scorer.scorer import BrokerScorer, parser_of
from lbcore.wire.messages import Position
from tests.pack_state import packed_today


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
    assert way.back(json.loads(json.dumps(way.to(loud)))) == sail


@pytest.mark.parametrize("hint", [set[int], Mapping[float, int], complex, str | int])
def test_type_that_json_has_nothing_for_is_refused(hint: Any) -> None:
    with pytest.raises(TypeError, match="packed"):
        plain_of(hint)


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
        parse = parser_of(Config(), json.loads)
        scorer = BrokerScorer(Config(), cluster="local", group=int(group), parse=parse)
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


def test_state_of_schema_8_whose_proposals_have_no_time_of_rejection_is_read() -> None:
    proposal = PlanProposal(station=PlanStatus.REJECTED, since_ms=1, until_ms=2, steps=())
    machine = balancer()
    state = machine.unpack(chunks_of(packed()["balancer"]))
    rules = replace(state.rules, proposals={"a": proposal})
    chunks = dict(machine.pack(replace(state, rules=rules, packed={})))
    plain, arrays = packing.unpack(chunks["clock"])
    assert plain["schema"] > 8  # an older version must refuse the field
    chunks["clock"] = packing.pack({**plain, "schema": 8}, arrays)
    plain, arrays = packing.unpack(chunks["rules"])
    del plain["of"]["proposals"]["a"]["rejected_ms"]
    chunks["rules"] = packing.pack(plain, arrays)
    assert machine.unpack(chunks).rules.proposals == {"a": proposal}


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
    "b": BrokerState(
        incarnation="2",
        heard_ms=13,
        superseded=("0", "1"),
        seqs={"broker-load": 4, "acks": 0},
        smoothed=Smoothed(weighted_max_ema=0.1, throughput_ema=1e9, updated_ms=11),
        pending=PendingParts(seq=5, parts={2: message(2), 0: message(0)}),
    ),
    "a": BrokerState(incarnation="é"),
    "c": BrokerState(
        incarnation="3", heard_ms=14, pending=PendingParts(seq=1, parts={1: message(1)})
    ),
}


@pytest.mark.parametrize("schema", [1, SCORER_STATE_SCHEMA + 1])
def test_tracks_of_another_schema_are_refused_with_the_command_that_helps(schema: int) -> None:
    scorer = BrokerScorer(Config(), cluster="local", group=0, parse=parser_of(Config(), json.loads))
    plain, arrays = packing.unpack(scorer.pack(STATE)["brokers"])
    other = packing.pack({**plain, "schema": schema}, arrays)
    with pytest.raises(UnknownStateSchemaError, match="ballast state rebuild"):
        scorer.unpack({"brokers": other})
