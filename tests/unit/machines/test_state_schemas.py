"""A state comes back from its chunks whole; one of another schema, or a damaged one, is refused."""

import base64
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from lbcore import packing
from lbcore.balancer.balancer import OLDEST_SCHEMA, STATE_SCHEMA, ClusterBalancer
from lbcore.balancer.state.rules import ClusterRules
from lbcore.balancer.state.topic_book import TopicBook
from lbcore.config.tree import Config
from lbcore.machine import UnknownStateSchemaError
from lbcore.scorer.scoring import make_scorer
from tests.pack_state import packed_today

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
