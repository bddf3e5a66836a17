"""Status, page, explain and metrics say the same of the same moment, in random small worlds."""

import json
from collections import Counter

import pytest

from lbcore.balancer.candidate_rows import BLOCKED_ALARM_S, VALID_MS
from lbcore.explain.explanation import percent
from lbcore.model.times import duration, instant
from lbcore.ownership.changes import serving_broker
from lbcore.signals.shown_load import groups_line
from tests.support.worlds.agreeing_world import (
    AgreeingWorld,
    Said,
    everything_said,
    happen,
    random_world,
    reserved_world,
)
from tests.support.worlds.checked_world import owners

SEEDS = (26, 36, 8)
"""The world of the last one has a blocked broker again and again."""
MOMENTS = 6
EXACT = 1e-9


def agree_on_the_state(said: Said) -> None:
    status, page = said.status, said.page["status"]
    plain = json.loads(json.dumps(status.to_json()))
    del plain["in_flight"]
    assert {name: page[name] for name in plain} == plain
    assert said.lines.startswith(f"{status.cluster}: {status.headline} – ")
    states = said.by("ballast_brokers", "state")
    assert {name: n for (name,), n in states.items() if n} == dict(status.brokers)
    states = {name: n for (name,), n in said.by("ballast_bundles", "state").items() if n}
    states.pop("Deleted", None)  # its label says that these are none
    assert states == dict(status.bundles)
    assert said.cluster.numbers["bundles"] == dict(status.bundles)
    assert said.cluster.numbers["brokers"] == dict(status.brokers)
    assert ("" in status.pauses) == bool(sum(said.by("ballast_paused").values()))
    told = [text for text in said.cluster.blocks if text.startswith("no cycles")]
    assert told == [gap.message() for gap in status.gaps] == page["gap_messages"]
    drains = {(one.broker,): float(one.left) for one in status.drains}
    assert said.by("ballast_drain_remaining_bundles", "broker") == drains


def agree_on_load(said: Said) -> None:
    live = [row for row in said.status.broker_rows if row.usage is not None]
    assert said.cluster.numbers["usage"] == {row.broker: percent(row.usage or 0.0) for row in live}
    resource = said.by("pulsar_lb_resource_usage", "broker", "feature")
    for metric, values in (
        ("ballast_broker_usage", {row.broker: row.usage for row in live}),
        ("ballast_broker_messages_per_second", {row.broker: row.msg_rate for row in live}),
    ):
        shown = {name: value for (name,), value in said.by(metric, "broker").items()}
        assert shown == pytest.approx(values, rel=EXACT), metric
    for row in live:
        assert resource[row.broker, "max_ema"] == pytest.approx(row.score, rel=EXACT)
        numbers = said.brokers[row.broker].numbers
        assert (numbers["usage"], numbers["score"]) == (
            percent(row.usage or 0.0),
            percent(row.score or 0.0),
        )
        assert numbers["msg/s"] == row.msg_rate
        age_s = said.by("ballast_report_age_seconds", "broker")[row.broker,]
        assert row.load_age_ms == 1_000 * age_s
        ago = (
            f"(reported {instant(said.now_ms - row.load_age_ms)}, {duration(row.load_age_ms)} ago)"
        )
        assert ago in said.brokers[row.broker].headline
    for row in said.status.broker_rows:
        assert said.brokers[row.broker].headline.startswith(f"{row.broker} is {row.state} and")
        if row.usage is None:
            assert "its load is not known" in said.brokers[row.broker].headline


def agree_on_the_imbalance(said: Said) -> None:
    uneven = said.status.imbalance
    shown = said.by("ballast_imbalance")
    if uneven is None:
        assert not shown
        return
    assert shown[()] == pytest.approx(uneven, rel=EXACT)
    assert said.page["balance"][-1]["imbalance"] == pytest.approx(uneven, rel=EXACT)
    assert f"imbalance {uneven:.2f} (message rates" in said.cluster.headline
    assert f"imbalance {uneven:.2f} (message rates" in said.lines


def agree_on_groups(said: Said) -> None:
    """What is said of a broker and of the cluster is of each broker's own group."""
    groups = said.status.groups
    rows = {row.broker: row for row in said.status.broker_rows}
    for group in groups:
        usages = [rows[name].usage or 0.0 for name in group.brokers]
        assert group.mean == pytest.approx(sum(usages) / len(usages), rel=EXACT)
        for name in group.brokers:
            headline = said.brokers[name].headline
            assert f"the mean of its group {percent(group.mean)}" in headline
            assert f" of {len(group.brokers)} (reported" in headline
    text = groups_line(groups)
    assert [f"isolation groups: {text}"] * bool(groups) == [
        line for line in said.cluster.why if line.startswith("isolation groups")
    ]
    assert (f"  groups  {text}" in said.lines.splitlines()) == bool(groups)
    assert said.page["status"]["groups"] == json.loads(json.dumps(said.status.to_json()))["groups"]


