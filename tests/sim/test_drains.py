"""Brokers that are emptied, stopped and forgotten, in a cluster in virtual time."""

import json
from collections import Counter

from lbcore.explain.bundle import explain_bundle
from tests.support.worlds.checked_world import (
    decided,
    most_unserved,
    newest,
    outcome,
    owners,
    running,
)
from tests.support.worlds.explained_world import about
from tests.support.worlds.world import gapless, is_settled


def test_drain_under_load_empties_the_broker_and_no_bundle_is_unserved_for_long() -> None:
    world = running(bundles=40)
    world.rates = dict.fromkeys(owners(world), 500.0)
    broker = "broker-1:8080"
    total = Counter(owners(world).values())[broker]
    command_id = world.command("drain_broker", broker=broker, max_in_flight=2)
    first = len(world.events)
    assert most_unserved(world, 60_000) <= 8  # a transfer: closing, an ack, a batch, opening
    assert broker not in owners(world).values()
    assert is_settled(world)
    assert gapless(world)
    assert newest(world, "brokers", "broker")[broker,]["state"] == "draining"
    assert outcome(world, command_id)["status"] == "done"
    assert len(decided(world, "drain", "Draining")) == total
    moving, most = set(), 0
    for row in world.events[first:]:
        if row["source"] == broker and row["state"] in ("Releasing", "Assigning"):
            moving.add(row["bundle"])
        else:
            moving.discard(row["bundle"])
        most = max(most, len(moving))
    assert most == 2


def test_drained_broker_takes_nothing_and_may_leave_and_be_forgotten() -> None:
    world = running()
    broker = "broker-1:8080"
    world.command("drain_broker", broker=broker)
    world.run(20_000)
    world.kill("broker-2:8080")
    world.run(30_000)
    assert broker not in owners(world).values()
    before = len(world.events)
    refused = world.command("forget_broker", broker=broker)
    world.kill(broker)
    world.run(30_000)
    assert len(world.events) == before
    assert "alive" in str(outcome(world, refused)["reason"])
    world.command("forget_broker", broker=broker)
    world.run(2_000)
    assert newest(world, "brokers", "broker")[broker,]["state"] == "forgotten"
    assert world.state is not None
    assert broker not in world.state.brokers
    world.start(broker)
    world.run(5_000)
    assert newest(world, "brokers", "broker")[broker,]["state"] == "active"


def test_drain_cancelled_opens_the_broker_again() -> None:
    world = running(bundles=40)
    broker = "broker-1:8080"
    drain = world.command("drain_broker", broker=broker, max_in_flight=1)
    world.run(5_000)
    cancel = world.command("cancel_drain", broker=broker)
    world.run(30_000)
    assert outcome(world, cancel)["status"] == "done"
    assert "cancelled" in str(outcome(world, drain)["reason"])
    assert broker in owners(world).values()
    assert newest(world, "brokers", "broker")[broker,]["state"] == "active"
    assert newest(world, "policies", "kind", "name")["drain", broker]["is_set"] is False


def test_drain_past_its_deadline_is_given_up_with_the_reason() -> None:
    world = running(bundles=40)
    broker = "broker-1:8080"
    world.command("pause", namespace="t/n", reason="works")
    drain = world.command("drain_broker", broker=broker, deadline_ms=15_000)
    world.run(20_000)
    row = outcome(world, drain)
    assert row["status"] == "timed_out"
    assert "deadline" in row["reason"]
    assert decided(world, "drain", "GivenUp")
    assert newest(world, "brokers", "broker")[broker,]["state"] == "active"


def test_drain_shows_its_progress_in_the_table() -> None:
    world = running(bundles=64)
    broker = "broker-1:8080"
    world.command("drain_broker", broker=broker, max_in_flight=1)
    world.run(25_000)
    rows = [r for r in world.other_rows["policies"] if r["kind"] == "drain"]
    assert len(rows) >= 3
    shown = [r["value"] for r in rows]
    assert '"estimated_end_ms":0' in str(shown[0])
    assert '"estimated_end_ms":0' not in str(shown[-1])


def test_drain_without_anybody_to_take_the_bundles_is_refused() -> None:
    world = running(1, 4)
    command_id = world.command("drain_broker", broker="broker-0:8080")
    world.run(2_000)
    assert "start another broker" in str(outcome(world, command_id)["reason"])


def test_drain_of_hot_bundles_does_not_all_go_to_the_broker_that_has_just_started() -> None:
    world = running(4, 56)
    world.rates = dict.fromkeys(owners(world), 400.0)
    world.run(200_000)
    world.kill("broker-1:8080")
    world.run(60_000)
    hot = [bundle for bundle, owner in owners(world).items() if owner == "broker-2:8080"]
    world.rates = {**world.rates, **dict.fromkeys(hot, 1_500.0)}
    world.run(30_000)
    world.start("broker-1:8080")
    world.run(8_000)
    world.command("drain_broker", broker="broker-2:8080")
    world.run(4_000)
    went = Counter(str(row["destination"]) for row in decided(world, "drain", "Draining"))
    carried: Counter[str] = Counter()
    for bundle, owner in owners(world).items():
        carried[owner] += world.rates[bundle]
    fair = sum(carried.values()) / 3
    assert went.total() == len(hot)
    assert went["broker-1:8080"] > max(went["broker-0:8080"], went["broker-3:8080"])
    assert carried["broker-1:8080"] <= fair + max(world.rates.values()), carried


def test_drain_breaks_pins_says_which_and_they_come_back_when_it_is_cancelled() -> None:
    world = running(bundles=24)
    broker = "broker-1:8080"
    bundle = min(name for name, owner in owners(world).items() if owner == broker)
    world.command("pin_bundle", bundle=bundle, broker=broker, reason="release day")
    world.run(3_000)
    drain = world.command("drain_broker", broker=broker)
    world.run(20_000)
    told = json.loads(str(outcome(world, drain)["result"]))
    assert told["pins_broken"] == [bundle]
    assert [row["bundle"] for row in decided(world, "pin", "Broken")] == [bundle]
    owner = owners(world)[bundle]
    assert owner != broker
    found = explain_bundle(about(world, bundle), bundle)
    assert found is not None
    (pinned,) = [text for text in found.blocks if text.startswith("pinned to")]
    assert pinned.endswith(
        f"; it is at {owner} because {broker} is being emptied: it comes back when {broker} takes "
        "bundles again"
    )
    world.command("cancel_drain", broker=broker)
    world.run(30_000)
    assert owners(world)[bundle] == broker
