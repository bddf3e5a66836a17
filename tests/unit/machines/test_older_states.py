"""States that older code packed are read, upgraded and gone on from.

The files in older_states were written by the code of their time, never by today's; what today's
would write (`tests.pack_state`) is held to the same.
"""

import base64
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from lbcore import packing
from lbcore.balancer.balancer import STATE_SCHEMA, ClusterBalancer
from lbcore.balancer.state.rules import ClusterRules
from lbcore.balancer.state.topic_book import TopicBook
from lbcore.config.tree import Config
from lbcore.machine import UnknownStateSchemaError
from lbcore.scorer.scoring import make_scorer
from tests.pack_state import FOLDER, packed_today, path_of

_OLDER = sorted(int(path.stem.removeprefix("schema_")) for path in FOLDER.glob("schema_*.json"))
_ALL = sorted({*_OLDER, STATE_SCHEMA})


@cache
def packed(schema: int) -> Mapping[str, Any]:
    if schema not in _OLDER:
        return packed_today()
    found: Mapping[str, Any] = json.loads(path_of(schema).read_text())
    return found


def chunks_of(texts: Mapping[str, str]) -> dict[str, bytes]:
    return {name: base64.b64decode(text) for name, text in texts.items()}


def balancer() -> ClusterBalancer:
    return ClusterBalancer(cluster="local", config=Config())


def test_state_of_each_older_schema_is_kept() -> None:
    assert list(range(1, STATE_SCHEMA)) == _OLDER, (
        "with the code as it was before STATE_SCHEMA rose, run `python -m tests.pack_state`"
    )


@pytest.mark.parametrize("schema", _ALL)
def test_state_of_an_older_schema_is_read_whole(schema: int) -> None:
    known = packed(schema)
    state = balancer().unpack(chunks_of(known["balancer"]))
    records = [state.ledger.record(name) for name in state.ledger.names]
    assert [
        {
            "bundle": record.bundle,
            "version_id": record.version_id,
            "state": record.state.value,
            "source": record.source,
            "destination": record.destination,
            "destination_incarnation": record.destination_incarnation,
        }
        for record in records
        if record is not None
    ] == known["records"]
    assert sorted(state.brokers) == known["brokers"]
    assert sorted(state.namespaces) == known["namespaces"]
    assert state.commands == known["commands"]
    assert state.settings == known["settings"]
    assert state.rules == ClusterRules(config_changes=known.get("config_changes", 0))
    assert state.topics == TopicBook()


@pytest.mark.parametrize("schema", _ALL)
def test_state_of_an_older_schema_goes_on_as_one_of_today(schema: int) -> None:
    known, machine = packed(schema), balancer()
    now_ms = known["now_ms"] + 1_000
    state = machine.step(machine.unpack(chunks_of(known["balancer"])), [], now_ms).state
    assert state is not None
    again = machine.pack(machine.unpack(machine.pack(state)))
    assert again == machine.pack(state)
    assert packing.unpack(again["clock"])[0]["schema"] == STATE_SCHEMA
    assert len(state.ledger) == len(known["records"])


@pytest.mark.parametrize("schema", _ALL)
def test_scorers_of_an_older_schema_are_read(schema: int) -> None:
    known, config = packed(schema), Config()
    tracks = [
        make_scorer(config, cluster="local", group=int(group), loads=json.loads).unpack(
            chunks_of(texts)
        )
        for group, texts in known["scorers"].items()
    ]
    assert sorted(name for found in tracks for name in found) == known["brokers"]


@pytest.mark.parametrize("schema", _ALL)
def test_scorers_of_an_older_schema_go_on_as_of_today(schema: int) -> None:
    for group, texts in packed(schema)["scorers"].items():
        scorer = make_scorer(Config(), cluster="local", group=int(group), loads=json.loads)
        state = scorer.unpack(chunks_of(texts))
        assert scorer.unpack(scorer.pack(state)) == state


def test_state_of_a_newer_schema_is_refused_with_the_command_that_helps() -> None:
    known = chunks_of(packed(1)["balancer"])
    plain, arrays = packing.unpack(known["clock"])
    known["clock"] = packing.pack({**plain, "schema": STATE_SCHEMA + 1}, arrays)
    with pytest.raises(UnknownStateSchemaError, match="ballast state rebuild"):
        balancer().unpack(known)
