"""Ownership of another authority, and reports that contradict the records."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lbcore.agent.reporting import LoadRead
from lbcore.balancer.batch_context import BalancerState
from lbcore.balancer.effects import RESEND, TOMBSTONE, Effect
from lbcore.config.tree import Config, changed
from lbcore.model.bundles import Bundle
from lbcore.ownership.records import State
from lbcore.scorer.group_update import Arrivals, BundleReport, GroupUpdate
from tests.support.worlds.checked_world import CheckedWorld, decided, outcome, owners
from tests.support.worlds.simulated_brokers import Broker
from tests.support.worlds.stories import begun, unsettled
from tests.support.worlds.world import World

NS = "t/n"
LEFT, RIGHT = f"{NS}/0x00000000_0x80000000", f"{NS}/0x80000000_0xffffffff"
BROKERS = ("broker-0:8080", "broker-1:8080", "broker-2:8080")
HALVES = [0, 0x80000000, 0xFFFFFFFF]
MINUTES = 300_000


def mirrored(**settings: Any) -> CheckedWorld:
    """Two bundles, owned by the first broker as the bridge has seen it."""
    known: dict[str, Any] = {
        "cluster.authority": "external",
        "ownership.in_flight_timeout_ms": 120_000,
        "ownership.unload_timeout_ms": 120_000,
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    world = CheckedWorld(changed(Config(), known), len(BROKERS), seed=3)
    world.run(5_000)
    observe(world, brokers=list(BROKERS), namespaces={NS: HALVES})
    world.run(5_000)
    seen(world, {LEFT: BROKERS[0], RIGHT: BROKERS[0]})
    return world


def observe(world: World, **arguments: Any) -> str:
    known: dict[str, Any] = {"namespaces": {}, "owners": {}, **arguments}
    return world.command("observe_ownership", **known)


def seen(world: World, where: Mapping[str, str], *, behind: int = 0) -> str:
    """What the bridge tells: each bundle at the version of its record (or so many behind)."""
    versions = {str(row["bundle"]): int(str(row["version_id"])) for row in world.newest()}
    owned = {
        bundle: [versions[bundle] - behind, broker, incarnation(world, broker)]
        for bundle, broker in where.items()
    }
    command = observe(world, owners=owned)
    world.run(3_000)
    return command


def incarnation(world: World, broker: str) -> str:
    return f"{broker}/{world.brokers[broker].starts}" if broker else ""


def record(world: World, bundle: str) -> Mapping[str, Any]:
    return next(row for row in world.newest() if row["bundle"] == bundle)


def result(world: World, command_id: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(outcome(world, command_id)["result"])
    return found


def test_move_by_another_hand_is_followed() -> None:
    world = mirrored()
    seen(world, {LEFT: BROKERS[2]})
    assert owners(world) == {LEFT: BROKERS[2], RIGHT: BROKERS[0]}
    seen(world, {LEFT: ""})
    assert record(world, LEFT)["state"] == "Free"


def test_observation_of_an_older_record_changes_nothing() -> None:
    world = mirrored()
    command = seen(world, {LEFT: BROKERS[1]}, behind=1)
    assert owners(world)[LEFT] == BROKERS[0]
    assert result(world, command)["late"] == 1


def test_silence_alone_moves_nothing_and_the_list_says_who_is_gone() -> None:
    world = mirrored()
    world.kill(BROKERS[0])
    world.run(MINUTES)
    assert set(owners(world).values()) == {BROKERS[0]}
    assert all(row["state"] == "Owned" for row in world.newest())
    observe(world, brokers=list(BROKERS[1:]))
    world.run(3_000)
    assert [row["state"] for row in world.other_rows["brokers"] if row["broker"] == BROKERS[0]][
        -1
    ] == "silent"
    seen(world, {LEFT: BROKERS[1], RIGHT: BROKERS[2]})
    assert owners(world) == {LEFT: BROKERS[1], RIGHT: BROKERS[2]}


def test_split_by_another_hand_makes_children_above_the_parents_version() -> None:
    world = mirrored()
    before = int(record(world, LEFT)["version_id"])
    observe(world, namespaces={NS: [0, 0x40000000, 0x80000000, 0xFFFFFFFF]})
    world.run(3_000)
    rows = {row["bundle"]: row for row in world.newest()}
    assert rows[LEFT]["state"] == "Deleted"
    for child in (f"{NS}/0x00000000_0x40000000", f"{NS}/0x40000000_0x80000000"):
        assert rows[child]["state"] == "Free"
        assert int(rows[child]["version_id"]) > before
    assert rows[RIGHT]["destination"] == BROKERS[0]


def test_namespace_that_is_gone_is_deleted_and_may_come_again() -> None:
    world = mirrored()
    observe(world, namespaces={NS: []})
    world.run(3_000)
    assert {row["state"] for row in world.newest()} == {"Deleted"}
    observe(world, namespaces={NS: HALVES})
    world.run(3_000)
    assert {row["bundle"] for row in world.newest() if row["state"] == "Free"} == {LEFT, RIGHT}


def test_command_that_the_authority_overtakes_says_where_the_bundle_is_now() -> None:
    world = mirrored()
    world.kill(BROKERS[0])
    command = world.command("unload_bundle", bundle=LEFT, destination=BROKERS[1])
    world.run(2_000)
    seen(world, {LEFT: BROKERS[2]})
    found = outcome(world, command)
    assert found["status"] == "failed"
    assert f"overtaken by external and is Owned at {BROKERS[2]}: send" in found["reason"]


def test_command_that_the_bridge_answers_as_failed_ends_in_its_words() -> None:
    world = mirrored()
    world.faults = replace(world.faults, failing=1.0)
    command = world.command("unload_bundle", bundle=LEFT, destination=BROKERS[1])
    world.run(10_000)
    found = outcome(world, command)
    assert (found["status"], owners(world)[LEFT]) == ("failed", BROKERS[0])
    assert f"stayed with {BROKERS[0]}, which did not close it: " in found["reason"]
    assert "out of order" in found["reason"]


def policy(*primary: str) -> dict[str, Any]:
    return {
        "namespaces": ["t/.*"],
        "primary": list(primary),
        "secondary": [],
        "min_limit": 1,
        "usage_threshold_percent": 100,
    }


def test_policies_of_the_authority_stand_instead_of_ours_and_hold() -> None:
    world = mirrored(cluster__observe_only=False)
    told = {"mine": policy("broker-1"), "broken": {**policy("("), "namespaces": ["u/.*"]}}
    command = world.command("observe_policies", isolation=told, anti_affinity={NS: "g"})
    world.rates = {LEFT: 30_000.0, RIGHT: 30_000.0}
    world.run(MINUTES)
    found = result(world, command)
    assert (found["isolation"], found["anti_affinity"], list(found["unusable"])) == (
        2,
        1,
        ["broken"],
    )
    assert BROKERS[2] not in owners(world).values()
    assert BROKERS[1] in owners(world).values()
    world.command("observe_policies", isolation={}, anti_affinity={})
    world.run(2_000)
    kept = {(row["kind"], row["name"]): row["is_set"] for row in world.other_rows["policies"]}
    assert kept == {
        ("isolation", "mine"): False,
        ("isolation", "broken"): False,
        ("anti_affinity", NS): False,
    }


def test_cluster_that_is_only_observed_has_plans_and_moves_nothing() -> None:
    world = mirrored(cluster__observe_only=True, splitting__enabled=False)
    world.rates = {LEFT: 3_000.0, RIGHT: 3_000.0}
    world.run(MINUTES)
    moves = decided(world, "transfer")
    assert moves
    assert all("observe_only" in str(row["inputs"]) for row in moves)
    assert owners(world) == {LEFT: BROKERS[0], RIGHT: BROKERS[0]}
    world.command("set_config", values={"cluster.observe_only": False})
    world.run(MINUTES)
    assert len({owner for owner in owners(world).values() if owner}) > 1


def test_bundle_that_pulsar_no_longer_reports_loses_its_load() -> None:
    world = mirrored(cluster__observe_only=True, splitting__enabled=False)
    world.rates = {LEFT: 1_000.0, RIGHT: 1_000.0}
    world.run(MINUTES)
    state, now_ms = world.state, world.now_ms
    assert state is not None
    update = bundle_report(world, BROKERS[0], [], now_ms)
    (report,) = update.bundles
    at = report.names.index(RIGHT)
    report = replace(report, names=[RIGHT], stats=report.stats[[at]])
    left, right = (state.ledger.index[bundle] for bundle in (LEFT, RIGHT))
    before = state.ledger.short[left].sum()
    assert before > 0.0
    for number in range(1, 11):
        reported = replace(report, reported_ms=now_ms + number * 1_000)
        step = world.job.balancer.step(
            state, [replace(update, bundles=(reported,))], now_ms + number * 1_000
        )
        assert step.state is not None
        state = step.state
    assert state.ledger.short[left].sum() < before / 2
    assert state.ledger.topics[left] == 0
    assert state.ledger.short[right].sum() > 0.0


CONFIG = Config()
IN_FLIGHT_MS = CONFIG.ownership.in_flight_timeout_ms
REPORT_MS = CONFIG.signals.report_max_interval_ms
ONE, TWO = "broker-0:8080", "broker-1:8080"


class LyingWorld(CheckedWorld):
    """lies: broker → what it reports otherwise: bundle → whether it says that it has it."""

    def __init__(self, config: Config, brokers: int, *, seed: int = 0) -> None:
        self.lies: dict[str, Mapping[str, bool]] = {}
        self.resent: list[Mapping[str, object]] = []
        super().__init__(config, brokers, seed=seed)

    def load(self, broker: Broker) -> LoadRead:
        read = super().load(broker)
        lies = self.lies.get(broker.name, {})
        bundles = {*read.bundles, *(b for b in lies if lies[b])} - {b for b in lies if not lies[b]}
        stats = read.stats[:1].repeat(len(bundles), axis=0)
        return replace(read, bundles=tuple(sorted(bundles)), stats=stats)

    def take_effects(self, effects: Sequence[Effect]) -> None:
        super().take_effects(effects)
        self.resent += [row for effect in effects if effect.kind == RESEND for row in effect.rows]

    def counted(self, name: str) -> int:
        """The sum of a count over all batches."""
        return sum(report["counts"].get(name, 0) for report in self.reports)  # type: ignore[attr-defined]


def lying() -> LyingWorld:
    world = LyingWorld(CONFIG, 2, seed=3)
    begun(world, 4)
    assert not world.resent
    return world


def a_bundle_of(world: LyingWorld, broker: str) -> str:
    return min(str(row["bundle"]) for row in world.newest() if row["destination"] == broker)


def test_record_that_its_new_owner_never_read_is_sent_again_and_opened() -> None:
    """The old owner reports on what it does not know to be another's, until it reads of it."""
    world = lying()
    world.cut_off(ONE, is_cut_off=True)
    world.run(30_000)
    world.brokers[ONE].inbox.clear()
    world.cut_off(ONE, is_cut_off=False)
    world.run(2 * REPORT_MS + IN_FLIGHT_MS)
    assert world.counted("reported_not_owned") > 0
    assert world.resent
    assert not unsettled(world)


