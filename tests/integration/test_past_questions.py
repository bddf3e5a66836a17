"""Questions about the past: answered as it was, or said to be unknown, and never by newer rows.

A cluster in virtual time writes real tables, batch by batch; what stood at each moment is known
from all that its job ever said. Then the logs are cut, as upkeep does after half an hour.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.delta.table_upkeep import DAY_MS, HistoryUpkeep
from jobs.adapters.delta.tables import open_table
from jobs.adapters.spark.batch_sink import ORDER
from jobs.cli import main
from jobs.operating.explaining import KINDS, ExplainQuestion, explain, read_rows
from jobs.operating.text_format import format_instant
from lbcore.explain.explanation import ExplainRows
from lbcore.model.tables import BROKERS, PINS, POLICIES, TABLES, Table
from tests.support.tables.crashed_batches import ASIDE_SUFFIX, SENT, Place, squashed
from tests.support.worlds.command_cases import BROKERS as NAMES
from tests.support.worlds.command_cases import BUNDLES, CASES, NS, RecordedWorld, prepared
from tests.support.worlds.world import CLUSTER

HOUR_MS = 3_600_000


class Past:
    """The tables, the moments of their batches, and what was ever written."""

    def __init__(self, world: RecordedWorld, begun: int, place: Place) -> None:
        self.world, self.place = world, place
        self.moments = [batch.now_ms for batch in world.batches[begun - 1 :]]
        self.reader = TableReader(place.root, CLUSTER)

    def truth(self, table: Table, at_ms: int) -> Mapping[tuple[str, ...], Mapping[str, Any]]:
        """The newest row of each key at a moment."""
        rows = [row for row in self.world.other_rows[table.name] if int(str(row["at_ms"])) <= at_ms]
        return {tuple(str(row[key]) for key in table.key): row for row in rows}

    def cut_logs(self) -> None:
        """Leave of each log what half an hour without a commit leaves: the newest checkpoint."""
        for table in TABLES:
            handle = open_table(self.place.root, table.name)
            handle.create_checkpoint()
            old_s = time.time() - 2 * 3_600
            for file in (self.place.root / table.name / "_delta_log").iterdir():
                os.utime(file, (old_s, old_s))
            handle.cleanup_metadata()

    def asked(self, at_ms: int, kind: str = "cluster", name: str = "") -> ExplainRows:
        question = ExplainQuestion(kind=kind, name=name, now_ms=self.world.now_ms, at_ms=at_ms)
        return read_rows(self.reader, self.world.config, question)


@pytest.fixture
def past(tmp_path: Path) -> Past:
    world = prepared(CASES["pause"])
    place, begun = Place(tmp_path / "tables"), len(world.batches)
    place.write(squashed([batch.effects for batch in world.batches]), 0)
    changes: Sequence[tuple[str, dict[str, Any]]] = (
        ("pause", {"namespace": NS, "reason": "first"}),
        ("pin_bundle", {"bundle": BUNDLES[0], "broker": NAMES[1], "reason": "first"}),
        ("drain_broker", {"broker": NAMES[3], "max_in_flight": 1}),
        ("pause", {"namespace": NS, "reason": "second"}),
        ("unpin_bundle", {"bundle": BUNDLES[0]}),
        ("exclude_namespace", {"namespace": NS}),
    )
    for kind, arguments in changes:
        world.command(kind, **arguments)
        world.run(2_000)
    for number, batch in enumerate(world.batches[begun:], start=1):
        place.write(batch.effects, number, steps=[*ORDER, ASIDE_SUFFIX, SENT])
    return Past(world, begun, place)


def check(past: Past) -> int:
    """Each moment's rows against the truth; how many keys are said to be unknown."""
    unknown = 0
    for at_ms in past.moments:
        rows = past.asked(at_ms)
        found = {BROKERS: rows.brokers, POLICIES: rows.policies, PINS: rows.pins}
        gaps = {gap.table: gap for gap in rows.gaps if gap.names}
        for table, kept in found.items():
            truth = past.truth(table, at_ms)
            there = {tuple(row[key] for key in table.key): row for row in kept}
            for key, row in there.items():
                assert {name: row[name] for name in truth[key]} == truth[key]
            missing = {" ".join(filter(None, key)) for key in truth.keys() - there.keys()}
            assert missing <= set(gaps[table.name].names if table.name in gaps else ())
            unknown += len(missing)
    return unknown


