"""Rolling restarts: steps, faults, observed cluster status."""

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.tables import ensure_tables
from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.kafka.command_client import CommandClient, CommandOutcome, Ticket
from jobs.bridge.admin_address import AdminAddress
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.bridge.restarted_cluster import (
    Complaint,
    PulsarCluster,
    open_plans,
    status_complaints,
    usage_without,
)
from jobs.bridge.rolling_progress import Progress, RestartStage
from jobs.bridge.rolling_restart import CutOffError
from jobs.console import CommandError, UnknownError
from jobs.operating.connection_options import STACK_OPTIONS, connection_options
from jobs.parser import parse_duration_ms
from lbcore.balancer.effects import to_json
from lbcore.bridge.reports import load_ms, parse_client_latency, publish_ms, worst_ms
from lbcore.config.cluster import EXTERNAL, ClusterConfig
from lbcore.config.tree import Config
from lbcore.explain.status import BrokerStatus, ClusterStatus, StatusRows, make_status
from lbcore.wire.kinds.balancing_commands import CancelDrain, DrainBroker, ProposePlan
from lbcore.wire.messages import Command
from tests.support.admin.fake_pulsar import CLUSTER, REPORT_PATH, fronted_brokers
from tests.support.worlds.checked_world import running
from tests.support.worlds.explained_world import write_tables
from tests.support.worlds.rolling_cluster import (
    BROKERS,
    HOMES,
    TICK_MS,
    RestartRun,
    new_progress,
)

STAGES = [one for one in RestartStage if one is not RestartStage.DONE]


@pytest.fixture
def run(tmp_path: Path) -> RestartRun:
    found = RestartRun(tmp_path / "state.json")
    found.begin()
    return found


def test_each_broker_is_restarted_once_empty_and_gets_back_what_it_had(run: RestartRun) -> None:
    assert run.run(is_new=True) is None
    assert not run.path.exists()
    assert run.cluster.restarts == list(BROKERS)
    assert run.cluster.dropped_while_owning == []
    assert run.cluster.owners == HOMES
    assert run.cluster.drains == {}


@pytest.mark.parametrize("looks", [1, 2])
@pytest.mark.parametrize("stage", STAGES)
def test_cut_at_any_stage_goes_on_and_restarts_each_broker_once(
    stage: RestartStage, looks: int, run: RestartRun
) -> None:
    run.until(stage, looks)
    assert run.run() is None
    assert run.cluster.restarts == list(BROKERS)
    assert run.cluster.dropped_while_owning == []
    assert run.cluster.owners == HOMES


@pytest.mark.parametrize("stage", STAGES)
def test_ctrl_c_at_any_stage_leaves_no_drain_of_a_broker_that_runs(
    stage: RestartStage, run: RestartRun
) -> None:
    broker = BROKERS[0]
    run.cluster.before_observe = lambda p: run.end.set() if p.stage is stage else None
    with pytest.raises(CutOffError):
        run.run(is_new=True)
    is_in_restart = stage in (RestartStage.RESTARTING, RestartStage.RETURNING)
    assert (broker in run.cluster.drains) is is_in_restart
    assert run.cluster.plans == {}
    run.cluster.before_observe = lambda _: None
    assert run.run() is None
    assert run.cluster.owners == HOMES


def test_command_that_fails_stops_with_its_words_and_goes_on_when_it_is_mended(
    run: RestartRun,
) -> None:
    run.cluster.code = 255
    stop = run.run(is_new=True)
    assert stop is not None
    assert "ended with 255" in stop.why
    assert "no such host" in stop.why
    assert BROKERS[0] in run.cluster.drains
    run.cluster.code = 0
    assert run.run("better {broker}") is None
    assert run.cluster.owners == HOMES


def test_abort_after_a_failed_command_opens_the_broker(run: RestartRun) -> None:
    run.cluster.code = 1
    assert run.run(is_new=True) is not None
    run.restart().halt(for_good=True)
    assert run.cluster.drains == {}


def test_broker_that_does_not_come_back_stops_it(run: RestartRun) -> None:
    run.cluster.comes_back = False
    stop = run.run(is_new=True)
    assert stop is not None
    assert "has not come back" in stop.why
    run.cluster.comes_back = True
    assert run.run() is None


