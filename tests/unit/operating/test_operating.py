"""Many runs side by side, the status watch and the timeline."""

import json
import math
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from jobs.adapters.delta.table_reader import TableReader
from jobs.cli import main
from jobs.console import CommandError
from jobs.operating.plans import undo_moves
from jobs.operating.simulations import ManyRuns, progress_message
from jobs.operating.status import read_status_rows
from jobs.service.v1.showing import KINDS, read_timeline
from tests.support import Capsys, Patch
from tests.support.worlds.checked_world import owners, running
from tests.support.worlds.explained_world import eventful, write_tables
from tests.support.worlds.world import CLUSTER, World

HERE = os.getpid()


def doubled(item: int) -> int:
    time.sleep(0.02 * (5 - item))
    return 2 * item


def interrupting(item: int) -> int:
    """The third gets Ctrl-C, as everybody in front of the terminal does, and is given up."""
    if item == 2:
        os.kill(HERE, signal.SIGINT)
        time.sleep(600)
    return item


def long_interrupted(item: int) -> int:
    """The first gets Ctrl-C; most have not begun by then."""
    if item == 0:
        os.kill(HERE, signal.SIGINT)
    time.sleep(600)
    return item


def endless(item: int) -> int:
    time.sleep(600)
    return item


class InterruptedItems(list[int]):
    """Ctrl-C comes while the items are handed to the processes."""

    def __iter__(self) -> Iterator[int]:
        for at, item in enumerate(super().__iter__()):
            if at == 3:
                os.kill(HERE, signal.SIGINT)
            yield item


