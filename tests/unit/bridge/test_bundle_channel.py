"""`ballast bridge verify` on records of Pulsar 4.0.8, whole and with a bad one among them."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from jobs.bridge import verify
from jobs.console import CommandError, Exit
from lbcore.bridge.bundle_channel import ChannelChecker, UnreadableEntryError, parse_entry

RECORDED = Path(__file__).parent / "pulsar_answers" / "service-unit-state.jsonl"
MOVED = "public/load1/0x00000000_0x20000000"
OWNED = "Owned version 5 (127.0.0.1:23510 to 127.0.0.1:22645)"
Entry = tuple[Mapping[str, str], bytes]


def recorded() -> list[Entry]:
    lines = map(json.loads, RECORDED.read_text(encoding="utf-8").splitlines())
    return [(line["headers"], line["content"].encode()) for line in lines]


def entry(bundle: str, **fields: object) -> Entry:
    return {"x-pulsar-partition-key": bundle}, json.dumps(fields).encode()


class Topic:
    """A topic as the admin interface gives it; entries of None are not kept any more."""

    def __init__(self, entries: list[Entry | None]) -> None:
        self.entries = entries

    def topic_internals(self, _: str) -> bytes:
        first = {"ledgerId": 3, "entries": 2}
        last = {"ledgerId": 7, "entries": 0}
        newest = f"7:{len(self.entries) - 3}"
        return json.dumps({"lastConfirmedEntry": newest, "ledgers": [first, last]}).encode()

    def topic_entry(self, _: str, ledger: int, number: int) -> Entry | None:
        return self.entries[number + (2 if ledger == 7 else 0)]


def verified(
    entries: list[Entry | None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    monkeypatch.setattr(verify, "admin_at", lambda *_: Topic(entries))
    code = verify.run(argparse.Namespace(admin_url="", once=True, json=False))
    return code, capsys.readouterr().out


def test_recorded_channel_is_allowed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = verified([*recorded()], monkeypatch, capsys)
    assert code == Exit.DONE
    assert "21 records, 8 bundles, 0 with an old version" in text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"state": "Assigning", "dstBroker": "b:1", "versionId": 6},
            f"illegal transition: {OWNED} -> Assigning version 6 (nobody to b:1)",
        ),
        (
            {"state": "Releasing", "sourceBroker": "b:1", "versionId": 6},
            f"wrong brokers: {OWNED} -> Releasing version 6 (b:1 to nobody)",
        ),
        ({"state": "Owned", "dstBroker": "b:1", "versionId": 9, "force": True}, "version gap"),
    ],
)
def test_first_bad_record_is_named_with_brokers_and_versions(
    fields: dict[str, object],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    later = entry(MOVED, state="Free", versionId=77)
    code, text = verified([*recorded(), entry(MOVED, **fields), later], monkeypatch, capsys)
    assert code == Exit.FAILED
    assert f"7:19 {MOVED}: {said}" in text


def test_record_that_lost_a_race_is_counted_and_allowed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = entry(MOVED, state="Owned", dstBroker="b:1", versionId=5)
    code, text = verified([*recorded(), lost], monkeypatch, capsys)
    assert (code, "1 with an old version" in text) == (Exit.DONE, True)


def test_entries_that_are_gone_begin_the_log_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entries: list[Entry | None] = [None] * 17 + [*recorded()[17:]]
    assert verified(entries, monkeypatch, capsys)[0] == Exit.DONE


def test_tombstone_lets_any_record_follow() -> None:
    checker = ChannelChecker()
    headers = {"x-pulsar-partition-key": MOVED}
    first = entry(MOVED, state="Owned", dstBroker="a:1", versionId=1)
    tombstone = ({**headers, "x-pulsar-null-value": "true"}, b"")
    for position, one in enumerate([first, tombstone, first]):
        assert [checker.take(record) for record in parse_entry(str(position), *one)] == [None]
    assert checker.bundles == 1


def test_batch_is_read_message_by_message() -> None:
    value = json.dumps({"state": "Owned", "dstBroker": "a:1", "versionId": 1}).encode()
    key = MOVED.encode()
    about = bytes([0x12, len(key)]) + key + bytes([0x18, len(value)])
    whole = len(about).to_bytes(4, "big") + about + value
    gone = about + bytes([0x20, 1])
    content = whole + len(gone).to_bytes(4, "big") + gone + value + whole
    found = list(parse_entry("3:0", {"x-pulsar-num-batch-message": "3"}, content))
    assert [(one.position, one.bundle) for one in found] == [("3:0:0", MOVED), ("3:0:2", MOVED)]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"state": "Merged", "versionId": 1}', b"{"])
def test_entry_that_is_no_record_is_named(
    content: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad: Entry = ({"x-pulsar-partition-key": MOVED}, content)
    with pytest.raises(CommandError, match="no record") as caught:
        verified([*recorded(), bad], monkeypatch, capsys)
    assert f"7:19 {MOVED}" in caught.value.why


@pytest.mark.parametrize("content", [b"\0\0\0\5\x12\xff", b"\0\0\0\2\x0f\x01"])
def test_batch_that_is_cut_is_named(content: bytes) -> None:
    with pytest.raises(UnreadableEntryError):
        list(parse_entry("3:0", {"x-pulsar-num-batch-message": "1"}, content))
