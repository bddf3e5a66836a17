"""The ownership record survives its written form, and bytes that are none are named."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.ownership.wire_record import format_record, parse_record, record_key
from lbcore.wire.messages import Rejected, RejectReason

BUNDLE = "acme/orders/0x00000000_0x80000000"
RECORD = OwnershipRecord(
    cluster="local",
    bundle=BUNDLE,
    state=State.SPLITTING,
    version_id=9,
    source="broker-1:8080",
    source_incarnation="17",
    children={
        "acme/orders/0x00000000_0x40000000": "",
        "acme/orders/0x40000000_0x80000000": "broker-2:8080",
    },
    is_forced=True,
    timestamp_ms=1_795_249_787_508,
    cause=Cause.SPLIT,
    decision_id="d-1",
    command_id="c-1",
    writer_epoch=3,
)


def spoilt(**changes: Any) -> OwnershipRecord | Rejected | None:
    key, value = format_record(RECORD)
    return parse_record(key, json.dumps({**json.loads(value), **changes}).encode())


@pytest.mark.parametrize("loads", [json.loads, orjson.loads])
def test_record_written_and_read_is_the_same(loads: Any) -> None:
    key, value = format_record(RECORD)
    assert parse_record(key, value, loads) == RECORD


def test_record_is_written_under_pulsars_names() -> None:
    key, value = format_record(RECORD)
    assert key == b"local/acme/orders/0x00000000_0x80000000"
    assert json.loads(value) == {
        "schema": 1,
        "cluster": "local",
        "bundle": BUNDLE,
        "state": "Splitting",
        "dstBroker": "",
        "dstIncarnation": "",
        "sourceBroker": "broker-1:8080",
        "sourceIncarnation": "17",
        "splitServiceUnitToDestBroker": {
            "acme/orders/0x00000000_0x40000000": "",
            "acme/orders/0x40000000_0x80000000": "broker-2:8080",
        },
        "force": True,
        "timestamp": 1_795_249_787_508,
        "versionId": 9,
        "decisionId": "d-1",
        "commandId": "c-1",
        "cause": "split",
        "writerEpoch": 3,
    }


def test_record_without_a_value_is_a_tombstone() -> None:
    assert parse_record(record_key("local", BUNDLE), None) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": 2}, RejectReason.UNKNOWN_SCHEMA),
        ({"cluster": "east"}, RejectReason.KEY_MISMATCH),
        ({"bundle": "x"}, RejectReason.MALFORMED_BUNDLE),
        ({"state": "Lost"}, RejectReason.OUT_OF_RANGE),
        ({"state": 1}, RejectReason.WRONG_TYPE),
        ({"versionId": 0}, RejectReason.OUT_OF_RANGE),
        ({"versionId": 2**63}, RejectReason.OUT_OF_RANGE),
        ({"dstBroker": None}, RejectReason.WRONG_TYPE),
        ({"force": 1}, RejectReason.WRONG_TYPE),
        ({"cause": "whim"}, RejectReason.OUT_OF_RANGE),
        ({"splitServiceUnitToDestBroker": {"x": ""}}, RejectReason.MALFORMED_BUNDLE),
        ({"splitServiceUnitToDestBroker": {BUNDLE: 1}}, RejectReason.WRONG_TYPE),
        ({"writerEpoch": -1}, RejectReason.NEGATIVE),
    ],
)
def test_record_that_is_none_names_the_reason(
    changes: dict[str, Any], reason: RejectReason
) -> None:
    rejected = spoilt(**changes)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is reason, rejected.detail


@given(key=st.none() | st.binary(max_size=9), value=st.binary(max_size=30))
def test_record_of_arbitrary_bytes_is_rejected(key: bytes | None, value: bytes) -> None:
    assert isinstance(parse_record(key, value), Rejected)


NAMES = st.text(max_size=5)


@given(
    record=st.builds(
        OwnershipRecord,
        cluster=st.sampled_from(["local", "ü"]),
        bundle=st.just(BUNDLE),
        state=st.sampled_from(State),
        version_id=st.integers(1, 2**63 - 1),
        source=NAMES,
        source_incarnation=NAMES,
        destination=NAMES,
        destination_incarnation=NAMES,
        children=st.dictionaries(st.just(BUNDLE), NAMES),
        is_forced=st.booleans(),
        timestamp_ms=st.integers(0, 2**63 - 1),
        cause=st.sampled_from(Cause),
        decision_id=NAMES,
        command_id=NAMES,
        writer_epoch=st.integers(0, 2**63 - 1),
    )
)
def test_record_of_any_content_survives_its_written_form(record: OwnershipRecord) -> None:
    key, value = format_record(record)
    assert parse_record(key, value) == record
    assert parse_record(key, value, orjson.loads) == record
