"""What brokers report against what the records say: repeated, counted, and alarming if it lasts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from lbcore.agent.reporting import LoadRead
from lbcore.balancer.rebuild import record_from_row
from lbcore.balancer.state.batch_context import BalancerState
from lbcore.balancer.state.effects import RESEND, TOMBSTONE, Effect
from lbcore.config.tree import Config
from lbcore.model.bundles import Bundle
from lbcore.ownership.records import State
from lbcore.scorer.group_update import Arrivals, BundleReport, GroupUpdate
from tests.support.worlds.checked_world import CheckedWorld
from tests.support.worlds.simulated_brokers import Broker
from tests.support.worlds.stories import begun, unsettled

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


def test_bundle_reported_by_who_does_not_own_it_is_counted_and_its_record_sent_again() -> None:
    world = lying()
    bundle = a_bundle_of(world, TWO)
    world.lies = {ONE: {bundle: True}}
    world.run(REPORT_MS + 5_000)
    assert {row["bundle"] for row in world.resent} == {bundle}
    assert world.counted("reported_not_owned") > 0
    before = len(world.events)
    world.lies = {}
    world.run(3 * REPORT_MS)
    assert len(world.events) == before
    assert not unsettled(world)


def test_bundle_that_its_owner_does_not_report_is_counted_and_its_record_sent_again() -> None:
    world = lying()
    bundle = a_bundle_of(world, ONE)
    world.lies = {ONE: {bundle: False}}
    world.run(REPORT_MS + 5_000)
    assert {row["bundle"] for row in world.resent} == {bundle}
    assert world.counted("owned_not_reported") == world.counted("resent") > 0
    newest = next(row for row in world.newest() if row["bundle"] == bundle)
    again, there = record_from_row(world.resent[0]), record_from_row(newest)
    assert replace(again, decision_id="", command_id="") == replace(
        there, decision_id="", command_id=""
    )


def test_disagreement_raises_the_alarm_only_when_sending_again_has_not_helped() -> None:
    world = lying()
    world.lies = {ONE: {a_bundle_of(world, TWO): True}}
    world.run(REPORT_MS + 5_000)
    assert world.counted("resent") > 0
    assert world.counted("disagreement_lasts") == 0
    world.run(2 * REPORT_MS)
    assert world.counted("disagreement_lasts") > 0


def test_record_is_sent_again_once_in_a_timeout_however_often_brokers_report() -> None:
    world = lying()
    bundle = a_bundle_of(world, TWO)
    world.lies = {ONE: {bundle: True}}
    assert world.state is not None
    times = []
    for _ in range(40):
        world.run(1_000)
        report = bundle_report(world, ONE, [bundle], world.now_ms)
        step = world.job.balancer.step(world.state, [report], world.now_ms)
        world.job.state = step.state
        if any(effect.kind == RESEND for effect in step.effects):
            times.append(world.now_ms)
    assert len(times) > 1
    assert all(b - a >= IN_FLIGHT_MS for a, b in pairwise(times))


def test_report_as_old_as_the_record_is_not_judged() -> None:
    world = lying()
    bundle = a_bundle_of(world, TWO)
    assert world.state is not None
    written_ms = max(int(str(row["at_ms"])) for row in world.newest())
    old = bundle_report(world, ONE, [bundle], written_ms)
    step = world.job.balancer.step(read_until(world, written_ms), [old], world.now_ms)
    assert not [effect for effect in step.effects if effect.kind == RESEND]
    new = bundle_report(world, ONE, [bundle], world.now_ms)
    step = world.job.balancer.step(world.state, [new], world.now_ms)
    assert [effect for effect in step.effects if effect.kind == RESEND]


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


def test_report_of_another_start_is_not_judged() -> None:
    world = lying()
    assert world.state is not None
    report = bundle_report(world, ONE, [a_bundle_of(world, TWO)], world.now_ms)
    other = replace(report.bundles[0], incarnation="another")
    step = world.job.balancer.step(world.state, [replace(report, bundles=(other,))], world.now_ms)
    assert not [effect for effect in step.effects if effect.kind == RESEND]


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


def bundle_report(world: LyingWorld, broker: str, names: list[str], at_ms: int) -> GroupUpdate:
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
