"""Scalable topics as three real Pulsar 5.0.0-M1 brokers told of them, two splits after creation.

`topic://public/load/ta` was made with four segments; segments 0 and 1 were split, and by the time
of the answers Pulsar had dropped the two that are sealed.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lbcore.assess.loads import HotBundle, Loads
from lbcore.assess.risks import HotTopic, crowded_partitions, unrelievable
from lbcore.balancer.state.topic_book import partition_mark
from lbcore.bridge.anomalies import Memory, ProbeRound, Trouble, anomalies
from lbcore.bridge.answers import Claims, TopicTable, looked_up, parse_claims, parse_topics
from lbcore.bridge.owner_lookup import lookup_path
from lbcore.bridge.reports import SentReports, measured_modular, partitions_in, report_topics
from lbcore.config.splitting import Splitting
from lbcore.model.bundles import Bundle
from lbcore.wire.messages import Rejected
from lbcore.wire.pulsar import parse_pulsar_report

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
        _, messages = report_topics(SentReports(), measured, table, Splitting(), 1_000)
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
    assert lookup_path("persistent://a/use/b/c") == "/lookup/v2/topic/persistent/a/use/b/c"