def test_rules_are_those_of_then_while_the_log_reaches_back(past: Past) -> None:
    assert check(past) == 0


def test_rules_are_those_of_then_or_said_to_be_unknown_when_the_log_is_cut(past: Past) -> None:
    past.cut_logs()
    assert check(past) > 0
    assert check(past) == check(past)


def test_no_row_of_any_table_is_newer_than_the_question(past: Past) -> None:
    past.cut_logs()
    decided = str(past.world.decisions[-1]["decision_id"])
    names = {"bundle": BUNDLES[0], "broker": NAMES[3], "decision": decided, "cluster": ""}
    assert names.keys() == set(KINDS)
    lists = ("records", "events", "decisions", "candidates", "effects", "brokers", "policies")
    for kind, name in names.items():
        for at_ms in (past.moments[0], past.moments[4], past.moments[-1]):
            rows = past.asked(at_ms, kind, name)
            for field in (*lists, "pins", "load"):
                assert all(row["at_ms"] <= at_ms for row in getattr(rows, field)), (kind, field)


def test_explanation_says_what_it_does_not_know_and_how_far_it_reaches(
    past: Past, capsys: pytest.CaptureFixture[str]
) -> None:
    past.cut_logs()
    at_ms = past.moments[4]
    where = ["--tables", str(past.place.root), "--cluster", CLUSTER]
    at = ["--at", format_instant(at_ms), "--json"]
    assert main(["explain", "cluster", *at, *where]) == 0
    said = json.loads(capsys.readouterr().out)["unknown"]
    (about,) = [one for one in said if one.startswith("what policies had of ")]
    assert f"paused {NS}" in about
    assert "what was before is kept from" in about
    assert main(["explain", "broker", NAMES[3], *at, *where]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["headline"].startswith(f"How broker {NAMES[3]} was at ")
    assert found["headline"].endswith(" is not known.")
    assert main(["explain", "broker", "never:8080", *at, *where]) == 1
    capsys.readouterr()


def test_question_from_before_the_first_event_is_answered_with_that(
    past: Past, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--tables", str(past.place.root), "--cluster", CLUSTER]
    before = format_instant(past.moments[0] - HOUR_MS)
    question = ExplainQuestion(
        kind="bundle", name=BUNDLES[0], now_ms=past.world.now_ms, at_ms=past.moments[0] - HOUR_MS
    )
    found = explain(past.reader, past.world.config, question)
    assert found is not None
    assert any("ownership_events reaches back to" in one for one in found.unknown)
    assert main(["ownership", "--as-of", before, *where]) == 0
    assert "nothing is known of" in capsys.readouterr().out
    assert main(["ownership", "--diff", before, "0s", *where]) == 0
    assert "nothing is known of" in capsys.readouterr().out


def test_version_whose_log_was_cut_is_refused_with_how_far_it_reaches(
    past: Past, capsys: pytest.CaptureFixture[str]
) -> None:
    past.cut_logs()
    where = ["--tables", str(past.place.root), "--cluster", CLUSTER]
    assert main(["ownership", "--as-of", "2", *where]) == 1
    said = capsys.readouterr().err
    assert "version 2 of ownership_events can't be read any more" in said
    assert f"back to version {past.reader.newest().version}" in said
    as_of = past.reader.at_time(past.moments[3])
    assert as_of.version == -1
    assert len(as_of.rows) == 16
    assert main(["ownership", "--as-of", format_instant(past.moments[3]), *where]) == 0
    assert "version" not in capsys.readouterr().out.splitlines()[0]


def test_events_that_were_dropped_leave_a_past_that_is_said_to_be_unknown(past: Past) -> None:
    """What stays is the newest event of each bundle: enough from then on, and misleading before."""
    events, now_ms = open_table(past.place.root, "ownership_events"), past.world.now_ms
    opened_ms = max(int(str(row["at_ms"])) for row in past.world.newest())
    assert past.reader.at_time(opened_ms - 1).is_known
    assert HistoryUpkeep(kind="drop", days=1)(events, "ownership_events", now_ms + 3 * DAY_MS) > 0
    assert not past.reader.at_time(opened_ms - 1).is_known
    assert past.reader.at_time(now_ms).is_known
    assert len(past.reader.at_time(now_ms).rows) == 16