def test_disagreement_raises_the_alarm_only_when_sending_again_has_not_helped() -> None:
    world = lying()
    world.lies = {ONE: {a_bundle_of(world, TWO): True}}
    world.run(REPORT_MS + 5_000)
    assert world.counted("resent") > 0
    assert world.counted("disagreement_lasts") == 0
    world.run(2 * REPORT_MS)
    assert world.counted("disagreement_lasts") > 0


def test_report_stamped_by_a_clock_an_hour_behind_is_as_old_as_its_batch() -> None:
    """Also where the batches' time is ahead, since a clock was: it waits for the others to come."""
    world = lying()
    bundle = a_bundle_of(world, TWO)
    assert world.state is not None
    report = bundle_report(world, ONE, [bundle, "lost/n/0x0_0x1"], world.now_ms - 3_600_000)
    step = world.job.balancer.step(world.state, [report], world.now_ms)
    sent = {
        effect.kind: [row["bundle"] for row in effect.rows]
        for effect in step.effects
        if effect.kind in (RESEND, TOMBSTONE)
    }
    assert sent == {RESEND: [bundle], TOMBSTONE: ["lost/n/0x0_0x1"]}


def test_child_served_before_its_record_is_not_closed_by_the_record_of_an_earlier_life() -> None:
    world = lying()
    parent = a_bundle_of(world, ONE)
    whole = Bundle.parse(parent)
    half = replace(whole.range, upper=(whole.range.lower + whole.range.upper) // 2)
    left = replace(whole, range=half).name
    assert world.state is not None
    record = world.state.ledger.record(parent)
    assert record is not None
    gone = replace(record, bundle=left, state=State.DELETED, source=ONE, destination="")
    splitting = replace(
        record,
        state=State.SPLITTING,
        version_id=record.version_id + 1,
        source=record.destination,
        source_incarnation=record.destination_incarnation,
        destination="",
        destination_incarnation="",
        children={left: ""},
    )
    for records, is_sent in (([gone], True), ([gone, splitting], False)):
        ledger = world.state.ledger.copy()
        ledger.add([left])
        for made in records:
            ledger.put(made, world.state.times.clock_ms)
        report = bundle_report(world, ONE, [left], world.now_ms)
        step = world.job.balancer.step(replace(world.state, ledger=ledger), [report], world.now_ms)
        rows = [row for effect in step.effects if effect.kind == RESEND for row in effect.rows]
        assert ([row["bundle"] for row in rows] == [left]) is is_sent


def test_bundle_that_has_no_record_is_forgotten_unless_its_namespace_has_just_changed() -> None:
    world = lying()
    parent = a_bundle_of(world, ONE)
    namespace = parent.rpartition("/")[0]
    unknown = ["lost/namespace/0x00000000_0xffffffff", f"{namespace}/0x00000000_0x00000001"]
    assert world.state is not None
    written_ms = max(int(str(row["at_ms"])) for row in world.newest())
    for at_ms, forgotten in ((written_ms, unknown[:1]), (world.now_ms, sorted(unknown))):
        report = bundle_report(world, ONE, unknown, at_ms)
        step = world.job.balancer.step(read_until(world, at_ms), [report], world.now_ms)
        rows = [row for effect in step.effects if effect.kind == TOMBSTONE for row in effect.rows]
        assert [row["bundle"] for row in rows] == forgotten


def read_until(world: LyingWorld, read_ms: int) -> BalancerState:
    """The state of a job that has read nothing since."""
    assert world.state is not None
    return replace(world.state, times=replace(world.state.times, read_ms=read_ms))


def bundle_report(world: World, broker: str, names: list[str], at_ms: int) -> GroupUpdate:
    """An update with nothing but what a broker says that it has, its own bundles included."""
    assert world.state is not None
    mine = sorted({*names, *world.brokers[broker].served()})
    stats = np.full((len(mine), 8), 100.0)
    none = np.empty(0, dtype=np.int64)
    incarnation = world.state.brokers[broker].incarnation
    return GroupUpdate(
        group=0,
        brokers=(broker,),
        incarnations=(incarnation,),
        arrivals=Arrivals(partition=none, offset=none, timestamp_ms=none, broker=none),
        bundles=(
            BundleReport(
                broker=broker, incarnation=incarnation, names=mine, stats=stats, reported_ms=at_ms
            ),
        ),
    )
