"""The guardian: each ownership fault in virtual time, and its probes over HTTP."""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.bridge.admin_address import AdminAddress
from jobs.bridge.bridge import GuardianProbe
from jobs.bridge.collector import Collector, PollOptions
from jobs.bridge.pulsar_admin import PulsarAdmin
from lbcore.bridge.answers import topic_within
from lbcore.bridge.guardian import (
    Finding,
    FindingStage,
    GuardianTimeouts,
    GuardState,
    Judged,
    Looked,
    ProbeRound,
    Trouble,
    judge,
)
from lbcore.bridge.mirror import Difference, commands_of
from lbcore.bridge.reports import partitions_in
from lbcore.config.tree import Config
from lbcore.explain.explanation import Explanation
from lbcore.explain.mirrored import MirrorStatus, finding_message, mirror_alarms, with_findings
from lbcore.wire.commands import format_arguments, parse_arguments
from lbcore.wire.kinds.mirror_commands import ObserveOwnership
from lbcore.wire.messages import Message
from tests.support.admin.fake_pulsar import CLUSTER, STATUS, FakePulsar, fake_pulsar

A, B, C = "a:8080", "b:8080", "c:8080"
ONE, TWO = "acme/ns/0x00000000_0x80000000", "acme/ns/0x80000000_0xffffffff"
PATIENCE = GuardianTimeouts()
STEP_MS = 3_000


def seen(
    a: Any = (), b: Any = (), c: Any = (), *, listed: Iterable[str] = (A, B, C), **more: Any
) -> ProbeRound:
    owned = {name: None if held is None else frozenset(held) for name, held in zip(
        (A, B, C), (a, b, c), strict=True)}  # fmt: skip
    return ProbeRound(listed=frozenset(listed), owned=owned, **more)


def watch(
    rounds: Iterable[ProbeRound], *, acts: bool = False, step_ms: int = STEP_MS
) -> list[Judged]:
    state, found = GuardState(), []
    for number, each in enumerate(rounds):
        found.append(judge(state, each, 1_000 + number * step_ms, PATIENCE, acts=acts))
        state = found[-1].state
    return found


def troubles(judged: Judged) -> list[tuple[Trouble, str]]:
    return [(one.trouble, one.subject) for one in judged.findings]


HEALTHY = seen(a=[ONE], b=[TWO], used_bundles=frozenset((ONE, TWO)))
WRONG = {
    "two owners": (seen(a=[ONE], b=[ONE, TWO]), (Trouble.DOUBLED, ONE)),
    "no owner though clients ask": (
        seen(b=[TWO], used_bundles=frozenset((ONE, TWO))),
        (Trouble.UNSERVED, ONE),
    ),
    "the owner does not answer": (
        seen(a=None, b=[TWO], used_bundles=frozenset((ONE, TWO))),
        (Trouble.UNSERVED, ONE),
    ),
    "lookups in circles": (
        seen(a=[ONE], b=[TWO], lookups={ONE: Looked(hops=(A, B, A))}),
        (Trouble.CIRCLING, ONE),
    ),
    "a broker that is listed no more and serves": (
        seen(a=[ONE], b=[TWO], listed=(B, C)),
        (Trouble.UNLISTED, A),
    ),
}


@pytest.mark.parametrize(("wrong", "told"), WRONG.values(), ids=list(WRONG))
def test_trouble_is_told_once_it_has_lasted_and_no_more_when_it_is_over(
    wrong: ProbeRound, told: tuple[Trouble, str]
) -> None:
    before, first, second, after = watch([HEALTHY, wrong, wrong, HEALTHY])
    assert troubles(before) == troubles(first) == []
    assert first.look_in_ms == PATIENCE.confirm_ms
    assert troubles(second) == [told]
    assert second.findings[0].since_ms == 1_000 + STEP_MS
    assert second.findings[0].evidence
    assert troubles(after) == []
    assert after.look_in_ms is None
    for_one_round = watch([HEALTHY, wrong, HEALTHY, wrong, HEALTHY], step_ms=60_000)
    assert not any(one.findings for one in for_one_round)


