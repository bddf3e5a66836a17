"""The last decisions as they are shown: what is made by the hundred doesn't fill the list."""

from dataclasses import replace

from lbcore.explain.overview import last_decisions
from tests.support.worlds.checked_world import running, skewed
from tests.support.worlds.explained_world import rows_of


def test_of_a_drain_one_decision_is_shown_which_stands_for_all() -> None:
    world = running(3, 12)
    skewed(world)
    world.run(60_000)
    rows = rows_of(world)
    pattern = dict(rows.decisions[-1])
    drain = {**pattern, "kind": "drain", "reason": "Draining", "source": "broker-1:8080"}
    at_ms = int(pattern["at_ms"])
    many = [
        {**drain, "decision_id": f"d-{number}", "at_ms": at_ms + number, "bundle": f"t/n/{number}"}
        for number in range(60)
    ]
    other = {**many[-1], "decision_id": "d-99", "source": "broker-2:8080"}
    found = last_decisions(replace(rows, decisions=(*rows.decisions, *many, other)))
    drains = [(one.source, one.bundle, one.more) for one in found if one.kind == "drain"]
    assert ("broker-1:8080", "t/n/59", 59) in drains
    assert ("broker-2:8080", "t/n/59", 0) in drains
    before = [one for one in last_decisions(rows) if one.kind not in {"skip", "drain"}]
    assert {one.decision_id for one in before[:15]} <= {one.decision_id for one in found}
