"""A rolling restart's steps: done, cut anywhere, stopped by each fault, held back by clients."""

from collections.abc import Mapping
from typing import Any

import pytest

from lbcore.bridge.client_latency import load_ms, parse_client_latency, publish_ms, worst_ms
from lbcore.bridge.rolling import advance
from lbcore.bridge.rollout import (
    Announce,
    Complaint,
    DrainState,
    RestartBounds,
    RestartStage,
    Rollout,
    in_order,
    pace_of,
)
from tests.support.worlds.rolling_cluster import BROKERS, HOMES, RollingCluster, new_rollout

BOUNDS = RestartBounds()
DRAIN = DrainState(left=3, is_done=False)
STAGES = (
    RestartStage.WAITING,
    RestartStage.DRAINING,
    RestartStage.EMPTIED,
    RestartStage.RESTARTING,
    RestartStage.RETURNING,
    RestartStage.REOPENING,
    RestartStage.FILLING,
    RestartStage.EVENING,
)


def until(cluster: RollingCluster, stage: RestartStage) -> Rollout:
    """The first broker, as far as that stage."""
    rollout = new_rollout()
    for _ in range(500):
        if rollout.stage is stage:
            return rollout
        taken = advance(rollout, cluster.look(rollout), BOUNDS)
        rollout = taken.rollout
        if rollout.stage is not RestartStage.RESTARTING:
            cluster.command = None
        cluster.do(rollout, taken.actions)
    raise AssertionError(stage)


def test_each_broker_is_restarted_once_empty_and_gets_back_what_it_had() -> None:
    cluster = RollingCluster()
    done = cluster.run(new_rollout(), BOUNDS).rollout
    assert done.stage is RestartStage.DONE
    assert cluster.restarts == list(BROKERS)
    assert cluster.dropped_while_owning == []
    assert cluster.owners == HOMES
    assert cluster.drains == {}


@pytest.mark.parametrize("stage", STAGES)
def test_cut_at_any_stage_goes_on_and_restarts_each_broker_once(stage: RestartStage) -> None:
    cluster = RollingCluster()
    rollout = until(cluster, stage)
    cluster.cut()
    done = cluster.run(cluster.again(rollout), BOUNDS)
    assert done.rollout.stage is RestartStage.DONE
    assert cluster.restarts == list(BROKERS)
    assert cluster.dropped_while_owning == []
    assert cluster.owners == HOMES


@pytest.mark.parametrize("stage", STAGES)
def test_ctrl_c_at_any_stage_leaves_no_drain_of_a_broker_that_runs(stage: RestartStage) -> None:
    cluster = RollingCluster()
    rollout = until(cluster, stage)
    halted = cluster.halt(rollout)
    is_in_restart = stage in (RestartStage.RESTARTING, RestartStage.RETURNING)
    assert (rollout.broker in cluster.drains) is is_in_restart
    assert cluster.plans == {}
    cluster.cut()
    done = cluster.run(cluster.again(halted), BOUNDS)
    assert done.rollout.stage is RestartStage.DONE
    assert cluster.owners == HOMES


def test_restart_that_a_cut_has_kept_from_beginning_is_begun() -> None:
    cluster = RollingCluster()
    rollout = until(cluster, RestartStage.EMPTIED)
    taken = advance(rollout, cluster.look(rollout), BOUNDS)
    assert taken.rollout.stage is RestartStage.RESTARTING
    done = cluster.run(cluster.again(taken.rollout), BOUNDS)
    assert done.rollout.stage is RestartStage.DONE
    assert cluster.restarts == list(BROKERS)


def test_command_that_fails_stops_with_its_words_and_goes_on_when_it_is_mended() -> None:
    cluster = RollingCluster(code=255)
    taken = cluster.run(new_rollout(), BOUNDS)
    assert taken.stop is not None
    assert "ended with 255" in taken.stop.why
    assert "no such host" in taken.stop.why
    assert taken.rollout.broker in cluster.drains
    cluster.code = 0
    cluster.cut()
    again = cluster.again(taken.rollout, "better {broker}")
    assert again.command == "better {broker}"
    assert cluster.run(again, BOUNDS).rollout.stage is RestartStage.DONE