UNCLEAR = seen(b=[TWO], c=None, used_bundles=frozenset((ONE, TWO)))
UNASKED = seen(b=[TWO], used_bundles=frozenset((TWO,)))
MANY = [f"acme/ns{number}/0x00000000_0xffffffff" for number in range(PATIENCE.crowd + 1)]
NO_FINDING: dict[str, list[ProbeRound]] = {
    "other owners each time": [
        seen(a=[ONE], b=[ONE]),
        seen(b=[ONE], c=[ONE]),
        seen(a=[ONE], c=[ONE]),
    ],
    "it may be at a silent broker": [HEALTHY, UNCLEAR, UNCLEAR, UNCLEAR],
    "no owner and no client": [HEALTHY, UNASKED, UNASKED],
    "each step of a move anew": [
        seen(moving={ONE: f"Releasing, version {n // 9}"}) for n in range(40)
    ],
    "many died with two brokers": [
        *(seen(a=MANY), *[seen(a=None)] * 2, seen(a=None, b=MANY), *[seen(a=None, b=None)] * 3)
    ],
    "brokers stopped in turn": [
        HEALTHY,
        *[seen(a=None, b=[ONE, TWO], listed=(B, C))] * 3,
        *[seen(a=None, b=None, c=[ONE, TWO], listed=(C,))] * 3,
    ],
    "two partitions": [seen(a=[ONE], partitions={ONE: {"persistent://acme/ns/t": 2}})] * 30,
}


@pytest.mark.parametrize("name", NO_FINDING)
def test_what_may_be_sound_is_no_finding(name: str) -> None:
    assert not any(one.findings for one in watch(NO_FINDING[name], acts=True))


def test_owner_that_falls_silent_leaves_a_finding_as_it_is() -> None:
    doubled = seen(a=[ONE], b=[ONE])
    assert troubles(watch([doubled, doubled, seen(a=[ONE], b=None)])[-1]) == [
        (Trouble.DOUBLED, ONE)
    ]


def test_broker_that_is_listed_and_answers_nothing_is_told_after_a_minute() -> None:
    mute = seen(a=[ONE], b=[TWO], c=None)
    found = watch([HEALTHY, *[mute] * 25])
    first = next(number for number, one in enumerate(found) if one.findings)
    assert (first - 1) * STEP_MS == PATIENCE.unresponsive_ms
    assert troubles(found[first]) == [(Trouble.UNRESPONSIVE, C)]
    assert found[first].repairs == ()
    gone = seen(a=[ONE], b=[TWO], c=None, listed=(A, B))
    assert not any(one.findings for one in watch([HEALTHY, *[mute] * 10, *[gone] * 25]))


@pytest.mark.parametrize(
    "stuck",
    [
        seen(a=[ONE], b=[TWO], closing=frozenset((ONE,))),
        seen(a=[ONE], b=[TWO], moving={ONE: "Releasing, version 7"}),
    ],
)
def test_bundle_on_its_way_is_told_when_that_lasts_longer_than_a_move(stuck: ProbeRound) -> None:
    found = watch([HEALTHY, *[stuck] * 12])
    first = next(number for number, one in enumerate(found) if one.findings)
    assert (first - 1) * STEP_MS == PATIENCE.stuck_ms
    assert troubles(found[first]) == [(Trouble.STUCK, ONE)]


def test_bundle_whose_owners_die_one_after_the_other_is_poison_and_held_back() -> None:
    dead_a = seen(a=None, b=[TWO])
    moved, dead_c = seen(a=None, b=[TWO], c=[ONE]), seen(a=None, b=[TWO], c=None)
    found = watch([HEALTHY, dead_a, dead_a, moved, dead_c, dead_c], acts=True)
    assert not any(one.findings for one in found[:-1])
    assert troubles(found[-1]) == [(Trouble.POISON, ONE)]
    assert f"{A} and {C} died" in found[-1].findings[0].evidence
    assert found[-1].quarantined == {ONE}


def test_mend_is_asked_once_and_what_it_does_not_help_is_quarantined() -> None:
    found = watch([seen(a=[ONE], b=[ONE])] * 12, acts=True)
    assert [len(one.repairs) for one in found].count(1) == 1
    stages = [one.findings[0].stage for one in found if one.findings]
    assert stages[0] is FindingStage.MENDING
    assert stages[-1] is FindingStage.QUARANTINED
    first = next(number for number, one in enumerate(found) if one.quarantined)
    assert first * STEP_MS <= PATIENCE.confirm_ms + 30_000
    assert found[-1].quarantined == {ONE}
    observed = watch([seen(a=[ONE], b=[ONE])] * 12)
    assert not any(one.repairs or one.quarantined for one in observed)


