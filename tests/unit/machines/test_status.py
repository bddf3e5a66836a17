"""The status that an operator reads: phase, moves, alarms, job state, mirror."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lbcore.balancer.candidate_rows import BLOCKED_ALARM_S
from lbcore.balancer.effects import to_json
from lbcore.config.cluster import ClusterConfig
from lbcore.config.pipeline import Pipeline
from lbcore.config.tree import Config
from lbcore.explain.job_state import CycleGap, JobContext, gaps
from lbcore.explain.mirrored import NEVER_MS, MirrorStatus, mirror_alarms, mirror_status
from lbcore.explain.status import ClusterPhase, ClusterStatus, StatusRows, make_status, moments

NOW_MS = 1_000_000_000
CONFIG = Config()


def bundle(name: str, state: str = "Owned", **row: Any) -> dict[str, Any]:
    known = {"source": "", "destination": "b1", "cause": "assign", "version_id": 1}
    return {"bundle": name, "state": state, "at_ms": NOW_MS - 1_000, **known, **row}


def policy(kind: str, name: str = "", *, is_set: bool = True, **value: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "value": to_json(value), "is_set": is_set}


def decision(cycle: int, kind: str = "skip", reason: str = "HitCount", age_ms: int = 2_000) -> Any:
    return {"cycle": cycle, "kind": kind, "reason": reason, "source": "", "at_ms": NOW_MS - age_ms}


def status(config: Config = CONFIG, **rows: Any) -> ClusterStatus:
    known: dict[str, Any] = {
        "writer_ms": NOW_MS - 1_500,
        "bundles": [bundle("n/a/1"), bundle("n/a/2", destination="b2")],
        "brokers": [{"broker": "b2", "state": "active"}, {"broker": "b1", "state": "active"}],
        "decisions": [decision(6), decision(7)],
        "policies": [],
        "pins": [],
        "load": [],
        "rejected": [],
    }
    return make_status("local", StatusRows(**{**known, **rows}), config, NOW_MS)


def test_status_of_a_quiet_cluster_is_ready_without_alarms() -> None:
    found = status()
    assert (found.phase, found.alarms) == (ClusterPhase.READY, ())
    assert (found.writer_silent_ms, found.cycle, found.cycle_age_ms) == (1_500, 7, 2_000)
    assert found.last_cycle == "1 skip (HitCount)"
    assert [(row.broker, row.bundles) for row in found.broker_rows] == [("b1", 1), ("b2", 1)]
    assert (found.brokers, found.bundles) == ({"active": 2}, {"Owned": 2})


def test_no_calm_word_stands_above_an_alarm() -> None:
    calm = replace(status(), alarms=())
    stalled = replace(calm, phase=ClusterPhase.STALLED)
    assert calm.headline == "ready"
    assert replace(calm, alarms=("a",)).headline == "1 alarm"
    assert replace(stalled, alarms=("a", "b")).headline == "stalled, 2 alarms"


def test_bundles_at_rest_are_counted_like_those_that_are_told_one_by_one() -> None:
    moving = bundle("n/a/3", state="Releasing", source="b1", destination="b2")
    whole = status(bundles=[bundle("n/a/1"), bundle("n/a/2", destination="b2"), moving])
    assert status(bundles=[moving], at_rest={"b1": 1, "b2": 1}) == whole
    assert whole.bundles == {"Owned": 2, "Releasing": 1}


def test_status_says_what_nobody_serves_until_somebody_else_has_it() -> None:
    brokers = [{"broker": "b1", "state": "silent"}, {"broker": "b2", "state": "active"}]
    bundles = [bundle("n/a/1"), bundle("n/a/2"), bundle("n/a/3", destination="b2")]
    found = status(brokers=brokers, bundles=bundles)
    assert found.phase is ClusterPhase.IN_PROGRESS
    assert found.why == "b1 is silent and nobody serves its 2 bundles"
    taken = status(brokers=brokers, bundles=[bundle("n/a/1", destination="b2")])
    assert (taken.phase, taken.why) == (ClusterPhase.READY, "nothing is moving")


def test_status_after_a_rebuild_goes_by_time_not_by_a_number_that_began_anew() -> None:
    before = [decision(107, "transfer", "Overloaded", 300_000), decision(2, age_ms=900_000)]
    found = status(decisions=[*before, decision(1, age_ms=12_000), decision(2)])
    assert (found.phase, found.cycle, found.cycle_age_ms) == (ClusterPhase.READY, 2, 2_000)
    assert (found.last_cycle, found.alarms) == ("1 skip (HitCount)", ())


def test_status_judges_by_the_settings_that_commands_have_changed() -> None:
    slow = {f"pipeline.{name}_interval_ms": 60_000 for name in ("decision", "shed", "split")}
    cycles = [decision(6, age_ms=110_000), decision(7, age_ms=50_000)]
    found = status(decisions=cycles, settings=slow)
    assert (found.phase, found.alarms, found.gaps) == (ClusterPhase.READY, (), ())
    assert status(decisions=cycles).phase is ClusterPhase.STALLED


def test_status_before_the_job_has_written_is_off() -> None:
    found = status(writer_ms=None, bundles=[], brokers=[], decisions=[])
    assert found.phase is ClusterPhase.OFF
    assert (found.writer_silent_ms, found.cycle_age_ms) == (-1, -1)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ({"writer_ms": NOW_MS - 31_000}, "the streaming job is away"),
        ({"brokers": [{"broker": "b1", "state": "silent"}]}, "no broker is heard"),
        ({"decisions": [decision(7, age_ms=36_000)]}, "makes no cycles"),
        ({"bundles": [bundle("n/a/1", "Releasing", at_ms=NOW_MS - 91_000)]}, "in flight"),
    ],
)
def test_status_that_does_not_go_on_is_stalled(rows: dict[str, Any], why: str) -> None:
    found = status(**rows)
    assert found.phase is ClusterPhase.STALLED
    assert why in found.why


def test_status_with_the_brake_on_is_off_and_an_alarm() -> None:
    found = status(policies=[policy("brake", since_ms=NOW_MS, lost=["b3", "b4"], brokers=5)])
    assert found.phase is ClusterPhase.OFF
    (alarm,) = found.alarms
    assert "b3, b4" in alarm
    assert "release-brake" in alarm


def test_status_while_bundles_move_is_in_progress_the_oldest_first() -> None:
    moving = [
        bundle("n/a/1", "Assigning", at_ms=NOW_MS - 10),
        bundle("n/a/2", "Releasing", source="b2", at_ms=NOW_MS - 20),
    ]
    found = status(bundles=moving)
    assert found.phase is ClusterPhase.IN_PROGRESS
    assert [row["bundle"] for row in found.in_flight] == ["n/a/2", "n/a/1"]
    assert [row.bundles for row in found.broker_rows] == [0, 1], "who releases has it still"


def test_status_of_drains_is_in_progress_until_they_are_done() -> None:
    value = {"since_ms": NOW_MS - 60_000, "total": 10, "left": 4, "estimated_end_ms": NOW_MS + 5}
    under_way = policy("drain", "b1", **value, deadline_ms=NOW_MS - 1, is_done=False)
    found = status(policies=[under_way])
    assert (found.phase, found.why) == (ClusterPhase.IN_PROGRESS, "draining b1")
    assert [(one.broker, one.left, one.total) for one in found.drains] == [("b1", 4, 10)]
    assert any("over its deadline" in alarm for alarm in found.alarms)
    done = policy("drain", "b1", **{**value, "left": 0}, is_done=True)
    assert status(policies=[done]).phase is ClusterPhase.READY
    for deadline_ms, is_done in ((NOW_MS - 1, True), (NOW_MS, False), (0, False)):
        drain = policy("drain", "b1", **value, deadline_ms=deadline_ms, is_done=is_done)
        assert not any("deadline" in alarm for alarm in status(policies=[drain]).alarms)


def test_status_alarms_of_silent_brokers_free_bundles_and_rejected_messages() -> None:
    found = status(
        brokers=[{"broker": "b1", "state": "active"}, {"broker": "b9", "state": "silent"}],
        bundles=[bundle("n/a/1", "Free", destination="", at_ms=NOW_MS - 60_000)],
        rejected=[{"reason": "not_json"}, {"reason": "not_json"}],
    )
    assert [alarm.partition(":")[0].partition(",")[0] for alarm in found.alarms] == [
        "b9 is silent",
        "1 bundle has no owner",
        "2 messages rejected (not_json) within 10 minutes",
    ]


def test_bundle_may_be_free_until_it_should_have_an_owner() -> None:
    limit_ms = 5 * CONFIG.pipeline.settle_ms + 2 * CONFIG.pipeline.decision_interval_ms
    for age_ms, is_late in ((limit_ms, False), (limit_ms + 1, True)):
        found = status(bundles=[bundle("n/a/1", "Free", destination="", at_ms=NOW_MS - age_ms)])
        assert any("has no owner" in alarm for alarm in found.alarms) is is_late


def test_status_alarms_of_missing_ticks_until_they_are_back_and_of_flapping_brokers() -> None:
    missing, back = decision(7, "ticks", "Missing", 9_000), decision(7, "ticks", "Back", 8_000)
    (alarm,) = status(decisions=[decision(7), missing]).alarms
    assert alarm.startswith("no ticks on broker-load")
    assert status(decisions=[decision(7), back, missing]).alarms == ()
    flapping = {**decision(7, "back_off", "Flapping"), "source": "b2"}
    (alarm,) = status(decisions=[decision(7), flapping]).alarms
    assert alarm.startswith("b2 starts again and again")


def test_status_of_a_job_whose_commit_is_overdue_is_late_not_ready() -> None:
    found = status(writer_ms=NOW_MS - 19_000, decisions=[decision(7, age_ms=20_000)])
    assert found.phase is ClusterPhase.LATE
    assert "last commit 19 s ago, one is due every 10 s" in found.why


def load_of(broker: str, rate: float, age_ms: int, **columns: Any) -> dict[str, Any]:
    """A row of load_history as an older version wrote it."""
    return {
        "broker": broker,
        "minute_ms": NOW_MS - age_ms,
        "score": 0.5,
        "percent": [30.0, 90.0, 99.0, 20.0, 10.0],
        "traffic": [rate, 0.0, 0.0, 0.0],
        **columns,
    }


def test_status_of_a_silent_broker_shows_no_load_and_that_of_others_has_an_age() -> None:
    brokers = [{"broker": "b1", "state": "silent"}, {"broker": "b2", "state": "active"}]
    load = [load_of(name, rate, 90_000) for name, rate in (("b1", 18_773.0), ("b2", 100.0))]
    found = status(brokers=brokers, load=load)
    dead, live = found.broker_rows
    assert (dead.msg_rate, dead.usage, dead.score, dead.load_age_ms) == (None, None, None, -1)
    assert (live.msg_rate, live.load_age_ms) == (100.0, 90_000)
    assert found.imbalance == 1.0


@pytest.mark.parametrize(
    ("days", "warned", "alarmed"), [(31, 0, 0), (29, 1, 0), (8, 1, 0), (6, 0, 1), (-1, 0, 1)]
)
def test_certificate_of_the_service_is_a_warning_and_then_an_alarm(
    days: int, warned: int, alarmed: int
) -> None:
    found = status(certificates={"the service (s.pem)": NOW_MS + days * 86_400_000})
    assert (len(found.warnings), len(found.alarms)) == (warned, alarmed)
    for words in (*found.warnings, *found.alarms):
        assert words.startswith("the service (s.pem) has a certificate until ")
        assert "section BallastCertificateExpires" in words


def test_certificates_that_the_bridge_told_of_are_a_warning_or_an_alarm() -> None:
    def finding(trouble: str, whose: str) -> dict[str, Any]:
        told = {"trouble": trouble, "subject": whose, "evidence": "has a certificate until X"}
        return {**told, "since_ms": NOW_MS - 1, "stage": "told"}

    result = {"findings": [finding("expiring", "b1:8443"), finding("expiring_soon", "b2:8443")]}
    command = {"status": "done", "at_ms": NOW_MS - 1_000, "result": to_json(result)}
    external = replace(CONFIG, cluster=ClusterConfig(authority="external"))
    found = status(external, mirror_commands=[command])
    assert [words.partition(" has ")[0] for words in found.warnings] == ["b1:8443"]
    assert [words.partition(" has ")[0] for words in found.alarms] == ["b2:8443"]


def test_status_beside_another_authority_says_what_its_guardian_finds() -> None:
    troubles = ("unserved", "stuck", "unserved", "expiring")
    findings = [
        {"trouble": one, "subject": f"n/a/{at}", "since_ms": 1, "evidence": "e", "stage": "told"}
        for at, one in enumerate(troubles)
    ]
    result = {"findings": findings}
    command = {"status": "done", "at_ms": NOW_MS - 1_000, "result": to_json(result)}
    external = replace(CONFIG, cluster=ClusterConfig(authority="external"))
    found = status(external, mirror_commands=[command])
    assert found.phase is ClusterPhase.READY
    assert found.why == "nothing is moving, though the guardian finds 2 unserved, 1 stuck"


def silence(reason: str, source: str = "", age_ms: int = 1_000, **inputs: Any) -> dict[str, Any]:
    told = {"silent_ms": 6_000, "broker_timeout_ms": 15_000, **inputs}
    row = {"decision_id": f"1-{NOW_MS - age_ms}", "kind": "silence", "reason": reason}
    return {**row, "source": source, "at_ms": NOW_MS - age_ms, "inputs": to_json(told)}


def failover(source: str, age_ms: int, **destinations: int) -> dict[str, Any]:
    inputs = {"bundles": sum(destinations.values()), "destinations": destinations}
    row = {"decision_id": "2-1", "kind": "failover", "reason": "owner_dead", "source": source}
    return {**row, "at_ms": NOW_MS - age_ms, "inputs": to_json(inputs)}


def test_suspected_broker_is_named_with_its_silence_and_when_it_is_failed_over() -> None:
    found = status(silence=[silence("Suspected", "b1")])
    words = "b1 suspected: silent for 7 s, failover at 15 s"
    assert (found.phase, found.why) == (ClusterPhase.IN_PROGRESS, words)
    advice = "see whether its process is frozen, or cut off from Kafka (its agent's log)"
    assert found.alarms == (f"{words}: {advice}",)
    assert found.alarm_sections == ("BallastBrokerDown",)
    assert status(silence=[silence("Suspected", "b1"), silence("Heard", "b1", 500)]) == status()


def test_dead_broker_is_named_with_the_time_its_silence_and_who_got_its_bundles() -> None:
    brokers = [{"broker": "b1", "state": "silent"}, {"broker": "b2", "state": "active"}]
    rows = [silence("Suspected", "b1", 13_000), silence("Dead", "b1", 4_000, silent_ms=15_600)]
    rows += [
        failover("b1", 4_000, b2=1, b3=2),
        failover("b1", 3_000, b3=1),
        failover("b9", 1, b2=7),
    ]
    (alarm,) = status(brokers=brokers, bundles=[], silence=rows).alarms
    assert alarm == (
        "b1 found dead at 13:46:36 UTC after 15 s of silence, 4 bundles moved to b2 (1), b3 (3):"
        " start it, or `ballast broker forget b1`"
    )


def test_silence_of_many_stalls_and_is_said_once() -> None:
    many = silence("Many", silent=["b1", "b2"], count=2, brokers=2)
    found = status(silence=[many, silence("Suspected", "b1"), silence("Suspected", "b2")])
    assert found.phase is ClusterPhase.STALLED
    assert (
        found.why == "2 of 2 brokers are silent, such as b1, b2, for up to 7 s, and failover waits"
    )
    assert len(found.alarms) == 1
    assert status(silence=[many, silence("Over", age_ms=10, count=0)]) == status()


@pytest.mark.parametrize("writer_age_ms", [2_000, 60_000])
def test_kafka_that_does_not_answer_is_said_first_and_the_job_is_not_to_be_started(
    writer_age_ms: int,
) -> None:
    trouble = "Kafka does not answer at kafka-1:9092 (no answer within 1 s)"
    around = JobContext(kafka_trouble=trouble, log="/logs/job.log")
    found = status(writer_ms=NOW_MS - writer_age_ms, around=around)
    assert found.alarms[0].startswith(trouble)
    assert not any("start it again" in alarm or "read" in alarm for alarm in found.alarms)
    assert found.why.startswith(trouble)
    is_away = writer_age_ms == 60_000
    assert found.phase is (ClusterPhase.STALLED if is_away else ClusterPhase.LATE)


def test_job_that_is_away_has_alarms_with_their_age_and_a_log_that_can_be_read() -> None:
    brokers = [{"broker": "b1", "state": "silent"}, {"broker": "b2", "state": "active"}]
    rows: dict[str, Any] = {"brokers": brokers, "bundles": [], "writer_ms": NOW_MS - 60_000}
    rows["silence"] = [silence("Suspected", "b2", 61_000)]
    found = status(**rows, around=JobContext(log="/logs/job.log"))
    job, *told = found.alarms
    assert job == "no heartbeat of the job for 1 min: read /logs/job.log, start it again"
    assert len(told) == 2
    assert all(alarm.endswith("(as of 1 min ago)") for alarm in told)
    assert "silent for 7 s" in told[0]
    supervised = status(**rows, around=JobContext(log="/logs/job.log", is_supervised=True))
    assert "starts it again by itself" in supervised.alarms[0]
    assert "/logs/job.log" in supervised.alarms[0]


@pytest.mark.parametrize(
    ("setting", "command"),
    [
        ("filters.load_manager_class", "`ballast config set filters.load_manager_class=VALUE`"),
        ("isolation policies", "`ballast policy set-isolation`"),
        ("anti-affinity groups", "`ballast policy delete-group`"),
        ("silent brokers", "they wait until these are heard"),
    ],
)
def test_bundles_without_candidate_name_the_rule_and_a_way_out(setting: str, command: str) -> None:
    row = {**decision(7, "no_candidate", setting), "bundle": "n/a/1", "inputs": "{}"}
    (alarm,) = status(decisions=[decision(6), row], blocked=[row]).alarms
    assert setting in alarm
    assert command in alarm


def test_full_cluster_is_an_alarm_that_names_the_brokers_it_lacks() -> None:
    inputs = {"mean": 98.4, "missing": 2, "brokers": 6, "target": 75.0, "of": ["b1", "b2"]}
    row = {"kind": "full", "reason": "Full", "source": "", "bundle": "", "cycle": 3}
    row |= {"at_ms": NOW_MS - 20_000, "decision_id": "1-1", "inputs": json.dumps(inputs)}
    (alarm,) = status(blocked=[row]).alarms
    assert "the mean usage of 6 brokers (b1, b2, ...) is 98 %" in alarm
    assert "start at least 2 brokers of the mean capacity, which brings it to 75 %" in alarm
    over = {**row, "reason": "Over", "at_ms": NOW_MS - 10_000}
    assert status(blocked=[row, over]).alarms == ()
    assert status(blocked=[{**row, "at_ms": NOW_MS - 700_000}]).alarms == ()


@pytest.mark.parametrize(("hot_s", "alarms"), [(24, 0), (BLOCKED_ALARM_S, 1)])
def test_hot_broker_that_gives_nothing_is_an_alarm_after_three_minutes(
    hot_s: int, alarms: int
) -> None:
    inputs = {"usage": 0.6, "mean": 0.4, "since_ms": NOW_MS - hot_s * SECOND_MS, "bundles": 2}
    inputs |= {"counts": {"pinned": 2}, "verdict": ""}
    row = {"kind": "blocked", "reason": "pinned", "source": "b1", "bundle": "", "cycle": 3}
    row |= {"at_ms": NOW_MS, "decision_id": "1-1", "inputs": json.dumps(inputs)}
    found = status(blocked=[row])
    assert len(found.alarms) == alarms
    assert "b1 is hot" in found.why


PIPELINE = Pipeline(heartbeat_commit_ms=10_000, decision_interval_ms=5_000)
SECOND_MS = 1_000


def test_times_without_cycles_are_told_afterwards_in_any_order_of_rows() -> None:
    rows = [{"cycle": n, "kind": "skip", "at_ms": n * 5_000} for n in (5, 1, 2, 50, 3, 4, 51)]
    late = {"cycle": 5, "kind": "failover", "at_ms": 100_000}  # bears the last cycle's number
    found = gaps([*rows, late], PIPELINE, 256_000)
    assert found == (CycleGap(from_ms=25_000, until_ms=250_000),)
    message = "no cycles from 1970-01-01 00:00:25 UTC to 1970-01-01 00:04:10 UTC (3 min 45 s)"
    assert found[0].message() == f"{message}: nothing was decided"
    assert gaps(rows, PIPELINE, 300_000)[-1] == CycleGap(from_ms=255_000, until_ms=0)


EXTERNAL = replace(Config(), cluster=ClusterConfig(authority="external"))


def told(age_ms: int, status: str = "done", **result: int) -> dict[str, Any]:
    return {"status": status, "at_ms": NOW_MS - age_ms, "result": to_json(result)}


def mirror(*rows: dict[str, Any]) -> MirrorStatus:
    found = mirror_status(rows, EXTERNAL, NOW_MS)
    assert found is not None
    return found


def test_mirror_is_what_was_told_last() -> None:
    found = mirror(
        told(1_000, differences=2, owners=1),
        told(50_000, differences=9, owners=4),
        told(500, "timed_out", differences=7),
    )
    assert list(mirror_alarms(mirror(told(180_000)))) == []
    assert (found.heard_ago_ms, found.differences) == (1_000, 2)
    assert (found.taken_over, found.taken_over_lately) == (1, 5)
    assert list(mirror_alarms(found)) == []


def test_bridge_that_tells_nothing_is_an_alarm_unless_the_job_is_away_and_has_not_read_it() -> None:
    assert "start `ballast bridge pulsar`" in "".join(mirror_alarms(mirror()))
    assert "for 181 s" in "".join(mirror_alarms(mirror(told(181_000))))
    assert list(mirror_alarms(mirror(told(181_000)), 20_000)) == []
    assert list(mirror_alarms(mirror(told(900_000)), 890_000)) == []
    assert list(mirror_alarms(mirror(), NEVER_MS)) == []
    assert list(mirror_alarms(mirror(), 181_000)) == []
    assert "for 190 s" in "".join(mirror_alarms(mirror(told(900_000)), 710_000))


def test_moment_of_several_groups_is_that_of_the_worst_of_them() -> None:
    rows = [
        (1, "", 9, 1.0, 9.0),
        (1, "a", 2, 10.0, 11.0),
        (1, "b", 2, 1.0, 2.0),
        (2, "", 1, 1.0, 1.5),
    ]
    assert [(one.at_ms, one.imbalance) for one in moments(rows)] == [(1, 2.0), (2, 1.5)]