def killed(_item: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_their_items(workers: int) -> None:
    assert list(ManyRuns(doubled, workers).results(range(5))) == [0, 2, 4, 6, 8]
    assert list(ManyRuns(doubled, workers).results([])) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_keeps_what_is_done_and_gives_up_the_rest(workers: int, capsys: Capsys) -> None:
    runs: ManyRuns[int] = ManyRuns(interrupting, workers)
    before = signal.getsignal(signal.SIGINT)
    found = list(runs.results([0, 1, 2, 3, 4, 5]))
    assert runs.is_cut
    if workers == 1:
        assert found == [0, 1]
    # of several, others may be done by then or not: what is done is kept, in order
    assert set(found) <= {0, 1, 3, 4, 5}
    assert found == sorted(found)
    assert "stopped" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_many_have_not_begun_leaves_no_trace_in_a_thread(monkeypatch: Patch) -> None:
    failed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr("threading.excepthook", failed.append)
    assert list(ManyRuns(long_interrupted, 2).results(range(2_000))) == []
    assert failed == []


def test_ctrl_c_while_work_is_handed_out_waits_for_none_of_it() -> None:
    runs: ManyRuns[int] = ManyRuns(endless, 2)
    assert list(runs.results(InterruptedItems(range(10)))) == []
    assert runs.is_cut


def test_process_that_is_killed_is_told() -> None:
    with pytest.raises(CommandError, match="ended from outside"):
        list(ManyRuns(killed, 2).results([0, 1]))


@pytest.mark.parametrize(
    ("done", "passed_s", "words"),
    [
        (0, 5.0, "0 of 2 runs, 0%"),
        (1, 30.0, "1 of 2 runs, 75%, about 10 s left"),
        (2, 30.0, "2 of 2 runs, 100%, about 0 ms left"),
    ],
)
def test_what_is_left_is_in_proportion_to_what_is_done(
    done: int, passed_s: float, words: str
) -> None:
    futures = [Future[int](), Future[int]()]
    for future in futures[:done]:
        future.set_result(1)
    assert progress_message(futures, [30.0, 10.0], "runs", passed_s) == words


ROOT = Path(__file__).resolve().parents[3]
_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("watch") / "tables"
    write_tables(running(3, 12), root, time.time_ns() // 1_000_000)
    return root


def test_watch_without_a_terminal_says_what_else_there_is(tables: Path, capsys: Capsys) -> None:
    assert main(["status", "--watch", "--tables", str(tables)]) == 2
    assert "`ballast status` writes one look" in capsys.readouterr().err


def test_watch_draws_again_and_leaves_the_screen_at_ctrl_c(tables: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "110", "LINES": "40"}
    environment["BALLAST_STATE_DIR"] = str(tables.parent / "no-run")
    command = [sys.executable, "-m", "jobs.cli", "status", "--tables", str(tables)]
    process = subprocess.Popen(
        [*command, "--watch", "--every", "200ms"],
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.set_blocking(ours, False)
    text, deadline_s = "", time.monotonic() + _PATIENCE_S

    def read() -> str:
        try:
            return os.read(ours, 1 << 16).decode("utf-8", "replace")
        except (BlockingIOError, OSError):
            time.sleep(0.02)
            return ""

    while len(re.findall("Ctrl-C ends it", text)) < 2:
        assert time.monotonic() < deadline_s, text[-2_000:]
        assert process.poll() is None, text[-2_000:]
        text += read()
    assert "bundles 12 Owned" in text
    process.send_signal(signal.SIGINT)
    while process.poll() is None:
        assert time.monotonic() < deadline_s, text[-2_000:]
        text += read()
    text += read()
    assert process.returncode == 130
    assert text.rindex("\x1b[?1049l") > text.rindex("\x1b[?1049h")
    os.close(ours)
    os.close(theirs)


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
    found = read_timeline(reader, from_ms=0, until_ms=world.now_ms)
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


def test_status_reads_the_settings_that_commands_have_changed(
    world: World, reader: TableReader
) -> None:
    found = read_status_rows(reader, world.now_ms)
    assert found.settings == {"shedding.is_shedding": False}


def test_move_has_the_loads_of_its_effect_and_is_json(world: World, reader: TableReader) -> None:
    effects = {row["decision_id"]: row for row in world.other_rows["decision_effects"]}
    found = read_timeline(reader, from_ms=0, until_ms=world.now_ms, kinds=("move",))
    moves = [one for one in found["events"] if one["loads"]]
    assert moves
    for move in moves:
        for name, value in move["loads"].items():
            wanted = effects[move["id"]][name]
            assert value == wanted or (value is None and math.isnan(wanted))
    json.dumps(moves, allow_nan=False)


def test_only_what_names_the_asked_and_lies_within_the_window_is_told(
    world: World, reader: TableReader
) -> None:
    asked = read_timeline(reader, from_ms=0, until_ms=world.now_ms, about="BROKER-2")
    found = asked["events"]
    assert found
    assert all("broker-2" in json.dumps(event) for event in found)
    late_ms = world.now_ms - 6_000
    late = read_timeline(reader, from_ms=late_ms, until_ms=world.now_ms)["events"]
    assert {event["kind"] for event in late} >= {"setting"}
    assert all(one["at_ms"] >= late_ms for one in late)


def test_crash_is_told_from_the_suspicion_to_who_got_the_bundles(
    world: World, reader: TableReader
) -> None:
    found = read_timeline(reader, from_ms=0, until_ms=world.now_ms, kinds=("crash",))
    events = found["events"]
    died = next(event for event in events if "found dead at" in event["reason"])
    of_broker = [event["reason"] for event in events if event["source"] == died["source"]]
    assert any(
        re.search(r"suspected: silent for \d+ s, failover at 15 s", one) for one in of_broker
    )
    assert any(re.search(r"found dead at .* after 1\d s of silence", one) for one in of_broker)
    assert any(re.search(r"\d+ bundles? moved to broker-\d.*\(\d+\)", one) for one in of_broker)


def test_undo_of_balancing_leaves_what_operators_have_moved(tmp_path: Path) -> None:
    world = running(3, 12)
    bundle, owner = min(owners(world).items())
    other = next(name for name in sorted(set(owners(world).values())) if name != owner)
    world.command("unload_bundle", bundle=bundle, destination=other)
    world.run(5_000)
    assert owners(world)[bundle] == other
    write_tables(world, tmp_path)
    with pytest.raises(CommandError, match="there is nothing to undo"):
        undo_moves(TableReader(tmp_path, CLUSTER), since_ms=0)