def test_quarantine_lasts_while_the_finding_does_though_it_is_mended_again() -> None:
    rounds = 3 * PATIENCE.again_ms // STEP_MS
    found = watch([*[seen(a=[ONE], b=[ONE])] * rounds, HEALTHY], acts=True)
    first = next(number for number, one in enumerate(found) if one.quarantined)
    assert all(one.quarantined == {ONE} for one in found[first:-1])
    assert sum(len(one.repairs) for one in found) == 3
    assert found[-1].quarantined == frozenset()


def test_mend_that_brings_another_second_owner_is_not_asked_again() -> None:
    before, between, after = seen(a=[ONE], b=[ONE]), seen(b=[ONE]), seen(b=[ONE], c=[ONE])
    found = watch([before, before, between, *[after] * 9], acts=True)
    assert sum(len(one.repairs) for one in found) == 1
    assert found[-1].quarantined == {ONE}
    later = watch([*[before] * 2, *[between] * 100, *[before] * 2], acts=True)
    assert sum(len(one.repairs) for one in later) == 2


def test_no_more_is_asked_in_a_minute_than_allowed() -> None:
    many = [f"acme/ns{number}/0x00000000_0xffffffff" for number in range(9)]
    found = watch([seen(a=many, b=many)] * 22, acts=True)
    asked = [len(one.repairs) for one in found]
    assert asked[:3] == [0, PATIENCE.repairs_per_minute, 0]
    assert sum(asked[:20]) == PATIENCE.repairs_per_minute
    assert sum(asked) == 2 * PATIENCE.repairs_per_minute


def test_what_no_repair_helps_does_not_keep_others_from_being_mended() -> None:
    minutes = PATIENCE.again_ms // 60_000
    count = PATIENCE.repairs_per_minute * minutes + 3
    lost = frozenset(f"acme/ns{number}/0x00000000_0xffffffff" for number in range(count))
    rounds = 2 * PATIENCE.again_ms // STEP_MS
    found = watch([seen(used_bundles=lost)] * rounds, acts=True)
    assert {one.subject for judged in found for one in judged.repairs} == lost


def test_lost_bundle_is_told_though_hundreds_of_topics_and_certificates_are() -> None:
    topics = {f"persistent://acme/ns/t{number}": 9 for number in range(150)}
    narrow = seen(a=[ONE], partitions={ONE: topics}, used_bundles=frozenset((ONE, TWO)),
                  certificates={f"broker-{number}": 2_000 for number in range(150)})  # fmt: skip
    judged = watch([narrow] * 30)[-1]
    (command,) = commands_of(Difference(findings=judged.findings))
    told = [(one["trouble"], one["subject"]) for one in command.findings]
    assert (Trouble.UNSERVED.value, TWO) in told
    kind, given = format_arguments(command)
    assert parse_arguments(kind, given) == command  # as many as the balancer takes


def test_partitions_on_one_of_three_brokers_are_told_after_a_minute_and_mended_by_nobody() -> None:
    parts = {ONE: {"persistent://acme/ns/t": 5}, TWO: {"persistent://acme/ns/t": 3}}
    narrow, wide = seen(a=[ONE, TWO], partitions=parts), seen(a=[ONE], b=[TWO], partitions=parts)
    found = watch([narrow] * 22, acts=True)
    first = next(number for number, one in enumerate(found) if one.findings)
    assert first * STEP_MS == PATIENCE.narrow_ms
    assert troubles(found[first]) == [(Trouble.NARROW, "persistent://acme/ns/t")]
    assert found[-1].findings[0].evidence == f"8 partitions are on 1 of 3 brokers: 8 on {A}"
    assert not any(one.repairs or one.quarantined for one in found)
    assert all(one.look_in_ms is None for one in found)
    assert not any(one.findings for one in watch([wide] * 22))


