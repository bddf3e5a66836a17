"""Pulsar's bundle channel and scalable topics from recorded data."""

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.console import CommandError, Exit
from jobs.verbs import bridge
from lbcore.assess.loads import HotBundle, Loads
from lbcore.assess.risks import HotTopic, crowded_partitions, unrelievable
from lbcore.balancer.topic_book import partition_mark
from lbcore.bridge.answers import (
    Claims,
    TopicTable,
    looked_up,
    parse_claims,
    parse_topics,
)
from lbcore.bridge.bundle_channel import ChannelChecker, UnreadableEntryError, parse_entry
from lbcore.bridge.guardian import Memory, ProbeRound, Trouble, anomalies
from lbcore.bridge.reports import SentReports, measured_modular, partitions_in, report_topics
from lbcore.config.tree import Config
from lbcore.model.bundles import Bundle
from lbcore.model.names import lookup_path
from lbcore.wire.messages import Rejected
from lbcore.wire.pulsar import parse_pulsar_report
from tests.support import Capsys, Patch

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


def verified(entries: list[Entry | None], monkeypatch: Patch, capsys: Capsys) -> tuple[int, str]:
    monkeypatch.setattr(bridge, "admin_at", lambda *_: Topic(entries))
    code = bridge.verify_channel(argparse.Namespace(admin_url="", once=True, json=False))
    return code, capsys.readouterr().out


def test_recorded_channel_is_allowed(monkeypatch: Patch, capsys: Capsys) -> None:
    code, text = verified([*recorded()], monkeypatch, capsys)
    assert code == Exit.DONE
    assert "21 records, 8 bundles, 0 with an old version" in text
    entries: list[Entry | None] = [None] * 17 + [*recorded()[17:]]
    assert verified(entries, monkeypatch, capsys)[0] == Exit.DONE


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
    monkeypatch: Patch,
    capsys: Capsys,
) -> None:
    later = entry(MOVED, state="Free", versionId=77)
    code, text = verified([*recorded(), entry(MOVED, **fields), later], monkeypatch, capsys)
    assert code == Exit.FAILED
    assert f"7:19 {MOVED}: {said}" in text


def test_record_that_lost_a_race_is_counted_and_allowed(monkeypatch: Patch, capsys: Capsys) -> None:
    lost = entry(MOVED, state="Owned", dstBroker="b:1", versionId=5)
    code, text = verified([*recorded(), lost], monkeypatch, capsys)
    assert (code, "1 with an old version" in text) == (Exit.DONE, True)


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
    content: bytes, monkeypatch: Patch, capsys: Capsys
) -> None:
    bad: Entry = ({"x-pulsar-partition-key": MOVED}, content)
    with pytest.raises(CommandError, match="no record") as caught:
        verified([*recorded(), bad], monkeypatch, capsys)
    assert f"7:19 {MOVED}" in caught.value.why


def test_batch_that_is_cut_or_has_no_key_is_named() -> None:
    for content in (b"\0\0\0\5\x12\xff", b"\0\0\0\2\x0f\x01"):
        with pytest.raises(UnreadableEntryError):
            list(parse_entry("3:0", {"x-pulsar-num-batch-message": "1"}, content))
    with pytest.raises(UnreadableEntryError, match="3:0: the record has no key"):
        list(parse_entry("3:0", {}, b"{}"))


TOLD: dict[str, Any] = json.loads(
    (Path(__file__).parent / "pulsar_answers" / "scalable-topics.json").read_text()
)
WHOLE = "topic://public/load/ta"
BROKERS = sorted(TOLD["topics"])


def raw(value: Any) -> bytes:
    return json.dumps(value).encode()


def table_of(broker: str) -> TopicTable:
    table = parse_topics(raw(TOLD["topics"][broker]))
    assert isinstance(table, TopicTable)
    return table


def segments() -> list[str]:
    """Those that are active, as the layout names them."""
    return sorted(one["name"] for one in TOLD["stats"]["segments"].values())


def test_load_of_segments_counts_for_the_bundles_that_their_own_names_hash_into() -> None:
    seen = {}
    for broker in BROKERS:
        table = table_of(broker)
        for bundle, rates in table.rates.items():
            assert all(Bundle.parse(bundle).includes_topic(topic) for topic in rates.topics)
            seen |= dict(zip(rates.topics, rates.traffic[:, 0].tolist(), strict=True))
    assert [name for name in sorted(seen) if name.startswith("segment://public/load/ta/")] == (
        segments()
    )
    assert all(seen[name] > 1.0 for name in segments())


