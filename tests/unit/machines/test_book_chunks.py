"""Brokers and namespaces as packed chunks: what changes, and what is made again."""

from dataclasses import replace

from lbcore.balancer.state.book import (
    BrokerEntry,
    Memo,
    NamespaceEntry,
    pack_book,
    pack_brokers,
    unpack_book,
    unpack_brokers,
)
from lbcore.model.resources import COUNT, complete

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
