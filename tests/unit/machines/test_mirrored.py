"""How the mirror of another authority stands, by what its bridge has told."""

from dataclasses import replace
from typing import Any

from lbcore.balancer.state.effects import to_json
from lbcore.config.cluster import ClusterConfig
from lbcore.config.tree import Config
from lbcore.explain.mirrored import NEVER_MS, MirrorStatus, mirror_alarms, mirror_status

NOW_MS = 1_000_000_000
EXTERNAL = replace(Config(), cluster=ClusterConfig(authority="external"))


def told(age_ms: int, status: str = "done", **result: int) -> dict[str, Any]:
    return {"status": status, "at_ms": NOW_MS - age_ms, "result": to_json(result)}


def mirror(*rows: dict[str, Any]) -> MirrorStatus:
    found = mirror_status(rows, EXTERNAL, NOW_MS)
    assert found is not None
    return found


def test_mirror_of_a_cluster_of_our_own_is_none() -> None:
    assert mirror_status([], Config(), NOW_MS) is None
    assert list(mirror_alarms(None)) == []


def test_mirror_is_what_was_told_last() -> None:
    found = mirror(
        told(1_000, differences=2, owners=1),
        told(50_000, differences=9, owners=4),
        told(500, "timed_out", differences=7),
    )
    assert (found.heard_ago_ms, found.differences) == (1_000, 2)
    assert (found.taken_over, found.taken_over_lately) == (1, 5)
    assert list(mirror_alarms(found)) == []


def test_bridge_that_tells_nothing_is_an_alarm() -> None:
    assert "start `ballast bridge pulsar`" in "".join(mirror_alarms(mirror()))
    assert "for 181 s" in "".join(mirror_alarms(mirror(told(181_000))))


def test_bridge_is_not_blamed_for_what_a_job_that_is_away_has_not_read() -> None:
    assert list(mirror_alarms(mirror(told(181_000)), 20_000)) == []
    assert list(mirror_alarms(mirror(told(900_000)), 890_000)) == []
    assert list(mirror_alarms(mirror(), NEVER_MS)) == []
    assert list(mirror_alarms(mirror(), 181_000)) == []
    assert "for 190 s" in "".join(mirror_alarms(mirror(told(900_000)), 710_000))


def test_whether_decisions_are_carried_out_is_as_the_job_has_it_now() -> None:
    assert mirror(told(1_000, observe_only=1)).observe_only
    assert not mirror(told(1_000, observe_only=0)).observe_only
    assert not mirror(told(1_000)).observe_only