@pytest.mark.parametrize("broker", BROKERS)
def test_load_report_and_claims_of_a_broker_of_5_0_are_read(broker: str) -> None:
    parsed = parse_pulsar_report(raw(TOLD["loads"][broker]), "local")
    assert not isinstance(parsed, Rejected)
    assert parsed.load.broker_version == "5.0.0-M1"
    claims = parse_claims(raw(TOLD["owned"][broker]))
    assert isinstance(claims, Claims)
    assert claims.owned >= set(parsed.bundles.names)


def test_segments_of_a_scalable_topic_are_siblings_and_reported_as_such() -> None:
    counts: Counter[str] = Counter()
    sent: list[str] = []
    for broker in BROKERS:
        parsed = parse_pulsar_report(raw(TOLD["loads"][broker]), "local")
        assert not isinstance(parsed, Rejected)
        measured, table = measured_modular(parsed), table_of(broker)
        for rates in table.rates.values():
            counts.update(partitions_in(rates.topics))
        _, messages = report_topics(SentReports(), measured, table, Config(), 1_000)
        sent += [topic for one in messages for topic in one.topics]
    assert counts[WHOLE] == len(segments()) == 6
    assert set(segments()) <= set(sent)
    assert len({partition_mark(name) for name in segments()}) == 1
    assert partition_mark(segments()[0]) != partition_mark("segment://public/load/tb/0000-3fff-0")


def narrow(owned: dict[str, frozenset[str]], partitions: dict[str, dict[str, int]]) -> list[str]:
    """What the guardian says of topics that are on too few brokers."""
    seen = ProbeRound(listed=frozenset(owned), owned=owned, partitions=partitions)
    found = anomalies(Memory(), seen, 8, 0)
    return [f"{one.subject}: {one.evidence}" for one in found if one.trouble is Trouble.NARROW]


def test_siblings_on_one_of_three_brokers_are_told_as_segments() -> None:
    partitions = {
        bundle: dict(partitions_in(rates.topics))
        for broker in BROKERS
        for bundle, rates in table_of(broker).rates.items()
    }
    apart = {broker: frozenset(table_of(broker).bundles) for broker in BROKERS}
    assert not any(one.startswith(WHOLE) for one in narrow(apart, partitions))
    first, *others = BROKERS
    together = {first: frozenset(partitions), **dict.fromkeys(others, frozenset[str]())}
    told = [one for one in narrow(together, partitions) if one.startswith(f"{WHOLE}:")]
    assert told == [f"{WHOLE}: 6 segments are on 1 of 3 brokers: 6 on {first}"]


def test_assessment_has_crowded_segments_and_does_not_advise_to_partition_one() -> None:
    (risk,) = crowded_partitions(dict.fromkeys(segments(), BROKERS[0]), {BROKERS[0]: 3})
    assert (risk.subject, risk.text) == (WHOLE, "its 6 segments are on 1 of 3 brokers")
    hot = segments()[0]
    loads = Loads(
        times_ms=(0,),
        brokers=("a", "b"),
        percent={},
        msg_rates={"a": (100.0,), "b": (2.0,)},
        bundles={},
        imbalance=(None,),
        floor=(None,),
    )
    where: dict[str, Any] = {"broker": "a", "msg_rate": 100.0, "bytes_per_s": 1.0}
    bundle = HotBundle(bundle="public/load/x", topics=1, share=1.0, **where)
    one = HotTopic(topic=hot, bundle="public/load/x", **where)
    (risk,) = unrelievable(loads, [bundle], [one])
    assert risk.next_step.startswith(f"let Pulsar split the segment {hot}")


def test_segment_is_looked_up_where_pulsar_answers_it() -> None:
    answers = TOLD["lookups"]
    path = lookup_path("segment://public/load/orders/0000-7fff-0")
    assert answers[path]["status"] == 200
    assert answers[path.replace("%2F", "/")]["status"] == 404
    assert looked_up(200, raw(answers[path]["answer"])).named in BROKERS
    assert lookup_path("persistent://a/b/c") == "/lookup/v2/topic/persistent/a/b/c"
    assert lookup_path("persistent://a/use/b/c") == "/lookup/v2/destination/persistent/a/use/b/c"
