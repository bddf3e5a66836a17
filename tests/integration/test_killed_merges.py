"""Splits and merges on the real stack while the job and the owner are killed in the middle of them.

At every moment the live bundles of the table cover the hash space, and no bundle is open twice.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from lbcore.model.tables import BUNDLE_OWNERSHIP, COMMANDS, OWNERSHIP_EVENTS
from lbcore.ownership.invariants import of_bundles
from tests.integration.meanwhile import repeated
from tests.integration.replay import assert_replayed
from tests.integration.stack import Cluster, Stack, running_stack

pytestmark = pytest.mark.long
NAMESPACE, BUNDLES = "demo/one", 8
CLUSTER = Cluster(
    brokers=4,
    settings=(
        "ownership.broker_timeout_ms=6000",
        "shedding.is_shedding=false",
        "splitting.enabled=false",
    ),
    namespaces={NAMESPACE: ("crc32", BUNDLES)},
    fleet=("--callback-ms", "1500-2500"),
)
WIDTH = (1 << 32) // BUNDLES
POINTS = [("events_committed",), ("effects_computed", "events_committed", "tables_committed")]
_LOOK_S = 0.3


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("merges"), CLUSTER) as running:
        yield running


def lower_half(number: int) -> str:
    low = number * WIDTH
    return f"{NAMESPACE}/0x{low:08x}_0x{low + WIDTH // 2:08x}"


def whole(number: int) -> str:
    low = number * WIDTH
    return f"{NAMESPACE}/0x{low:08x}_0x{low + WIDTH:08x}"


def live(stack: Stack) -> dict[str, dict[str, Any]]:
    rows = stack.rows(BUNDLE_OWNERSHIP.name)
    return {row["bundle"]: row for row in rows if row["state"] != "Deleted"}


def is_at_rest(stack: Stack) -> bool:
    """Whether every live bundle is open at its owner, and nothing else is open."""
    rows = live(stack)
    owners = {name: [row["destination"]] for name, row in rows.items()}
    return all(row["state"] == "Owned" for row in rows.values()) and stack.served() == owners


def split(stack: Stack, command_id: str, number: int) -> None:
    arguments = {"bundle": whole(number), "algorithm": "range_equally_divide", "force": True}
    stack.command(command_id, "split_bundle", arguments)


def begin_merge(stack: Stack, command_id: str, number: int) -> None:
    """Ask for a merge, and wait until both halves are in the middle of it."""
    stack.command(command_id, "merge_bundle", {"bundle": lower_half(number)})
    stack.wait("a merge to begin", lambda: live(stack)[lower_half(number)]["state"] == "Merging")


def end(stack: Stack, command_id: str) -> str:
    ends = ("done", "failed", "refused", "timed_out")
    stack.wait(f"{command_id} to end", lambda: stack.outcome(command_id) in ends)
    return stack.outcome(command_id)


@pytest.mark.parametrize("points", POINTS)
def test_killed_job_and_killed_owner_leave_no_hash_without_one_owner(
    stack: Stack, points: tuple[str, ...]
) -> None:
    doubled: set[str] = set()
    torn: list[str] = []
    last = len(points)
    splits = [f"split-{last}-{number}" for number in range(last + 1)]
    merges = [f"merge-{last}-{number}" for number in range(last + 1)]

    def look() -> None:
        doubled.update(name for name, by in stack.served().items() if len(by) > 1)
        torn.extend(found.sentence for found in of_bundles(NAMESPACE, live(stack)))

    with repeated(look, _LOOK_S):
        for number, command_id in enumerate(splits):
            split(stack, command_id, number)
        ended = {command_id: end(stack, command_id) for command_id in splits}
        assert set(ended.values()) == {"done"}, stack.rows(COMMANDS.name)[-len(splits) :]
        assert len(live(stack)) == BUNDLES + len(splits)
        for number, point in enumerate(points):
            begin_merge(stack, merges[number], number)
            stack.arm(point)
            stack.wait_end("job")
            stack.start_job()
            assert end(stack, merges[number]) == "done"
        owner = stack.owners()[lower_half(last)]
        begin_merge(stack, merges[last], last)
        stack.fleet(f"/kill/{owner}", "POST")
        end(stack, merges[last])
        stack.wait("every bundle to be at rest", lambda: is_at_rest(stack))
        if lower_half(last) in live(stack):
            stack.command(f"again-{last}", "merge_bundle", {"bundle": lower_half(last)})
            assert end(stack, f"again-{last}") == "done"
        stack.wait("every bundle to be at rest", lambda: is_at_rest(stack))
    assert (doubled, torn) == (set(), [])
    assert len(live(stack)) == BUNDLES
    assert owner not in stack.owners().values()


def test_tables_equal_a_replay(stack: Stack) -> None:
    assert stack.stop("job") == 0
    assert_replayed(stack, OWNERSHIP_EVENTS.name)
