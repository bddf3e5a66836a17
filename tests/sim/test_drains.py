"""Brokers that are drained, stopped in order, forgotten and filled again."""

import json
from collections import Counter
from pathlib import Path

import pytest

from jobs.adapters.delta.table_reader import TableReader
from jobs.operating.plans import undo_moves
from lbcore.agent.state import Stop, Stopped
from lbcore.config.tree import Config
from lbcore.explain.bundle import explain_bundle
from tests.support.values.clusters import few
from tests.support.worlds.checked_world import (
    CheckedWorld,
    decided,
    most_unserved,
    newest,
    outcome,
    owners,
    running,
)
from tests.support.worlds.explained_world import about, write_tables
from tests.support.worlds.simulated_brokers import Broker
from tests.support.worlds.world import CLUSTER, World, copied, gapless, is_settled


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


def test_second_drain_of_a_broker_is_refused_with_what_is_left() -> None:
    world = running(bundles=40)
    world.command("drain_broker", broker="broker-1:8080", max_in_flight=1)
    world.run(5_000)
    again = world.command("drain_broker", broker="broker-1:8080")
    world.run(2_000)
    row = outcome(world, again)
    assert row["status"] == "refused"
    assert "is being drained already" in str(row["reason"])


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


def test_drain_of_a_clock_that_was_ahead_is_given_up_in_time_after_the_rebuild() -> None:
    world = running(bundles=40)
    world.command("pause", namespace="t/n", reason="works")
    drain = world.command("drain_broker", broker="broker-1:8080", deadline_ms=15_000)
    world.run(2_000)
    (row,) = [row for row in world.other_rows["policies"] if row["kind"] == "drain"][-1:]
    value = json.loads(str(row["value"]))
    ahead = {key: value[key] + 3_600_000 for key in ("since_ms", "deadline_ms")}
    row["value"] = json.dumps({**value, **ahead})
    world.rebuild_job()
    world.run(20_000)
    assert outcome(world, drain)["status"] == "timed_out"


def test_drain_waits_for_a_bundle_that_is_on_its_way_to_the_broker() -> None:
    world = running(bundles=1)
    world.command("pause")
    ((bundle, owner),) = owners(world).items()
    broker = next(name for name in world.brokers if name != owner)
    world.brokers[owner].is_hanging = True  # it closes the bundle later
    world.command("unload_bundle", bundle=bundle, destination=broker)
    world.run(3_000)
    command_id = world.command("drain_broker", broker=broker)
    world.run(5_000)
    assert owners(world)[bundle] == broker
    assert outcome(world, command_id)["status"] == "accepted"
    world.brokers[owner].is_hanging = False
    world.command("resume")
    world.run(30_000)
    assert outcome(world, command_id)["status"] == "done"
    assert owners(world)[bundle] != broker
    assert is_settled(world)


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


BROKER = "broker-1:8080"


@copied
def drained() -> CheckedWorld:
    """A cluster whose broker-1 was emptied and takes bundles again."""
    world = running()
    world.rates = dict.fromkeys(owners(world), 500.0)
    drain(world)
    return world


def drain(world: World) -> None:
    world.command("drain_broker", broker=BROKER)
    world.run(30_000)
    assert BROKER not in owners(world).values()
    world.command("cancel_drain", broker=BROKER)
    world.run(2_000)


def found_way(world: World, root: Path, broker: str = BROKER) -> tuple[dict[str, str], list[str]]:
    write_tables(world, root)
    return undo_moves(TableReader(root, CLUSTER), drain=broker)


def fill(world: World, moves: dict[str, str]) -> list[str]:
    """Propose the moves and approve them; what became of each."""
    asked = world.command("propose_plan", moves=moves, why="fill it again")
    world.run(2_000)
    name = json.loads(str(outcome(world, asked)["result"]))["plan"]
    world.command("approve_plan", plan=name)
    world.run(60_000)
    assert is_settled(world)
    assert world.state is not None
    return [step.became for step in world.state.rules.proposals[name].steps]


def test_all_that_a_drain_took_away_goes_back(tmp_path: Path) -> None:
    world = running()
    world.rates = dict.fromkeys(owners(world), 500.0)
    before = owners(world)
    drain(world)
    moves, left = found_way(world, tmp_path)
    assert moves == {name: BROKER for name, owner in before.items() if owner == BROKER}
    assert left == []
    assert set(fill(world, moves)) == {"done"}
    assert owners(world) == before


def test_policies_set_since_keep_the_bundles_away(tmp_path: Path) -> None:
    world = drained()
    moves, _ = found_way(world, tmp_path)
    others = ["broker-0.*", "broker-2.*", "broker-3.*"]
    world.command("set_isolation_policy", policy="p", namespaces=["t/n"], primary=others)
    world.run(5_000)
    before = owners(world)
    assert set(fill(world, moves)) == {f"isolation policies keep it from {BROKER}"}
    assert owners(world) == before


CONFIG = Config()
STOP_MAX_MS = CONFIG.agent.shutdown_timeout_ms + CONFIG.agent.stop_grace_ms
TIMEOUT_MS = CONFIG.ownership.broker_timeout_ms
STEP_MS = 500


