"""The guardian over HTTP: brokers that lie, that are lost, that send lookups in circles."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.bridge.admin_address import AdminAddress
from jobs.bridge.collector import Collector, Rhythm
from jobs.bridge.guardian_probe import GuardianProbe
from jobs.bridge.pulsar_admin import PulsarAdmin
from lbcore.bridge.anomalies import Trouble
from lbcore.bridge.guardian import Finding, GuardianTimeouts
from lbcore.bridge.mirror import Difference, commands_of
from lbcore.bridge.owner_lookup import topic_within
from lbcore.config.tree import Config
from lbcore.explain.explanation import Explanation
from lbcore.explain.mirrored import MirrorStatus, finding_message, mirror_alarms, with_findings
from lbcore.wire.commands import format_arguments, parse_arguments
from lbcore.wire.kinds.mirror_commands import ObserveOwnership
from lbcore.wire.messages import Message
from tests.support.admin.fake_pulsar import CLUSTER, STATUS, FakePulsar, fake_pulsar

LEFT, RIGHT = "acme/ns/0x00000000_0x80000000", "acme/ns/0x80000000_0xffffffff"
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
    rhythm = Rhythm(look_ms=500, load_ms=100, namespaces_ms=500, quiet_ms=0)
    collector = Collector(admin, ("local", CLUSTER), Config(), rhythm, sent.append)
    watchman = GuardianProbe(collector, QUICK)
    hurt = HURTS[trouble]
    end_s, is_hurt = time.monotonic() + GIVEN_UP_S, False
    try:
        while time.monotonic() < end_s:
            judged = watchman.watch(collector.look(), {}, acts=False)
            for finding in judged.findings:
                assert is_hurt
                if finding.trouble is trouble:
                    return finding
            if not is_hurt and collector.asked_for() == {LEFT, RIGHT}:
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
    Trouble.DOUBLED: claim_both,
    Trouble.UNSERVED: let_go,
    Trouble.UNLISTED: lose,
    Trouble.CIRCLING: circle,
}


def test_two_brokers_that_claim_a_bundle_are_found(fake: FakePulsar) -> None:
    finding = found(fake, Trouble.DOUBLED)
    assert finding.subject == LEFT
    assert fake.broker(0) in finding.evidence
    assert fake.broker(1) in finding.evidence


def test_bundle_with_clients_that_nobody_claims_is_found_with_what_lookups_say(
    fake: FakePulsar,
) -> None:
    finding = found(fake, Trouble.UNSERVED)
    assert finding.subject == RIGHT
    assert f"the lookup names {fake.broker(0)}" in finding.evidence


def test_broker_that_is_listed_no_more_and_serves_is_found(fake: FakePulsar) -> None:
    finding = found(fake, Trouble.UNLISTED)
    assert finding.subject == fake.broker(1)
    assert "serves 1 bundles" in finding.evidence


def test_lookups_in_a_circle_are_found_with_their_way(fake: FakePulsar) -> None:
    finding = found(fake, Trouble.CIRCLING)
    assert finding.subject == LEFT
    assert finding.evidence.count("→") >= 2


def test_finding_reaches_the_status_as_an_alarm_with_its_section_of_the_runbook(
    fake: FakePulsar,
) -> None:
    finding = found(fake, Trouble.DOUBLED)
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


@pytest.mark.parametrize("name", ["stage", "standing"])
def test_stage_of_a_finding_is_read_by_its_old_name_too(name: str) -> None:
    finding = {
        "trouble": "doubled",
        "subject": LEFT,
        "since_ms": 1,
        "evidence": "",
        name: "mending",
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
