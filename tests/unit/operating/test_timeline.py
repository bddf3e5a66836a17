"""The timeline has what the tables have: each move with its loads, each command, each setting."""

import json
import math
import re
from pathlib import Path

import pytest

from jobs.adapters.delta.table_reader import TableReader
from jobs.operating.history import KINDS, TimelineQuestion, read_timeline
from tests.support.worlds.explained_world import eventful, write_tables
from tests.support.worlds.world import CLUSTER, World


@pytest.fixture(scope="module")
def world() -> World:
    made = eventful()
    made.command("set_config", values={"shedding.is_shedding": False})
    made.run(5_000)
    return made


@pytest.fixture(scope="module")
def reader(world: World, tmp_path_factory: pytest.TempPathFactory) -> TableReader:
    root: Path = tmp_path_factory.mktemp("timeline")
    write_tables(world, root)
    return TableReader(root, CLUSTER)


def test_every_decision_command_and_setting_is_an_event_newest_first(
    world: World, reader: TableReader
) -> None:
    asked = TimelineQuestion(from_ms=0, until_ms=world.now_ms)
    found = read_timeline(reader, asked)
    kinds = {one for of in KINDS.values() for one in of}
    decided = [row for row in world.decisions if row["kind"] in kinds]
    commands = {row["command_id"] for row in world.other_rows["commands"]}
    events = found["events"]
    told = [event["kind"] for event in events]
    assert len(events) + found["left_out"] == len(decided) + len(commands) + 1
    assert {"move", "crash", "command", "setting"} <= set(told)
    times = [event["at_ms"] for event in events]
    assert times == sorted(times, reverse=True)
    setting = next(event for event in events if event["kind"] == "setting")
    assert setting["reason"] == "shedding.is_shedding=False"


def test_move_has_the_loads_of_its_effect_and_is_json(world: World, reader: TableReader) -> None:
    effects = {row["decision_id"]: row for row in world.other_rows["decision_effects"]}
    asked = TimelineQuestion(from_ms=0, until_ms=world.now_ms, kinds=("move",))
    moves = [one for one in read_timeline(reader, asked)["events"] if one["loads"]]
    assert moves
    for move in moves:
        for name, value in move["loads"].items():
            wanted = effects[move["id"]][name]
            assert value == wanted or (value is None and math.isnan(wanted))
    json.dumps(moves, allow_nan=False)


def test_only_what_names_the_asked_and_lies_within_the_window_is_told(
    world: World, reader: TableReader
) -> None:
    asked = TimelineQuestion(from_ms=0, until_ms=world.now_ms, about="BROKER-2")
    found = read_timeline(reader, asked)["events"]
    assert found
    assert all("broker-2" in json.dumps(event) for event in found)
    late = TimelineQuestion(from_ms=world.now_ms - 6_000, until_ms=world.now_ms)
    assert {event["kind"] for event in read_timeline(reader, late)["events"]} >= {"setting"}
    assert all(one["at_ms"] >= late.from_ms for one in read_timeline(reader, late)["events"])


def test_crash_is_told_from_the_suspicion_to_who_got_the_bundles(
    world: World, reader: TableReader
) -> None:
    asked = TimelineQuestion(from_ms=0, until_ms=world.now_ms, kinds=("crash",))
    events = read_timeline(reader, asked)["events"]
    died = next(event for event in events if "found dead at" in event["reason"])
    of_broker = [event["reason"] for event in events if event["source"] == died["source"]]
    assert any(
        re.search(r"suspected: silent for \d+ s, failover at 15 s", one) for one in of_broker
    )
    assert any(re.search(r"found dead at .* after 1\d s of silence", one) for one in of_broker)
    assert any(re.search(r"\d+ bundles? moved to broker-\d.*\(\d+\)", one) for one in of_broker)
