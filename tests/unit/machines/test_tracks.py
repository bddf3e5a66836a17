"""A scorer's packed tracks: they come back, and another layout is refused."""

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


@pytest.mark.parametrize("schema", [1, STATE_SCHEMA + 1])
def test_tracks_of_another_schema_are_refused_with_the_command_that_helps(schema: int) -> None:
    plain, arrays = packing.unpack(pack_tracks(STATE))
    other = packing.pack({**plain, "schema": schema}, arrays)
    with pytest.raises(UnknownStateSchemaError, match="ballast state rebuild"):
        unpack_tracks(other)
