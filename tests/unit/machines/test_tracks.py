"""A scorer's packed tracks: what code of before has written is read, today's layout stays."""

import base64
import json
from pathlib import Path

import pytest

from lbcore import packing
from lbcore.machine import UnknownStateSchemaError
from lbcore.scorer.tracks import (
    STATE_SCHEMA,
    BrokerTrack,
    PendingParts,
    RawMessage,
    Smoothed,
    pack_tracks,
    unpack_tracks,
)
from lbcore.wire.messages import Position

PACKED = {
    int(schema): base64.b64decode(text)
    for schema, text in json.loads(
        (Path(__file__).parent / "older_states" / "scorers.json").read_text()
    ).items()
}
"""Schema → the tracks below, packed by the code of that schema, the present one too."""


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


def test_layout_of_each_schema_is_kept() -> None:
    assert list(PACKED) == list(range(1, STATE_SCHEMA + 1)), (
        "raise STATE_SCHEMA with the layout, read what the one before packed, and add today's bytes"
    )
    assert pack_tracks(STATE) == PACKED[STATE_SCHEMA]


@pytest.mark.parametrize("schema", PACKED)
def test_tracks_of_each_schema_are_read_whole(schema: int) -> None:
    assert unpack_tracks(PACKED[schema]) == STATE


@pytest.mark.parametrize("state", [{}, {"a": STATE["a"]}, dict(reversed(STATE.items()))])
def test_tracks_come_back_and_equal_ones_have_equal_bytes(state: dict[str, BrokerTrack]) -> None:
    blob = pack_tracks(state)
    assert unpack_tracks(blob) == state
    assert pack_tracks(dict(sorted(state.items()))) == blob


def test_tracks_of_a_newer_schema_are_refused_with_the_command_that_helps() -> None:
    plain, arrays = packing.unpack(PACKED[STATE_SCHEMA])
    newer = packing.pack({**plain, "schema": STATE_SCHEMA + 1}, arrays)
    with pytest.raises(UnknownStateSchemaError, match="ballast state rebuild"):
        unpack_tracks(newer)