def agree_on_who_is_blocked(said: Said) -> None:
    blocked = said.status.blocked
    seconds = {(one.broker, one.reason): (said.now_ms - one.since_ms) / 1_000 for one in blocked}
    assert said.by("ballast_broker_blocked_seconds", "broker", "reason") == seconds
    for broker, found in said.brokers.items():
        words = [one.message for one in blocked if one.broker == broker]
        assert [text for text in found.blocks if " and gives nothing: " in text] == words
        assert set(words) <= set(said.cluster.blocks)
    lasting = {one.message for one in blocked if seconds[one.broker, one.reason] >= BLOCKED_ALARM_S}
    for alarms in (said.status.alarms, said.page["status"]["alarms"]):
        assert {text for text in alarms if " and gives nothing: " in text} == lasting


def agree_on_bundles(said: Said) -> None:
    owned = Counter(serving_broker(record) for record in said.records)
    shown = said.by("pulsar_sunit_state_chn_owned_su_total", "broker")
    pins = {row["bundle"]: row["broker"] for row in said.status.pins}
    for row in said.status.broker_rows:
        assert row.bundles == owned[row.broker] == shown[row.broker,]
        assert said.brokers[row.broker].numbers["bundles"] == row.bundles
    cooling: Counter[str] = Counter()
    for record in said.records:
        name, owner = str(record["bundle"]), serving_broker(record)
        found = said.bundles[name]
        if record["state"] == "Owned":
            assert f"{name} is owned by {owner} since" in found.headline
        held = [text for text in found.blocks if text.startswith("pinned to")]
        assert [text.split()[2] for text in held] == ([pins[name]] if name in pins else [])
        cooling[owner] += any("it got another owner" in text for text in found.blocks)
    for broker, found in said.brokers.items():
        told = [text for text in found.blocks if " came less than " in text]
        assert sum(int(text.split()[0]) for text in told) == cooling[broker], broker


def agree(said: Said) -> None:
    agree_on_the_state(said)
    agree_on_load(said)
    agree_on_the_imbalance(said)
    agree_on_groups(said)
    agree_on_who_is_blocked(said)
    agree_on_bundles(said)


def test_status_page_explain_and_metrics_agree() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        world, dice = random_world(seed)
        for _ in range(MOMENTS):
            happen(world, dice)
            said = everything_said(world)
            agree(said)
            seen["is blocked"] += len(said.status.blocked)
            seen["is pinned"] += len(said.status.pins)
        seen.update(str(row["kind"]) for row in world.decisions)
    missing = {"is blocked", "is pinned", "drain", "failover", "transfer"} - set(+seen)
    assert not missing, f"these worlds have nothing of it: {missing}"
    while not everything_said(world).status.blocked:
        happen(world, dice)
    check_that_a_long_pause_blocks_nobody(world)


def check_that_a_long_pause_blocks_nobody(world: AgreeingWorld) -> None:
    world.command("pause", reason="upgrade")
    world.run(VALID_MS + 60_000, step_ms=2_500)
    said = everything_said(world)
    agree(said)
    assert not said.status.blocked


def test_idle_brokers_that_a_policy_reserves_raise_no_alarm() -> None:
    """Six brokers balanced within a few per cent, beside two with a hundredth of the load."""
    world = reserved_world()
    said = everything_said(world)
    agree(said)
    assert said.status.alarms == ()
    assert [len(group.brokers) for group in said.status.groups] == [6, 2]
    assert said.status.imbalance is not None
    assert said.status.imbalance < 1.1
    assert said.by("ballast_floor_adjusted_imbalance")[()] < 1.1
    assert "2 by isolation policies: broker-0:8080 and 5 more mean" in said.lines
    world.command("drain_broker", broker="broker-7:8080")
    world.run(60_000)
    said = everything_said(world)
    agree(said)
    assert "it is in no isolation group" in said.brokers["broker-7:8080"].headline
    world.command("delete_isolation_policy", policy="stores")
    world.run(20_000)
    said = everything_said(world)
    agree(said)
    assert said.status.groups == ()
    assert "group" not in said.lines


def test_hot_broker_of_an_idle_group_is_judged_by_the_mean_of_its_own_group() -> None:
    """It is far below the mean of the whole cluster, and five times that of its neighbour."""
    world = reserved_world(stores=(850.0, 20.0))
    for bundle, owner in sorted(owners(world).items()):
        if owner == "broker-6:8080":
            world.command("pin_bundle", bundle=bundle, broker=owner)
    world.run(240_000)
    said = everything_said(world)
    agree(said)
    (blocked,) = said.status.blocked
    idle = said.status.groups[1]
    assert blocked.broker == "broker-6:8080"
    assert f"mean {100 * idle.mean:.0f} %" in blocked.message