DAY_MS = 86_400_000
NEAR_ENDS = (
    (31, []),
    (29, [Trouble.EXPIRING]),
    (8, [Trouble.EXPIRING]),
    (6, [Trouble.EXPIRING_SOON]),
)


@pytest.mark.parametrize(("days", "told"), NEAR_ENDS)
def test_certificate_is_told_thirty_and_seven_days_before_its_end(
    days: int, told: list[Trouble]
) -> None:
    ends_ms = 1_000 + days * DAY_MS
    found = watch([seen(a=[ONE], b=[TWO], certificates={A: ends_ms})] * 3, acts=True)
    assert [troubles(one) for one in found] == [[(trouble, A) for trouble in told]] * 3
    assert not any(one.repairs or one.quarantined or one.look_in_ms for one in found)


def test_partitions_are_counted_by_their_topic() -> None:
    topics = [f"persistent://acme/ns/t-partition-{number}" for number in range(3)]
    assert partitions_in([*topics, "persistent://acme/ns/other"]) == {"persistent://acme/ns/t": 3}


def test_what_can_not_be_read_is_found_and_thousands_are_counted() -> None:
    reasons = {f"namespace acme/n{number:04}": "HTTP 403" for number in range(5_000)}
    seen = ProbeRound(
        listed=frozenset(), owned={}, unread=reasons, unreported={"b-1": "cpu is NaN"}
    )
    state, judged = GuardState(), None
    for now_ms in range(0, 15_000, 5_000):
        judged = judge(state, seen, now_ms, PATIENCE, acts=True)
        state = judged.state
    assert judged is not None
    unread = [one for one in judged.findings if one.trouble is Trouble.UNREAD]
    assert len(unread) == 21
    assert [one.evidence for one in unread if one.subject == "others"] == [
        "4980 more, namespace acme/n0020 first"
    ]
    odd = [one for one in judged.findings if one.trouble is Trouble.MISREPORTING]
    assert [(one.subject, one.evidence) for one in odd] == [("b-1", "cpu is NaN")]
    assert judged.repairs == ()


LEFT, RIGHT = ONE, TWO
REPORTS = Path(__file__).parents[1] / "wire" / "pulsar_reports"
QUICK = GuardianTimeouts(confirm_ms=300)
GIVEN_UP_S = 60.0


@pytest.fixture
def fake() -> Iterator[FakePulsar]:
    with fake_pulsar() as running:
        running.own({0: [LEFT], 1: [RIGHT]})
        running.put("/admin/v2/tenants", ["acme"])
        running.put("/admin/v2/namespaces/acme", ["acme/ns"])
        boundaries = {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2}
        running.put("/admin/v2/namespaces/acme/ns/bundles", boundaries)
        report = json.loads((REPORTS / "busy-broker-1.json").read_text())
        some = next(iter(report["lastStats"].values()))
        stats = {name: {**some, "producerCount": 1} for name in (LEFT, RIGHT)}
        running.put("/admin/v2/broker-stats/load-report", {**report, "lastStats": stats})
        for bundle in (LEFT, RIGHT):
            path = f"/lookup/v2/topic/{topic_within(bundle).replace('://', '/')}"
            running.put(path, {"httpUrl": f"http://{running.broker(0)}"})
        yield running


def found(fake: FakePulsar, trouble: Trouble, **more: Any) -> Finding:
    """Look again and again until it is found; what else is found comes from the same fault."""
    admin = PulsarAdmin(AdminAddress(url=fake.url, timeout_s=2.0, **more))
    sent: list[Message] = []
    polling = PollOptions(look_ms=500, load_ms=100, namespaces_ms=500, quiet_ms=0)
    collector = Collector(admin, ("local", CLUSTER), Config(), polling, sent.append)
    watchman = GuardianProbe(collector, QUICK)
    hurt = HURTS[trouble][0]
    end_s, is_hurt = time.monotonic() + GIVEN_UP_S, False
    try:
        while time.monotonic() < end_s:
            judged = watchman.watch(collector.look(), {}, acts=False)
            for finding in judged.findings:
                assert is_hurt
                if finding.trouble is trouble:
                    return finding
            if not is_hurt and collector.used_bundles() == {LEFT, RIGHT}:
                hurt(fake)
                is_hurt = True
            time.sleep(0.05)
    finally:
        watchman.close()
        collector.close()
    raise AssertionError(f"{trouble} was not found; hurt: {is_hurt}")


