"""What a rolling restart takes from a cluster's status: complaints, records, plans, settings."""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.kafka.command_client import CommandClient
from jobs.bridge.admin_address import AdminAddress
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.bridge.restarted_cluster import (
    PulsarCluster,
    open_plans,
    read_records,
    status_complaints,
    usage_without,
)
from jobs.operating.connection_options import add_stack_arguments, connection_options
from lbcore.balancer.state.effects import to_json
from lbcore.config.cluster import EXTERNAL, ClusterConfig
from lbcore.config.tree import Config
from lbcore.explain.status import BrokerStatus, ClusterStatus, StatusRows, make_status
from tests.support.admin.fake_pulsar import CLUSTER
from tests.support.admin.fronts import fronted_brokers
from tests.support.worlds.checked_world import running
from tests.support.worlds.explained_world import write_tables
from tests.support.worlds.rolling_cluster import new_progress

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
    write_tables(running(3, 12), tables, time.time_ns() // 1_000_000)
    parser = argparse.ArgumentParser()
    add_stack_arguments(parser)
    where = connection_options(parser.parse_args(["--tables", str(tables)]))
    with fronted_brokers() as front:
        admin = PulsarAdmin(AdminAddress(url=front.addresses[0], timeout_s=2.0))
        client = CommandClient(KafkaAddress(bootstrap="127.0.0.1:1"), tables, "local")
        cluster = PulsarCluster(where, admin, CLUSTER, client, tmp_path / "log")
        draft = replace(new_progress(), order=[front.names[0]], brokers=list(front.names))
        seen = cluster.look(draft)
        assert seen.listed == set(front.names)
        assert seen.incarnation == "1700000000000"
        assert len(seen.owners) == 12
        assert seen.settings == {} or "shedding.strategy" in seen.settings
        assert seen.plans == {}
        assert seen.held is None
        front.fake.answers.clear()
        keys = [one.key for one in cluster.look(draft).complaints]
        assert "pulsar" in keys


def test_certificate_that_ends_one_day_and_narrow_topics_are_no_complaint() -> None:
    findings = [{**FINDING, "trouble": name} for name in ("narrow", "expiring", "expiring_soon")]
    assert keys(status(mirror_commands=[told(findings=findings)])) == []


def test_records_are_owned_moving_or_nobodys_since_it_began() -> None:
    def row(name: str, state: str, at_ms: int) -> dict[str, Any]:
        return {"bundle": name, "state": state, "destination": "b1", "at_ms": at_ms}

    found = read_records(
        [
            row("a", "Owned", 1),
            row("b", "Free", 5),
            row("c", "Free", 50),
            row("d", "Releasing", 60),
        ],
        began_ms=10,
        now_ms=100,
    )
    assert found == {
        "owners": {"a": "b1"},
        "freed": {"c": 50},
        "moving": frozenset({"d"}),
        "oldest_move_ms": 40,
    }


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