def test_restart_that_goes_on_is_no_longer_shown_as_stopped(run: RestartRun) -> None:
    run.cluster.comes_back = False
    assert run.run(is_new=True) is not None
    shown: list[str] = []

    def note_status(_: Progress) -> None:
        shown.append(run.progress().stopped)
        run.cluster.comes_back = len(shown) > 1

    run.cluster.before_observe = note_status
    assert run.run() is None
    assert shown[0]
    assert not any(shown[1:])


def test_broker_has_its_time_to_return_after_a_command_that_takes_long(run: RestartRun) -> None:
    run.cluster.command_ms = 400_000  # --return-within is five minutes
    assert run.run(is_new=True) is None
    assert run.cluster.restarts == list(BROKERS)


def test_broker_that_does_not_answer_one_look_is_restarted_all_the_same(run: RestartRun) -> None:
    looks = 0

    def hide(p: Progress) -> None:
        nonlocal looks
        looks += p.stage is RestartStage.RESTARTING
        is_silent = p.stage is RestartStage.RESTARTING and looks == 1
        run.cluster.observed = {"incarnation": ""} if is_silent else {}

    run.cluster.before_observe = hide
    assert run.run(is_new=True) is None
    assert run.cluster.restarts == list(BROKERS)


def test_ctrl_c_in_the_first_look_keeps_since_when_it_waits(run: RestartRun) -> None:
    run.cluster.before_observe = lambda _: run.end.set()
    with pytest.raises(CutOffError):
        run.run(is_new=True)
    assert run.progress().since_ms > 0


def test_broker_that_is_back_in_the_last_moment_may_settle(run: RestartRun) -> None:
    back_ms = parse_duration_ms("5m") - TICK_MS
    run.until(RestartStage.RETURNING)
    broker = run.progress().broker
    run.cluster.down_until_ms[broker] = run.cluster.now_ms + back_ms
    assert run.run() is None


def test_command_that_restarts_nothing_is_told(run: RestartRun) -> None:
    run.until(RestartStage.RETURNING)
    run.cluster.listed.add(BROKERS[0])
    run.cluster.down_until_ms.clear()
    stop = run.run()
    assert stop is not None
    assert "is the same process as before" in stop.why


