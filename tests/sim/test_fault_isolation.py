"""Isolation of faults: items that raise, rows that can not be read, rejected messages."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

import lbcore
from lbcore.balancer import rebuild
from lbcore.balancer.balancer import (
    INNER_PHASES,
    PHASES,
    REBUILD_PHASE,
    BatchPhase,
    ItemPhase,
    Phase,
    report_faults,
)
from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.book import DONE, FAILED, Outcome, RefusedCommandError
from lbcore.balancer.commands import HANDLERS
from lbcore.balancer.report import FAULTS
from lbcore.balancer.waiting import status_of
from lbcore.config.pipeline import Pipeline
from lbcore.config.tree import Config
from lbcore.fault_isolation import ALARM
from lbcore.ownership.changes import Change, Transition
from lbcore.ownership.records import State
from lbcore.scorer.broker_states import RawMessage
from lbcore.wire.messages import Command
from tests.support.worlds.checked_world import records_of
from tests.support.worlds.safe_world import (
    AUDIT,
    FIRST,
    NEIGHBOUR,
    PlantedError,
    SafeWorld,
    everything,
    raising,
    report,
    rows,
    running,
    safely,
    update_of,
    without,
    written,
)
from tests.support.worlds.world import World, copied, is_settled, states
from tests.unit.wire.test_commands import FULL, NS


def spoiling(original: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """A handler that changes all it can reach, and then raises."""

    def handler(work: BatchContext, command: Command, arguments: Any) -> Outcome:
        with suppress(RefusedCommandError):
            original(work, command, arguments)
        work.ledger.add(["spoilt/by/0x00000000_0xffffffff"])
        work.ledger.stamp("moved_ms", [0, 1], 7)
        work.namespaces.clear()
        work.brokers.clear()
        work.waiting["spoilt"] = None  # type: ignore[assignment]
        work.counts["spoilt"] += 1
        work.alarms.add("spoilt")
        work.change_rules(command, excluded={"spoilt": True})
        work.add_row("audit", {"spoilt": True})
        work.set_times(clock_ms=1)
        work.failures["spoilt"] = "spoilt"
        work.unmeasured_moves.clear()
        work.next_decision()
        raise PlantedError(f"at {object()}")

    return handler


@pytest.mark.parametrize("kind", sorted(HANDLERS))
def test_a_command_whose_handler_raises_changes_nothing_but_its_own_outcome(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = running()
    neighbours = ("create_namespace", NEIGHBOUR), ("pause", {"reason": "x"})
    if kind in dict(neighbours):
        neighbours = (
            ("exclude_namespace", {"namespace": NS}),
            ("create_record", {"record_type": "tenant", "name": "x"}),
        )
    commands = [neighbours[0], (kind, FULL[kind]), neighbours[1]]
    update = update_of(commands, world.now_ms)
    alone = safely(world, world.state, [without(update, 1)])
    monkeypatch.setitem(HANDLERS, kind, spoiling(HANDLERS[kind]))  # type: ignore[arg-type]
    world.job.state = world.job.balancer.unpack(world.job.balancer.pack(world.state))  # type: ignore[arg-type]
    before = everything(world, world.state)
    step = safely(world, world.state, [update])
    assert everything(world, step.state) == everything(world, alone.state)
    assert everything(world, world.state) == before
    outcomes = {row["command_id"]: row for row in rows(step.effects, "commands")}
    failed = outcomes[f"{kind}-1"]
    (fault,) = report(step)[FAULTS]
    assert failed["status"] == "failed"
    assert failed["reason"].startswith(f"internal error {fault['number']}: PlantedError")
    assert {row["status"] for name, row in outcomes.items() if name != f"{kind}-1"} == {"done"}
    assert ALARM in report(step)["alarms"]
    assert report(step)["counts"]["fault:take_commands"] == 1
    assert "PlantedError" in fault["trace"]
    assert fault["item"] == f"{kind} {kind}-1"


def test_a_fault_is_the_same_when_its_batch_is_repeated_and_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = running()
    update = update_of([("pause", FULL["pause"]), ("create_namespace", NEIGHBOUR)], world.now_ms)
    monkeypatch.setitem(HANDLERS, "pause", spoiling(HANDLERS["pause"]))  # type: ignore[arg-type]
    first = safely(world, world.state, [update])
    world.restart_job()
    again = safely(world, world.state, [update])
    assert written(first) == written(again)
    assert first.state is not None
    assert again.state is not None
    assert world.job.balancer.pack(first.state) == world.job.balancer.pack(again.state)


def test_a_failed_command_is_not_done_again_when_it_is_sent_again_or_after_a_rebuild(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = running()
    with monkeypatch.context() as patch:
        patch.setitem(HANDLERS, "pause", raising)
        command_id = world.command("pause", **FULL["pause"])
        world.run(2_000)
    for look in (world.restart_job, world.rebuild_job):
        look()
        assert world.state is not None
        assert status_of(world.state.commands[command_id]) == FAILED
        assert not world.state.rules.paused


@pytest.mark.parametrize(
    "value", [object(), "\ud800", 1 << 70], ids=["object", "surrogate", "huge"]
)
def test_a_command_whose_rows_cannot_be_packed_is_put_aside(
    value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = running()

    def handler(work: BatchContext, command: Command, arguments: Any) -> Outcome:
        del command, arguments
        texts = dict.fromkeys(("action", "reason", "command_id", "principal", "address"), value)
        work.add_row("audit", {**texts, "is_allowed": True, "at_ms": value})
        return Outcome(status="done")

    monkeypatch.setitem(HANDLERS, "pause", handler)
    update = update_of([("pause", FULL["pause"]), ("create_namespace", NEIGHBOUR)], world.now_ms)
    step = safely(world, world.state, [update])
    status = {row["kind"]: row["status"] for row in rows(step.effects, "commands")}
    assert status == {"pause": "failed", "create_namespace": "done"}


def test_a_command_that_breaks_an_invariant_is_put_aside_and_never_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = running()

    def handler(work: BatchContext, command: Command, arguments: Any) -> Outcome:
        del command, arguments
        record = work.ledger.record(FIRST)
        assert record is not None
        gone = replace(record, state=State.DELETED, version_id=record.version_id + 1)
        work.apply(Transition(changes=(Change(before=record, after=gone),)))
        return Outcome(status="done")

    monkeypatch.setitem(HANDLERS, "pause", handler)
    update = update_of([("pause", FULL["pause"]), ("create_namespace", NEIGHBOUR)], world.now_ms)
    step = safely(world, world.state, [update])
    status = {row["kind"]: row["status"] for row in rows(step.effects, "commands")}
    assert status == {"pause": "failed", "create_namespace": "done"}
    assert report(step)[FAULTS][0]["type"] == "BrokenInvariantError"
    assert not [row for row in rows(step.effects, "ownership_events") if row["bundle"] == FIRST]


def test_memory_that_is_short_ends_the_job_because_it_is_no_item_s_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def starved(*_: object) -> NoReturn:
        raise MemoryError

    monkeypatch.setitem(HANDLERS, "pause", starved)
    world = running()
    with pytest.raises(MemoryError):
        safely(world, world.state, [update_of([("pause", FULL["pause"])], world.now_ms)])


def spoilt(phase: Phase, *, is_after: bool) -> Phase:
    """The phase, raising before or after it has done its work."""
    if isinstance(phase, ItemPhase):

        def some(work: BatchContext, items: Sequence[Any]) -> None:
            if is_after:
                phase.do(work, items)
            if items:
                raise PlantedError

        return replace(phase, do=some)

    def whole(work: BatchContext) -> None:
        if is_after:
            phase.do(work)
        raise PlantedError

    return replace(phase, do=whole)


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", sorted(PHASES))
def test_a_phase_that_raises_ends_no_batch_and_all_is_well_once_it_is_mended(
    name: str, *, is_after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = running()
    batches = len(world.reports)
    with monkeypatch.context() as patch:
        patch.setitem(PHASES, name, spoilt(PHASES[name], is_after=is_after))
        world.command("unload_bundle", bundle=FIRST)
        world.command("create_namespace", **NEIGHBOUR)
        world.append(AUDIT)
        world.kill("broker-2:8080")
        world.run(6_000)
    met = world.reports[batches:]
    is_met = isinstance(PHASES[name], BatchPhase) or name not in IDLE
    assert is_met == any(f"fault:{name}" in one["counts"] for one in met)
    assert is_met == any(ALARM in one["alarms"] for one in met)
    assert met[-1]["ends"]["broker-load"]
    world.start("broker-2:8080")
    world.run(40_000)
    world.command("create_namespace", namespace="acme/later", bundles=2)
    world.run(10_000)
    assert is_settled(world)
    assert set(states(world)) == {"Owned"}
    assert not world.reports[-1].get(FAULTS)


IDLE = {
    "drive_creations",
    "drive_deletions",
    "drive_drains",
    "drive_merges",
    "drive_proposals",
    "drive_unloads",
    "take_queued",
    "take_topics",
    "write_refused",
}
"""Phases over items of which the batches of this test have none."""


LARGE = {"namespace": "acme/large", "bundles": 400}
LOWER_HALF = f"{NS}/0x00000000_0x40000000"
TASKS: Mapping[str, Sequence[tuple[str, dict[str, Any]]]] = {
    "drive_creations": [("create_namespace", LARGE)],
    "drive_deletions": (
        ("create_namespace", LARGE),
        ("delete_namespace", {"namespace": "acme/large"}),
    ),
    "drive_drains": [("drain_broker", {"broker": "broker-1:8080"})],
    "drive_merges": [
        ("split_bundle", {"bundle": FIRST}),
        ("unload_bundle", {"bundle": LOWER_HALF, "destination": "broker-1:8080"}),
        ("merge_bundle", {"bundle": LOWER_HALF}),
    ],
    "drive_proposals": (
        ("propose_plan", {"moves": {FIRST: "broker-1:8080"}, "why": "a test", "plan": "p"}),
        ("approve_plan", {"plan": "p"}),
    ),
    "drive_unloads": (
        ("create_namespace", LARGE),
        ("unload_namespace", {"namespace": "acme/large"}),
    ),
}
"""Phases over commands that last → commands, the last one carried out in the phase."""


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", TASKS)
def test_a_lasting_command_that_raises_holds_up_nothing_else_and_ends_once_it_is_mended(
    name: str, *, is_after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, (*before, (kind, arguments)) = running(), TASKS[name]
    monkeypatch.setattr(BatchContext, "max_created", 64)  # so that a namespace takes some batches
    for first, values in before:
        world.command(first, **values)
        world.run(30_000)
    batches = len(world.reports)
    with monkeypatch.context() as patch:
        patch.setitem(PHASES, name, spoilt(PHASES[name], is_after=is_after))
        world.command(kind, **arguments)
        world.command("create_namespace", **NEIGHBOUR)
        world.run(6_000)
        assert any(f"fault:{name}" in one["counts"] for one in world.reports[batches:])
        neighbours = [row for row in world.newest() if "acme/neighbour" in row["bundle"]]
        assert {row["state"] for row in neighbours} == {"Owned"}
    world.run(120_000)
    assert set(states(world)) <= {"Owned", "Deleted"}
    assert world.state is not None
    assert not world.state.waiting
    assert not world.reports[-1].get(FAULTS)


def broken_by(name: str, is_poison: Callable[[Any], bool], patch: pytest.MonkeyPatch) -> None:
    """Let a phase over items raise for one of them, after it has worked on all."""
    phase = PHASES[name]
    assert isinstance(phase, ItemPhase)

    def do(work: BatchContext, items: Sequence[Any]) -> None:
        phase.do(work, items)
        if any(map(is_poison, items)):
            raise PlantedError

    patch.setitem(PHASES, name, replace(phase, do=do))


def test_an_answer_that_raises_is_refused_and_its_neighbours_in_the_message_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = running()
    broken_by("take_answers", lambda one: one.ack.bundle.startswith("acme/new/0x0"), monkeypatch)
    world.command("create_namespace", namespace="acme/new", bundles=8)
    world.run(6_000)
    at = {row["bundle"]: row["state"] for row in world.newest() if "acme/new" in row["bundle"]}
    assert [state for _, state in sorted(at.items())] == ["Assigning", *["Owned"] * 7]
    refused = world.other_rows["rejected_reports"]
    assert {(row["reason"], row["topic"]) for row in refused} == {("internal_error", "acks")}
    assert all(b"acme/new/0x00000000_0x20000000" in row["raw"] for row in refused)


@pytest.mark.parametrize("name", ["take_loads", "take_bundles"])
def test_a_report_that_raises_leaves_its_broker_as_it_was_and_the_others_count(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = running()

    def is_poison(report: Any) -> bool:
        return str(getattr(report, "broker", "") or report.load.envelope.broker) == "broker-1:8080"

    broken_by(name, is_poison, monkeypatch)
    before = world.state
    world.run(70_000)
    after = world.state
    assert before is not None
    assert after is not None
    newer = {
        b for b in after.brokers if after.brokers[b].reported_ms > before.brokers[b].reported_ms
    }
    is_lost = name == "take_loads"
    assert newer == after.brokers.keys() - ({"broker-1:8080"} if is_lost else set())
    refused = world.other_rows["rejected_reports"]
    assert {row["reason"] for row in refused} == {"internal_error"}
    assert all(b"broker-1:8080" in row["raw"] for row in refused)


def test_a_message_that_raises_in_the_scorer_is_refused_with_its_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = running()
    for scorer in world.job.scorers.values():
        parse = scorer._parse  # noqa: SLF001 what the scorer calls

        def broken(raw: RawMessage, parse: Callable[..., Any] = parse) -> Any:
            if raw.position.topic == "audit":
                raise PlantedError
            return parse(raw)

        monkeypatch.setattr(scorer, "_parse", broken)
    world.append(AUDIT)
    world.command("create_namespace", **NEIGHBOUR)
    world.run(6_000)
    (refused,) = world.other_rows["rejected_reports"]
    assert (refused["reason"], refused["topic"], refused["offset"]) == (
        "internal_error",
        "audit",
        0,
    )
    assert json.loads(refused["raw"])["principal"] == "p"
    assert is_settled(world)
    assert len(states(world)) == 1
    assert [fault["phase"] for fault in world.told()] == ["take_messages"]


def test_loads_that_cannot_be_smoothed_are_refused_and_other_brokers_are_scored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = running()
    for scorer in world.job.scorers.values():
        smooth = scorer._smooth_loads  # noqa: SLF001 what the scorer calls

        def broken(batch: Any, brokers: Any, smooth: Any = smooth) -> None:
            smooth(batch, brokers)
            if "broker-1:8080" in brokers:
                raise PlantedError

        monkeypatch.setattr(scorer, "_smooth_loads", broken)
    batches = len(world.reports)
    world.run(70_000)
    refused = world.other_rows["rejected_reports"]
    assert {json.loads(row["raw"])["broker"] for row in refused} == {"broker-1:8080"}
    assert {fault["phase"] for fault in world.told()} == {"smooth_loads"}
    assert len(world.reports) > batches + 10


def test_every_guarded_part_is_counted_under_a_name_that_the_metric_knows() -> None:
    called = re.compile(r"guard\.(?:each|run)\(\s*\"(\w+)\"")
    sources = Path(str(lbcore.__file__)).parent.rglob("*.py")
    found = {name for path in sources for name in called.findall(path.read_text())}
    assert found == set(INNER_PHASES)


SPOILT: Mapping[str, tuple[str, str, str]] = {
    "a state that nobody knows": ("bundle_ownership", "state", "Frozen"),
    "a cause that nobody knows": ("bundle_ownership", "cause", "whim"),
    "children that are no JSON": ("bundle_ownership", "children", "{"),
    "a broker": ("brokers", "starts", "["),
    "a namespace": ("namespaces", "properties", "{"),
    "a tenant": ("records", "value", "["),
    "a policy": ("policies", "value", "{"),
    "settings": ("config_versions", "settings", "{"),
    "a command": ("commands", "arguments", "{"),
}


@copied
def lived() -> SafeWorld:
    """A world with a row and a neighbour in each of these tables."""
    world = running()
    world.command("create_namespace", **NEIGHBOUR)
    for tenant in ("acme", "other"):
        world.command(
            "create_record", record_type="tenant", name=tenant, value={"admin_roles": ["a"]}
        )
    for namespace in (NS, "acme/neighbour"):
        world.command("exclude_namespace", namespace=namespace)
    for hits in (4, 5):
        world.command("set_config", values={"shedding.avg_high_hits": hits})
    world.run(20_000)
    assert is_settled(world)
    return world


def spoil(world: SafeWorld, table: str, column: str, value: str) -> None:
    """Give one row a value that no writer of this version writes."""
    if table == "bundle_ownership":
        world.current[FIRST] = {**world.current[FIRST], column: value}
    else:
        world.other_rows[table][-1] = {**world.other_rows[table][-1], column: value}


def rebuilt_batches(world: SafeWorld) -> list[Mapping[str, Any]]:
    """The reports of what came after a rebuild."""
    before = len(world.reports)
    world.rebuild_job()
    world.run(70_000)
    return world.reports[before:]


@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_row_that_cannot_be_read_is_put_aside_and_all_else_comes_back(spoilt: str) -> None:
    world = lived()
    whole = world.job.rebuilt()
    table, column, value = SPOILT[spoilt]
    spoil(world, table, column, value)
    state = world.job.rebuilt()
    (fault,) = state.unread
    assert (fault["phase"], fault["count"]) == (REBUILD_PHASE, 1)
    assert fault["item"].startswith(f"{table} ")
    assert records_of(state).keys() == records_of(whole).keys()
    others = records_of(whole).keys() - {FIRST}
    assert all(records_of(state)[name] == records_of(whole)[name] for name in others)
    assert records_of(state)[FIRST].version_id == records_of(whole)[FIRST].version_id
    assert state.brokers.keys() == whole.brokers.keys()
    assert state.namespaces.keys() == whole.namespaces.keys()
    assert state.commands.keys() == whole.commands.keys()
    assert set(map(status_of, state.commands.values())) == {DONE}
    lost = dict.fromkeys(("records", "policies", "config_versions"), 1).get(table, 0)
    found = (len(state.catalog.by_type["tenant"]), len(state.rules.excluded), state.settings)
    expected = (len(whole.catalog.by_type["tenant"]), len(whole.rules.excluded), whole.settings)
    assert [one == other for one, other in zip(found, expected, strict=True)].count(False) == lost
    if table == "config_versions":
        assert state.settings == {"shedding.avg_high_hits": 4}, "those of the change before"


@pytest.mark.parametrize("spoilt", SPOILT)
def test_the_first_batch_after_the_rebuild_tells_of_it_and_the_cluster_settles(spoilt: str) -> None:
    world = lived()
    spoil(world, *SPOILT[spoilt])
    first, *later = rebuilt_batches(world)
    assert first["counts"][f"fault:{REBUILD_PHASE}"] == 1
    assert ALARM in first["alarms"]
    assert [fault["phase"] for fault in first[FAULTS]] == [REBUILD_PHASE]
    assert not any(FAULTS in report for report in later)
    assert is_settled(world)
    assert set(states(world)) == {"Owned"}
    assert all(len(tokens) == 1 for tokens in world.served().values())


def test_a_record_that_is_read_nowhere_heals_with_its_next_transition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = lived()
    read = rebuild.record_from_row

    def broken(row: Mapping[str, Any], writer_epoch: int = 0) -> Any:
        if row["bundle"] == FIRST:
            raise PlantedError
        return read(row, writer_epoch)

    spoil(world, "bundle_ownership", "state", "Frozen")
    before = world.served()
    with monkeypatch.context() as patch:
        patch.setattr(rebuild, "record_from_row", broken)
        (fault,) = world.job.rebuilt().unread
        assert (fault["type"], fault["item"]) == ("PlantedError", f"bundle_ownership {FIRST}")
        rebuilt_batches(world)
    assert world.served().keys() == before.keys()
    assert not world.job.rebuilt().unread
    world.command("unload_bundle", bundle=FIRST)
    world.run(20_000)
    assert is_settled(world)


PER_DAY = 1_048_576
CONFIG = Config(pipeline=Pipeline(rejected_bytes_per_day=PER_DAY))
HOUR_MS = 3_600_000


def send(world: World, count: int, size: int) -> None:
    """Garbage from a sender that may write broker-load."""
    for _ in range(count):
        world.put(("broker-load", 0), b"local/evil", b"x" * size, world.now_ms)


def kept(world: World) -> list[dict[str, object]]:
    return [
        dict(row) for row in world.other_rows["rejected_reports"] if row["reason"] != "not_kept"
    ]


def missing(world: World) -> int:
    rows = [row for row in world.other_rows["rejected_reports"] if row["reason"] == "not_kept"]
    return sum(int(str(row["detail"]).split(" ", 1)[0]) for row in rows)


def size(world: World) -> int:
    return sum(len(row["raw"]) for row in kept(world))  # type: ignore[arg-type]


def test_each_cause_of_faults_is_written_down_once_a_minute() -> None:
    state = running().state
    assert state is not None
    work = BatchContext.on(state, Config(), "", 0)
    told: list[str] = []
    fault = {"phase": "repair", "type": "", "place": "", "item": "", "count": 1}
    for now_ms, numbers in (
        (0, "a"),
        (1_000, "ab"),
        (30_000, "abc"),
        (60_000, "ab"),
        (61_000, "b"),
    ):
        work.now_ms = 1_000_000 + now_ms
        work.rows["decisions"] = []
        report_faults(work, [{**fault, "number": number} for number in numbers])
        inputs = [json.loads(row["inputs"]) for row in work.rows["decisions"]]
        told.append("".join(one["number"] for one in inputs))
    assert told == ["a", "b", "c", "a", "b"]


def test_rejected_messages_are_kept_up_to_a_budget_and_counted_beyond() -> None:
    world = World(CONFIG, brokers=2)
    world.run(5_000)
    send(world, 1_500, 1_000)
    world.run(5_000)
    assert 0 < size(world) <= PER_DAY // 24
    assert len(kept(world)) + missing(world) == 1_500
    first = size(world)
    send(world, 500, 1_000)
    world.run(5_000)
    assert size(world) <= first + PER_DAY // 24 // 100
    assert len(kept(world)) + missing(world) == 2_000


def test_budget_comes_back_with_time() -> None:
    world = World(CONFIG, brokers=2)
    world.run(5_000)
    send(world, 100, 1_000)
    world.run(5_000)
    before = len(kept(world))
    world.now_ms += HOUR_MS
    send(world, 100, 1_000)
    world.run(5_000)
    assert len(kept(world)) >= 2 * before - 1
    assert len(kept(world)) + missing(world) == 200