class StoppingWorld(CheckedWorld):
    """A world whose brokers can be told to stop; a process ends when its agent says so.

    ended: when each one ended, and what was not moved away in time.
    """

    def __init__(self, brokers: int) -> None:
        self.ended: dict[str, tuple[int, tuple[str, ...]]] = {}
        super().__init__(CONFIG, brokers, seed=3)

    def stop(self, name: str) -> None:
        """SIGTERM."""
        self.advance(self.brokers[name], [Stop()])

    def stopped(self, broker: Broker, last: Stopped) -> None:
        """Note it; the process ends with the moment."""
        self.ended[broker.name] = (self.now_ms, last.left)

    def _step_broker(self, broker: Broker) -> None:
        super()._step_broker(broker)
        if broker.agent is not None and broker.agent.state.is_stopped:
            self.kill(broker.name)


@copied
def stopping(brokers: int, bundles: int) -> StoppingWorld:
    world = StoppingWorld(brokers)
    world.run(2_000)
    world.command("create_namespace", namespace="t/n", bundles=bundles)
    world.run(25_000)
    assert is_settled(world)
    return world


def mine(world: StoppingWorld, name: str = BROKER) -> set[str]:
    return {bundle for bundle, owner in owners(world).items() if owner == name}


def test_broker_told_to_stop_hands_on_every_bundle_is_not_missed_and_comes_back() -> None:
    world = stopping(4, 24)
    assert len(mine(world)) == 6
    begun_ms = world.now_ms
    world.stop(BROKER)
    longest = most_unserved(world, 40_000)
    ended_ms, left = world.ended[BROKER]
    assert (left, mine(world)) == ((), set())
    assert ended_ms - begun_ms < CONFIG.agent.shutdown_timeout_ms
    assert longest * STEP_MS < TIMEOUT_MS  # each was moved, none waited to be missed
    assert gapless(world)
    assert is_settled(world)
    before = len(world.events)
    world.run(TIMEOUT_MS * 2)
    assert len(world.events) == before
    assert world.state is not None
    assert world.state.rules.brake is None
    world.start(BROKER)
    world.rates = dict.fromkeys(owners(world), 1_000.0)
    world.run(180_000)
    assert mine(world)
    assert is_settled(world)


def test_all_brokers_but_one_stopped_together_leave_everything_to_it_without_a_brake() -> None:
    world = stopping(4, 24)
    for name in ("broker-1:8080", "broker-2:8080", "broker-3:8080"):
        world.stop(name)
    world.run(STOP_MAX_MS + TIMEOUT_MS * 2)
    assert {left for _, left in world.ended.values()} == {()}
    assert len(world.ended) == 3
    assert set(owners(world).values()) == {"broker-0:8080"}
    assert world.state is not None
    assert world.state.rules.brake is None
    assert is_settled(world)


def test_broker_without_anybody_to_take_its_bundles_ends_in_its_time_and_says_what_is_left() -> (
    None
):
    world = stopping(1, 4)
    name = "broker-0:8080"
    every = mine(world, name)
    begun_ms = world.now_ms
    world.stop(name)
    world.run(STOP_MAX_MS + 5_000)
    ended_ms, left = world.ended[name]
    assert set(left) == every
    assert CONFIG.agent.shutdown_timeout_ms <= ended_ms - begun_ms <= STOP_MAX_MS
    world.start(name)
    world.run(TIMEOUT_MS * 2)
    assert mine(world, name) == every
    assert is_settled(world)


def test_broker_stopped_while_the_job_is_away_gives_back_what_the_job_then_places() -> None:
    world = stopping(3, 12)
    world.job.is_away = world.job.are_ticks_away = True
    every = mine(world)
    begun_ms = world.now_ms
    world.stop(BROKER)
    world.run(STOP_MAX_MS + 2_000)
    ended_ms, left = world.ended[BROKER]
    assert ended_ms - begun_ms <= STOP_MAX_MS
    assert set(left) == every
    world.job.is_away = world.job.are_ticks_away = False
    world.run(TIMEOUT_MS - 5_000)  # by its word that it gave them back, not by its silence
    assert mine(world) == set()
    world.run(20_000)
    assert is_settled(world)


def test_callback_that_hangs_does_not_keep_a_stopping_broker_for_ever() -> None:
    world = stopping(3, 12)
    broker = world.brokers[BROKER]
    world.stop(BROKER)
    for _ in range((STOP_MAX_MS + TIMEOUT_MS * 3) // STEP_MS):
        broker.calls = [(world.now_ms + 3_600_000, call) for _, call in broker.calls]
        world.run(STEP_MS)
    assert world.ended[BROKER][1]
    assert mine(world) == set()
    assert is_settled(world)


@pytest.mark.parametrize("seed", few(range(4), 2))
def test_brokers_stopped_one_by_one_on_a_bad_network_leave_no_bundle_behind(seed: int) -> None:
    world = stopping(4, 16)
    world.random.seed(seed)
    world.faults.lost, world.faults.repeated, world.faults.delay_ms = 0.1, 0.1, 1_500
    for name in sorted(world.brokers):
        world.stop(name)
        world.run(STOP_MAX_MS + 1_000)
        assert name in world.ended
        world.start(name)
        world.run(TIMEOUT_MS)
    world.faults.lost = world.faults.repeated = 0.0
    world.faults.delay_ms = 0
    world.run(TIMEOUT_MS * 4)
    assert gapless(world)
    assert is_settled(world)