FAULTS: Mapping[str, tuple[RestartStage, dict[str, Any], str]] = {
    "second broker": (RestartStage.DRAINING, {"listed": frozenset({"a:1", "c:1"})}, "b:1 is gone"),
    "itself": (
        RestartStage.FILLING,
        {"listed": frozenset({"b:1", "c:1"})},
        "was not being restarted",
    ),
    "another drain": (
        RestartStage.DRAINING,
        {"drains": {"b:1": 3, "a:1": 3}},
        "b:1 is being drained",
    ),
    "no room": (RestartStage.WAITING, {"others_usage": 0.95}, "95%"),
    "felt already": (RestartStage.WAITING, {"publish_ms": 900.0}, "clients wait 900 ms"),
    "silent": (RestartStage.WAITING, {"incarnation": ""}, "does not answer"),
    "not empty": (
        RestartStage.DRAINING,
        {"still_owned": frozenset({"public/load/0"})},
        "not empty",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_stops_it_with_a_sentence_and_it_goes_on_when_that_is_over(
    name: str, run: RestartRun
) -> None:
    stage, observed, words = FAULTS[name]

    def hurt(progress: Progress) -> None:
        if progress.stage is stage:
            run.cluster.now_ms = max(run.cluster.now_ms, 60_000)
            run.cluster.observed = observed

    run.cluster.before_observe = hurt
    stop = run.run(is_new=True)
    assert stop is not None
    assert words in stop.why
    assert stop.next_step
    assert run.progress().stopped == stop.why
    run.cluster.observed, run.cluster.before_observe = {}, lambda _: None
    assert run.run() is None


def test_drain_that_somebody_else_cancels_stops_it(run: RestartRun) -> None:
    def cancel(_: Progress) -> None:
        if list(run.cluster.owners.values()).count(BROKERS[0]) == 1:
            run.cluster.observed = {"drains": {}}

    run.cluster.before_observe = cancel
    stop = run.run(is_new=True)
    assert stop is not None
    assert "somebody else has cancelled" in stop.why


@pytest.mark.parametrize("stage", [RestartStage.DRAINING, RestartStage.FILLING])
def test_command_that_is_refused_stops_it_with_the_reason(
    stage: RestartStage, run: RestartRun
) -> None:
    run.until(stage)
    run.cluster.refuses = "nobody could take them"
    stop = run.run()
    assert stop is not None
    assert stop.why == "nobody could take them"


def test_fault_before_the_restart_cancels_the_drain_and_says_so(
    run: RestartRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run.until(RestartStage.DRAINING, looks=2)
    assert run.cluster.drains
    run.cluster.complaints = (Complaint(key="job", why="the job is away", next_step="start it"),)
    assert run.run() is not None
    assert run.cluster.drains == {}
    assert "is open again" in capsys.readouterr().err


def test_broker_whose_drain_was_refused_is_told_as_open_and_not_as_opened_again(
    run: RestartRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run.until(RestartStage.DRAINING)
    run.cluster.refuses = "nobody could take them"
    assert run.run() is not None
    assert "a:1 is open: it never was closed" in capsys.readouterr().err


UNREADABLE = {"status": None, "drains": {}, "owners": {}, "moving": frozenset(), "plans": {}}
TABLES_AWAY = Complaint(key="tables", why="they are away", next_step="mend them")


@pytest.mark.parametrize(
    ("observed", "words"),
    [
        ({"publish_ms": 800.0}, "a:1 is open again"),
        (
            {**UNREADABLE, "complaints": (TABLES_AWAY,)},
            "a:1 is perhaps closed, the tables can't be read",
        ),
    ],
    ids=["held back", "unreadable tables"],
)
def test_broker_that_was_seen_closed_is_told_as_open_only_when_seen_so(
    observed: dict[str, Any], words: str, run: RestartRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run.until(RestartStage.DRAINING, looks=2)
    run.cluster.observed = observed
    assert run.run() is not None
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("error", ["", "Kafka has not confirmed it: no broker answers"])
def test_unanswered_plan_is_no_try_and_is_sent_again_until_it_is_taken(
    error: str, run: RestartRun, capsys: pytest.CaptureFixture[str]
) -> None:
    asked_ms = 0

    def be_away(p: Progress) -> None:
        nonlocal asked_ms
        if p.stage is RestartStage.FILLING and not run.cluster.drains:
            asked_ms = asked_ms or run.cluster.now_ms
        is_away = asked_ms > 0 and run.cluster.now_ms < asked_ms + 120_000
        run.cluster.is_job_away, run.cluster.kafka_error = is_away, error if is_away else ""

    run.cluster.before_observe = be_away
    assert run.run(is_new=True) is None
    assert len(run.cluster.unanswered) > len(HOMES)
    plans = {one.plan for one in run.cluster.unanswered if isinstance(one, ProposePlan)}
    assert len(plans) == 1
    assert run.cluster.owners == HOMES
    assert "stay elsewhere" not in capsys.readouterr().err


@pytest.mark.parametrize("error", ["", "Kafka has not confirmed it"])
@pytest.mark.parametrize(
    ("stage", "looks", "words"),
    [
        (RestartStage.DRAINING, 1, "its drain has not begun after 30 min"),
        (RestartStage.FILLING, 1, "its drain can't be cancelled"),
        (RestartStage.FILLING, 2, "bundles are not back after 30 min"),
    ],
)
def test_stop_for_an_unanswered_command_names_the_cause(
    stage: RestartStage, looks: int, words: str, error: str, run: RestartRun
) -> None:
    run.until(stage, looks)
    run.cluster.is_job_away, run.cluster.kafka_error = True, error
    stop = run.run()
    assert stop is not None
    assert words in stop.why
    assert (error or "the balancer has not answered") in stop.why


def test_what_lasts_shorter_than_its_patience_stops_nothing(run: RestartRun) -> None:
    fault = Complaint(key="x", why="for a moment", next_step="wait", patience_ms=10_000)

    def hurt(_: Progress) -> None:
        run.cluster.complaints = (fault,) if run.cluster.looks % 4 == 0 else ()

    run.cluster.before_observe = hurt
    assert run.run(is_new=True) is None


@pytest.mark.parametrize("every", [2, 3])
def test_look_that_can_not_read_the_tables_is_not_judged(every: int, run: RestartRun) -> None:
    fault = Complaint(key="tables", why="for a moment", next_step="wait", patience_ms=30_000)

    def hurt(_: Progress) -> None:
        is_hurt = run.cluster.looks % every == 0
        run.cluster.observed = {**UNREADABLE, "complaints": (fault,)} if is_hurt else {}

    run.cluster.before_observe = hurt
    assert run.run(is_new=True) is None
    assert run.cluster.restarts == list(BROKERS)
    assert run.cluster.owners == HOMES
    assert run.cluster.drains == {}


def test_drain_that_the_job_has_not_answered_is_cancelled_and_told_as_closed(
    run: RestartRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run.until(RestartStage.DRAINING)
    run.cluster.is_job_away = True
    run.cluster.complaints = (Complaint(key="job", why="the job is away", next_step="start it"),)
    assert run.run() is not None
    assert CancelDrain(broker=BROKERS[0]) in run.cluster.unanswered
    assert "a:1 is open, but the cancellation of its drain is not" in capsys.readouterr().err
    run.cluster.drains = {BROKERS[0]: 1}
    run.cluster.unanswered.clear()
    assert run.run() is not None
    assert "still closed" in capsys.readouterr().err


def test_error_that_nobody_foresaw_keeps_its_reason_and_opens_the_broker(run: RestartRun) -> None:
    def hurt(progress: Progress) -> None:
        if progress.stage is RestartStage.DRAINING and run.cluster.drains:
            run.cluster.before_observe = lambda _: None
            raise CommandError("no", why="Kafka is away", next_step="mend it")

    run.cluster.before_observe = hurt
    assert run.run(is_new=True) is not None
    assert run.progress().stopped == "Kafka is away"
    assert run.cluster.drains == {}


def test_complaint_of_the_broker_in_hand_is_none_while_it_restarts(run: RestartRun) -> None:
    def hurt(progress: Progress) -> None:
        one = Complaint(key=f"unresponsive {progress.broker}", why="silent", next_step="wait")
        run.cluster.complaints = (one,) if progress.stage is RestartStage.RETURNING else ()

    run.cluster.before_observe = hurt
    assert run.run(is_new=True) is None


@pytest.mark.parametrize("stage", [RestartStage.DRAINING, RestartStage.FILLING])
def test_clients_that_feel_it_hold_moves_back_and_halve_the_pace(
    stage: RestartStage, run: RestartRun, capsys: pytest.CaptureFixture[str]
) -> None:
    calm_at_ms = 0

    def hurt(progress: Progress) -> None:
        nonlocal calm_at_ms
        if progress.stage is stage and (run.cluster.drains or run.cluster.plans):
            calm_at_ms = calm_at_ms or run.cluster.now_ms + 60_000
        is_high = run.cluster.now_ms < calm_at_ms
        run.cluster.observed = {"publish_ms": 800.0} if is_high else {}
        if is_high and run.cluster.now_ms > calm_at_ms - 50_000:
            assert run.cluster.drains == {}
            assert run.cluster.plans == {}
            assert progress.at_once == 1

    run.cluster.before_observe = hurt
    assert run.run(is_new=True) is None
    assert run.cluster.owners == HOMES
    assert "clients feel nothing now; on, 1 at once" in capsys.readouterr().err


def test_topics_that_load_slowly_are_moved_one_by_one_and_not_held_back_for_it(
    run: RestartRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run.cluster.observed = {"load_ms": 900.0}
    assert run.run(is_new=True) is None
    assert capsys.readouterr().err.count("nothing is moved until that is over") == 1


def test_clients_that_wait_without_moves_stop_it(run: RestartRun) -> None:
    run.until(RestartStage.DRAINING, looks=2)
    run.cluster.observed = {"publish_ms": 800.0}
    stop = run.run()
    assert stop is not None
    assert "though nothing is moved" in stop.why


def test_person_is_asked_and_waited_for(
    run: RestartRun, capsys: pytest.CaptureFixture[str]
) -> None:
    def by_hand(progress: Progress) -> None:
        if progress.stage is RestartStage.RETURNING and progress.broker not in run.cluster.restarts:
            run.cluster.restart(progress)

    run.begin(new_progress(command=""))
    run.cluster.before_observe = by_hand
    assert run.run(is_new=True) is None
    assert run.cluster.restarts == list(BROKERS)
    assert capsys.readouterr().err.count("restart a:1 now") == 1


def test_bundle_that_can_not_go_back_is_told_and_does_not_stop_it(
    run: RestartRun, capsys: pytest.CaptureFixture[str]
) -> None:
    def pin(progress: Progress) -> None:
        if progress.stage is RestartStage.FILLING and progress.at == 0:
            run.cluster.owners["public/load/0"] = "b:1"

    run.cluster.before_observe = pin
    assert run.run(is_new=True) is None
    assert "1 bundles stay elsewhere" in capsys.readouterr().err


def test_plan_that_was_left_waiting_is_approved(run: RestartRun) -> None:
    run.until(RestartStage.FILLING)
    run.cluster.plans, run.cluster.waiting = {"rolling-r-0-9": {}}, {"rolling-r-0-9"}
    assert run.run() is None


def test_felt_is_the_mean_of_what_came_between_two_pages() -> None:
    page = 'pulsar_broker_publish_latency_{}{{cluster="x"}} {}\n'
    before = parse_client_latency((page.format("sum", 100) + page.format("count", 10)).encode())
    now = parse_client_latency((page.format("sum", 700) + page.format("count", 12)).encode())
    assert publish_ms(before, now) == pytest.approx(300.0)
    assert publish_ms(now, before) is None
    assert publish_ms(parse_client_latency(b""), parse_client_latency(b"nothing of it")) is None


def test_time_to_load_a_topic_is_of_the_page_itself() -> None:
    page = b"pulsar_topic_load_times_count 4.0\npulsar_topic_load_times_sum 1000.0\n"
    assert load_ms(parse_client_latency(page)) == pytest.approx(250.0)
    assert load_ms(parse_client_latency(b"")) is None
    assert worst_ms([None, 3.0, 5.0]) == pytest.approx(5.0)


NOW_MS = 1_000_000_000
CONFIG = replace(Config(), cluster=ClusterConfig(authority=EXTERNAL))
FINDING = {"subject": "n/a/1", "since_ms": 1, "evidence": "b1 and b2 have it", "stage": "told"}


def told(*, observe_only: bool = False, **result: Any) -> dict[str, Any]:
    values = {"observe_only": observe_only, **result}
    return {"status": "done", "result": json.dumps(values), "at_ms": NOW_MS - 1_000}


def status(**rows: Any) -> ClusterStatus:
    cycle = {"cycle": 7, "kind": "skip", "reason": "HitCount", "source": "", "at_ms": NOW_MS - 900}
    known: dict[str, Any] = {
        "writer_ms": NOW_MS - 1_000,
        "bundles": [],
        "brokers": [{"broker": "b1", "state": "active"}, {"broker": "b2", "state": "active"}],
        "decisions": [cycle],
        "policies": [],
        "pins": [],
        "load": [],
        "rejected": [],
        "mirror_commands": [told()],
    }
    return make_status("local", StatusRows(**{**known, **rows}), CONFIG, NOW_MS)


def keys(found: ClusterStatus) -> list[str]:
    return [one.key for one in status_complaints(found)]


def test_cluster_that_is_well_has_no_complaint() -> None:
    assert keys(status()) == []


@pytest.mark.parametrize(
    ("rows", "key"),
    [
        ({"writer_ms": NOW_MS - 600_000}, "job"),
        ({"mirror_commands": []}, "bridge"),
        ({"mirror_commands": [{**told(), "at_ms": NOW_MS - 400_000}]}, "bridge"),
        ({"mirror_commands": [told(observe_only=True)]}, "observes"),
        (
            {"mirror_commands": [told(findings=[{**FINDING, "trouble": "doubled"}])]},
            "doubled n/a/1",
        ),
        (
            {
                "policies": [
                    {"kind": "paused", "name": "", "value": '{"since_ms":1}', "is_set": True}
                ]
            },
            "pause ",
        ),
    ],
)
def test_what_is_wrong_is_a_complaint_with_what_to_do(rows: dict[str, Any], key: str) -> None:
    found = list(status_complaints(status(**rows)))
    assert [one.key for one in found] == [key]
    assert found[0].next_step


def test_look_has_what_the_steps_ask_for(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    world = running(3, 12)
    first, second, *others = world.newest()
    world.events += [{**first, "state": "Merging"}, {**second, "state": "Free"}]
    write_tables(world, tables, time.time_ns() // 1_000_000)
    parser = argparse.ArgumentParser()
    STACK_OPTIONS(parser)
    where = connection_options(parser.parse_args(["--tables", str(tables)]))
    with fronted_brokers() as front:
        admin = PulsarAdmin(AdminAddress(url=front.addresses[0], timeout_s=2.0))
        client = CommandClient(KafkaAddress(bootstrap="127.0.0.1:1"), tables, "local")
        cluster = PulsarCluster(where, admin, CLUSTER, client, tmp_path / "log")
        draft = replace(new_progress(), order=[front.names[0]], brokers=list(front.names))
        seen = cluster.observe(draft)
        assert seen.listed == set(front.names)
        assert seen.incarnation == "1700000000000"
        assert sorted(seen.owners) == [row["bundle"] for row in others]
        assert seen.moving == {first["bundle"]}
        assert seen.plans == {}
        assert seen.still_owned is None
        report = f"{front.fake.ports[0]}{REPORT_PATH}"
        front.fake.put(report, {"reason": "an unexpected error"}, 500)
        assert (
            cluster.observe(draft).incarnation == ""
        )  # and not another number of the same process
        first_look = PulsarCluster(where, admin, CLUSTER, client, tmp_path / "log")
        assert first_look.incarnation(front.names[0]) == ""
        front.fake.answers.clear()
        keys = [one.key for one in cluster.observe(draft).complaints]
        assert "pulsar" in keys


def outcome_of(command_id: str, status: str) -> CommandOutcome:
    return CommandOutcome(
        command_id=command_id, kind="drain_broker", status=status, reason="", result={}, at_ms=0
    )


def pulsar_cluster(tables: Path) -> PulsarCluster:
    ensure_tables(tables)
    parser = argparse.ArgumentParser()
    STACK_OPTIONS(parser)
    where = connection_options(parser.parse_args(["--tables", str(tables)]))
    client = CommandClient(KafkaAddress(bootstrap="127.0.0.1:1"), tables, "local")
    admin = PulsarAdmin(AdminAddress(url="http://127.0.0.1:1"))
    return PulsarCluster(where, admin, CLUSTER, client, tables / "log")


def test_command_may_last_as_long_as_its_verb_says_and_is_sent_again_when_read_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Command] = []
    statuses = ["accepted", "timed_out", "done"]

    def send(_: CommandClient, command: Command) -> Ticket:
        sent.append(command)
        ticket = Ticket(command_id=command.command_id)
        ticket.first.set_result(outcome_of(command.command_id, statuses[len(sent) - 1]))
        return ticket

    monkeypatch.setattr(CommandClient, "send", send)
    cluster = pulsar_cluster(tmp_path)
    for name, arguments in (("d", DrainBroker(broker="a:1")), ("c", CancelDrain(broker="a:1"))):
        late = name == "c"
        assert [cluster.send(name, arguments) for _ in range(3)] == [None if late else "", "", ""]
    assert [one.timeout_ms for one in sent] == [3_600_000, 60_000, 60_000]
    assert [one.command_id for one in sent] == ["d", "c", "c-1"]


def test_command_that_kafka_does_not_take_is_unanswered_and_its_error_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, drain = pulsar_cluster(tmp_path), DrainBroker(broker="a:1")

    def fail(*_: object) -> Ticket:
        raise UnknownError("Kafka has not confirmed it", why="no broker", next_step="mend it")

    monkeypatch.setattr(CommandClient, "send", fail)
    assert cluster.send("d", drain) is None
    assert cluster.kafka_error == "Kafka has not confirmed it: no broker"
    ticket = Ticket(command_id="d")
    ticket.first.set_result(outcome_of("d", "accepted"))
    monkeypatch.setattr(CommandClient, "send", lambda *_: ticket)
    assert cluster.send("d", drain) == ""
    assert cluster.kafka_error == ""


def test_certificate_that_ends_one_day_and_narrow_topics_are_no_complaint() -> None:
    findings = [{**FINDING, "trouble": name} for name in ("narrow", "expiring", "expiring_soon")]
    assert keys(status(mirror_commands=[told(findings=findings)])) == []


def test_plans_of_ours_that_are_open_are_known_by_their_names() -> None:
    def plan(name: str, station: str) -> dict[str, Any]:
        value = {
            "station": station,
            "since_ms": 1,
            "until_ms": 2,
            "steps": [],
            "why": "",
            "by": "ada",
            "answered_by": "",
            "before": {},
            "after": {},
        }
        return {"kind": "proposal", "name": name, "value": to_json(value), "is_set": True}

    rows = [plan("rolling-r-1", "approved"), plan("rolling-r-0", "done"), plan("else", "waits")]
    assert open_plans(rows, "rolling-r-") == {"rolling-r-1": False}


def test_usage_of_the_others_is_all_of_it_shared_by_one_less() -> None:
    def with_usages(*usages: float | None) -> ClusterStatus:
        rows = [
            BrokerStatus(broker=f"b{number}", state="active", bundles=1, usage=one)
            for number, one in enumerate(usages)
        ]
        return replace(status(), broker_rows=tuple(rows))

    assert usage_without("b0", with_usages(0.3, 0.3, 0.6)) == pytest.approx(0.6)
    assert usage_without("b0", with_usages(0.3, None, 0.6)) is None
    assert usage_without("gone", with_usages(0.3, 0.6)) is None