def test_abort_after_a_failed_command_opens_the_broker() -> None:
    cluster = RollingCluster(code=1)
    taken = cluster.run(new_rollout(), BOUNDS)
    cluster.cut()
    cluster.halt(taken.rollout, for_good=True)
    assert cluster.drains == {}


def test_broker_that_does_not_come_back_stops_it() -> None:
    cluster = RollingCluster(comes_back=False)
    taken = cluster.run(new_rollout(), BOUNDS)
    assert taken.stop is not None
    assert "has not come back" in taken.stop.why
    cluster.comes_back = True
    assert cluster.run(cluster.again(taken.rollout), BOUNDS).rollout.stage is RestartStage.DONE


def test_command_that_restarts_nothing_is_told() -> None:
    cluster = RollingCluster()
    rollout = until(cluster, RestartStage.RESTARTING)
    cluster.listed.add(rollout.broker)
    cluster.down_until_ms.clear()
    taken = cluster.run(rollout, BOUNDS)
    assert taken.stop is not None
    assert "is the same process as before" in taken.stop.why


FAULTS: Mapping[str, tuple[RestartStage, dict[str, Any], str]] = {
    "second broker": (RestartStage.DRAINING, {"listed": frozenset({"a:1", "c:1"})}, "b:1 is gone"),
    "itself": (
        RestartStage.FILLING,
        {"listed": frozenset({"b:1", "c:1"})},
        "was not being restarted",
    ),
    "nobody's": (
        RestartStage.DRAINING,
        {"freed": {"public/load/0": 0}},
        "nobody has had public/load/0",
    ),
    "settings": (RestartStage.FILLING, {"settings": {"a.b": "1"}}, "settings have changed"),
    "another drain": (
        RestartStage.DRAINING,
        {"drains": {"b:1": DRAIN, "a:1": DRAIN}},
        "b:1 is being drained, too",
    ),
    "cancelled": (RestartStage.EMPTIED, {"drains": {}}, "somebody else has cancelled"),
    "no room": (RestartStage.WAITING, {"others_usage": 0.95}, "95%"),
    "felt already": (RestartStage.WAITING, {"publish_latency_ms": 900.0}, "clients wait 900 ms"),
    "silent": (RestartStage.WAITING, {"incarnation": ""}, "does not answer"),
    "refused": (
        RestartStage.DRAINING,
        {"drains": {}, "refused": "nobody could take"},
        "nobody could",
    ),
    "not empty": (RestartStage.EMPTIED, {"held": ("public/load/0",)}, "not empty"),
    "uneven": (RestartStage.EVENING, {"imbalance": 2.0}, "2.00 of the mean"),
    "stuck": (RestartStage.FILLING, {"oldest_move_ms": 300_000}, "on its way"),
    "never full": (
        RestartStage.REOPENING,
        {"owners": {"public/load/0": "b:1"}, "refused": "no"},
        "no",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_stops_it_with_a_sentence_and_it_goes_on_when_that_is_over(name: str) -> None:
    stage, observed, words = FAULTS[name]
    cluster = RollingCluster()
    rollout = until(cluster, stage)
    cluster.now_ms = max(cluster.now_ms, 60_000)
    cluster.observed = observed
    taken = cluster.run(rollout, BOUNDS)
    assert taken.stop is not None
    assert words in taken.stop.why
    assert taken.stop.next_step
    assert taken.rollout.stopped == taken.stop.why
    cluster.observed = {}
    cluster.cut()
    assert cluster.run(cluster.again(taken.rollout), BOUNDS).rollout.stage is RestartStage.DONE


def test_fault_before_the_restart_cancels_the_drain_and_says_so() -> None:
    cluster = RollingCluster()
    rollout = until(cluster, RestartStage.DRAINING)
    rollout = advance(rollout, cluster.look(rollout), BOUNDS).rollout
    cluster.drains[rollout.broker] = 2
    cluster.complaints = (Complaint(key="job", why="the job is away", next_step="start it"),)
    taken = cluster.run(rollout, BOUNDS)
    assert cluster.drains == {}
    assert any(isinstance(one, Announce) and "is open again" in one.text for one in taken.actions)


def test_what_lasts_shorter_than_its_patience_stops_nothing() -> None:
    cluster = RollingCluster()
    rollout = until(cluster, RestartStage.DRAINING)
    cluster.complaints = (
        Complaint(key="x", why="for a moment", next_step="wait", patience_ms=10_000),
    )
    rollout = advance(rollout, cluster.look(rollout), BOUNDS).rollout
    cluster.complaints = ()
    assert cluster.run(rollout, BOUNDS).rollout.stage is RestartStage.DONE


def test_complaint_of_the_broker_in_hand_is_none_while_it_restarts() -> None:
    cluster = RollingCluster()
    rollout = until(cluster, RestartStage.RETURNING)
    one = Complaint(key=f"unresponsive {rollout.broker}", why="it is silent", next_step="wait")
    cluster.complaints = (one,)
    assert advance(rollout, cluster.look(rollout), BOUNDS).stop is None


@pytest.mark.parametrize("stage", [RestartStage.DRAINING, RestartStage.FILLING])
def test_clients_that_feel_it_hold_moves_back_and_halve_the_pace(stage: RestartStage) -> None:
    cluster = RollingCluster()
    rollout = until(cluster, stage)
    while not (cluster.drains or cluster.plans):
        taken = advance(rollout, cluster.look(rollout), BOUNDS)
        rollout = taken.rollout
        cluster.do(rollout, taken.actions)
    cluster.observed = {"publish_latency_ms": 800.0}
    taken = advance(rollout, cluster.look(rollout), BOUNDS)
    cluster.do(taken.rollout, taken.actions)
    assert taken.rollout.stage is RestartStage.EASING
    assert taken.rollout.at_once == 1
    assert cluster.drains == {}
    assert cluster.plans == {}
    cluster.observed = {}
    done = cluster.run(taken.rollout, BOUNDS)
    assert done.rollout.stage is RestartStage.DONE
    assert cluster.owners == HOMES


def test_topics_that_load_slowly_are_moved_one_by_one_and_not_held_back_for_it() -> None:
    cluster = RollingCluster()
    cluster.observed = {"load_ms": 900.0}
    done = cluster.run(new_rollout(), BOUNDS)
    assert done.rollout.stage is RestartStage.DONE
    assert done.rollout.at_once == 1


def test_clients_that_wait_without_moves_stop_it() -> None:
    cluster = RollingCluster()
    rollout = until(cluster, RestartStage.DRAINING)
    cluster.observed = {"publish_latency_ms": 800.0}
    taken = cluster.run(rollout, BOUNDS)
    assert taken.stop is not None
    assert "though nothing is moved" in taken.stop.why


def test_person_is_asked_and_waited_for() -> None:
    cluster = RollingCluster()
    done = cluster.run(new_rollout(command=""), BOUNDS)
    assert done.rollout.stage is RestartStage.DONE


def test_bundle_that_can_not_go_back_is_told_and_does_not_stop_it() -> None:
    cluster = RollingCluster()
    rollout = until(cluster, RestartStage.FILLING)
    cluster.observed = {"owners": {**HOMES, "public/load/0": "b:1"}}
    said = []
    for _ in range(200):
        taken = advance(rollout, cluster.look(rollout), BOUNDS)
        rollout = taken.rollout
        said += [one.text for one in taken.actions if isinstance(one, Announce)]
        if rollout.stage is RestartStage.EVENING:
            break
    assert any("1 bundles stay elsewhere" in text for text in said)


def test_plan_that_was_left_waiting_is_approved() -> None:
    cluster = RollingCluster()
    rollout = until(cluster, RestartStage.FILLING)
    cluster.plans, cluster.waiting = {"rolling-r-0-9": {}}, {"rolling-r-0-9"}
    assert cluster.run(rollout, BOUNDS).rollout.stage is RestartStage.DONE


def test_file_has_all_of_it() -> None:
    rollout = until(RollingCluster(), RestartStage.FILLING)
    assert Rollout.from_json(rollout.to_json()) == rollout


def test_pace_is_a_twentieth_of_what_there_is_within_bounds() -> None:
    assert [pace_of(count) for count in (0, 20, 64, 10_000)] == [1, 1, 3, 16]


def test_order_is_by_load_and_the_broker_that_is_asked_comes_last() -> None:
    assert in_order(BROKERS, {"a:1": 1.0, "b:1": 3.0, "c:1": 2.0}, "a:1") == ("c:1", "b:1", "a:1")


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