def own_path(fake: FakePulsar, number: int) -> str:
    broker = fake.broker(number)
    return f"{fake.ports[number]}/admin/v2/brokers/{CLUSTER}/{broker}/ownedNamespaces"


def claim_both(fake: FakePulsar) -> None:
    fake.put(own_path(fake, 1), {LEFT: STATUS, RIGHT: STATUS})


def let_go(fake: FakePulsar) -> None:
    fake.put(own_path(fake, 1), {})


def lose(fake: FakePulsar) -> None:
    fake.put(f"/admin/v2/brokers/{CLUSTER}", [fake.broker(0)])


def circle(fake: FakePulsar) -> None:
    path = f"/lookup/v2/topic/{topic_within(LEFT).replace('://', '/')}"
    for number, other in ((0, 1), (1, 0)):
        target = f"http://{fake.broker(other)}{path}?authoritative=true"
        fake.redirects[f"{fake.ports[number]}{path}"] = target


HURTS = {
    Trouble.DOUBLED: (claim_both, LEFT, "{2} and {3} "),
    Trouble.UNSERVED: (let_go, RIGHT, "the lookup names {0}"),
    Trouble.UNLISTED: (lose, "{1}", "serves 1 bundles"),
    Trouble.CIRCLING: (circle, LEFT, " → {0} → {1}"),
}


@pytest.mark.parametrize("trouble", HURTS)
def test_fault_of_the_cluster_is_found_with_its_evidence(
    fake: FakePulsar, trouble: Trouble
) -> None:
    finding = found(fake, trouble)
    _, subject, evidence = HURTS[trouble]
    brokers = [fake.broker(number) for number in (0, 1)]
    assert finding.subject == subject.format(*brokers)
    assert evidence.format(*brokers, *sorted(brokers)) in finding.evidence


def test_finding_reaches_the_status_as_an_alarm_with_its_section_of_the_runbook() -> None:
    judged = watch([seen(a=[LEFT], b=[LEFT])] * 2)[-1]
    (finding,) = judged.findings
    (command,) = commands_of(Difference(findings=(finding,)))
    read = parse_arguments("observe_ownership", format_arguments(command)[1])
    assert read == command
    status = MirrorStatus(
        heard_ago_ms=1_000,
        differences=0,
        taken_over=0,
        taken_over_lately=0,
        observe_only=True,
        findings=command.findings,
    )
    (alarm,) = mirror_alarms(status)
    assert LEFT in alarm
    assert finding.evidence in alarm
    assert "BallastPulsarDoubled" in alarm


def test_stage_of_a_finding_is_read_and_told() -> None:
    finding = {
        "trouble": "doubled",
        "subject": LEFT,
        "since_ms": 1,
        "evidence": "",
        "stage": "mending",
    }
    arguments = {"namespaces": {}, "owners": {}, "findings": [finding]}
    read = parse_arguments("observe_ownership", arguments)
    assert isinstance(read, ObserveOwnership)
    assert read.findings[0]["stage"] == "mending"
    assert finding_message(finding) == finding_message(read.findings[0])
    assert "has asked Pulsar to mend it" in finding_message(finding)


def test_explanation_of_the_bundle_and_of_its_brokers_begins_with_the_finding() -> None:
    evidence = "a:8080 and b:8080 say that they own it"
    finding = {"trouble": "doubled", "subject": LEFT, "since_ms": 1, "evidence": evidence}
    result = json.dumps({"findings": [{**finding, "stage": "told"}]})
    told = [{"status": "done", "result": result, "at_ms": 5}]
    external = replace(Config(), cluster=replace(Config().cluster, authority="external"))

    def why(kind: str, subject: str) -> tuple[str, ...]:
        plain = Explanation(kind=kind, subject=subject, at_ms=9, headline="", why=("as ever",))
        return with_findings(plain, told, external).why

    for kind, subject in (("bundle", LEFT), ("broker", "b:8080"), ("cluster", "local")):
        first, last = why(kind, subject)
        assert evidence in first
        assert last == "as ever"
    assert why("bundle", RIGHT) == why("broker", "c:8080") == ("as ever",)
