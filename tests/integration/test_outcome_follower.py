"""The follower of `commands` on real Delta tables: every waiter is told, whatever came first."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.adapters.delta.table_scan import read_file
from jobs.adapters.delta.table_tail import commits_from
from jobs.adapters.delta.tables import table_path
from jobs.adapters.following.outcome_follower import OutcomeFollower
from jobs.adapters.kafka.command_client import NEVER, writer_silent_ms
from lbcore.balancer.tasks.waiting import identity_of
from lbcore.model.tables import COMMANDS
from tests.support.tables.commands_table import CLUSTER, CommandsTable

_WAIT_S = 60.0


@pytest.fixture
def table(tmp_path: Path) -> CommandsTable:
    return CommandsTable(tmp_path)


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[OutcomeFollower]:
    made = OutcomeFollower(tmp_path, CLUSTER, poll_ms=10)
    yield made
    made.close()


def test_outcome_that_comes_later_is_told_first_accepted_then_done(
    table: CommandsTable, follower: OutcomeFollower
) -> None:
    watch = follower.watch("a")
    table.add("b", "done")
    table.add("a", "accepted", 5)
    first = watch.first.result(_WAIT_S)
    assert (first.status, first.is_final, watch.final.done()) == ("accepted", False, False)
    table.add("a", "done", 9, result={"children": ["x"]})
    final = watch.final.result(_WAIT_S)
    assert (final.status, final.at_ms, final.result) == ("done", 9, {"children": ["x"]})
    assert watch.first.result().status == "accepted"


def test_file_that_a_merge_has_written_can_be_read_alone(table: CommandsTable) -> None:
    table.add("a", "accepted")
    table.add("a", "done", cluster="other")
    folder = table_path(table.root, COMMANDS.name)
    files = [name for commit in commits_from(folder, 1) for name in commit.added]
    assert [len(read_file(folder / name, ("status",), CLUSTER)) for name in files] == [1, 0]


def test_outcome_that_was_there_before_is_told_at_once(
    table: CommandsTable, follower: OutcomeFollower
) -> None:
    table.add("a", "accepted", 1)
    table.add("a", "refused", 2, reason="it's gone")
    table.add("a", "done", 3, cluster="other")
    final = follower.watch("a").final.result(_WAIT_S)
    assert (final.status, final.reason) == ("refused", "it's gone")


def test_outcome_of_an_id_with_a_quote_is_told(
    table: CommandsTable, follower: OutcomeFollower
) -> None:
    table.add("it's", "done")
    assert follower.watch("it's").final.result(_WAIT_S).status == "done"


def test_outcomes_of_many_waiters_come_from_one_follower(
    table: CommandsTable, follower: OutcomeFollower
) -> None:
    watches = [follower.watch(f"c{number % 20}") for number in range(60)]
    for number in range(20):
        table.add(f"c{number}", "done", number)
    assert not wait([watch.final for watch in watches], _WAIT_S).not_done
    assert [watch.final.result().command_id for watch in watches] == [
        f"c{number % 20}" for number in range(60)
    ]
    assert sum(thread.name == "ballast-outcomes" for thread in threading.enumerate()) == 1


def test_outcome_after_the_table_was_compacted_is_told(
    table: CommandsTable, follower: OutcomeFollower
) -> None:
    watch = follower.watch("a")
    table.add("b", "done")
    table.add("a", "accepted")
    watch.first.result(_WAIT_S)
    DeltaTable(str(table.root / "commands")).optimize.compact()
    table.add("a", "done", 2)
    assert watch.final.result(_WAIT_S).status == "done"


def test_outcome_is_told_though_the_tables_are_made_later(tmp_path: Path) -> None:
    follower = OutcomeFollower(tmp_path / "late", CLUSTER, poll_ms=10)
    watch = follower.watch("a")
    CommandsTable(tmp_path / "late").add("a", "done")
    assert watch.final.result(_WAIT_S).status == "done"
    follower.close()


def test_watch_that_is_forgotten_is_cancelled_and_others_go_on(
    table: CommandsTable, follower: OutcomeFollower
) -> None:
    gone, stays = follower.watch("a"), follower.watch("a")
    follower.forget(gone)
    table.add("a", "done")
    assert stays.final.result(_WAIT_S).status == "done"
    assert gone.final.cancelled()
    follower.forget(stays)
    assert follower.watch("a").final.result(_WAIT_S).status == "done", "after a rest"


def test_writer_silence_is_the_time_since_its_last_commit(
    table: CommandsTable, tmp_path: Path
) -> None:
    now_ms, hour_ms = time.time_ns() // 1_000_000, 3_600_000
    for nowhere in (tmp_path / "nowhere", table.root):
        assert writer_silent_ms(nowhere, [now_ms], known_version=-1, known_age_ms=0) == NEVER
    table.beat(silent_ms=hour_ms)
    assert (
        0
        <= hour_ms - writer_silent_ms(table.root, [now_ms], known_version=-1, known_age_ms=0)
        < 60_000
    )


def test_outcome_that_cannot_be_read_keeps_no_other_from_being_told(
    table: CommandsTable, follower: OutcomeFollower
) -> None:
    table.add("b", "done", 1, raw_result="{no JSON")
    bad, watch = follower.watch("b"), follower.watch("a")
    table.add("c", "done", 1, raw_result="[")
    worse = follower.watch("c")
    table.add("a", "done", 2)
    assert watch.final.result(_WAIT_S).status == "done"
    assert not bad.final.done()
    assert not worse.final.done()


def test_who_comes_with_another_command_under_a_used_id_is_told_that_and_nothing_more(
    table: CommandsTable, follower: OutcomeFollower
) -> None:
    words = {"kind": "pause", "arguments": '{"reason":"x"}', "principal": "ada"}
    same = identity_of("pause", {"reason": "x"}, "ada")
    others = [
        identity_of("resume", {"reason": "x"}, "ada"),
        identity_of("pause", {"reason": "y"}, "ada"),
        identity_of("pause", {"reason": "x"}, "eve"),
    ]
    early = [follower.watch("a", asked) for asked in (same, *others)]
    table.add("a", "done", result={"secret": 1}, **words)
    late = [follower.watch("a", asked) for asked in (same, *others)]
    for first, *rest in (early, late):
        assert first.final.result(_WAIT_S).result == {"secret": 1}
        for watch in rest:
            told = watch.final.result(_WAIT_S)
            assert (told.status, told.result, told.kind) == ("refused", {}, "")
            assert "was used before" in told.reason
