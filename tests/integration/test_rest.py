"""A job at rest, on the real stack: it holds its batch back, and hears what can't wait.

It may rest for a minute, and no timer cuts that short: whatever ends within it was heard.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.stack import Cluster, Stack, running_stack

REST_MS = 60_000
HEARD_MS = 30_000
"""Half of the rest: a batch that was held back for less was not held back to its end."""

CLUSTER = Cluster(
    settings=(
        f"pipeline.rest_ms={REST_MS}",
        *(f"pipeline.{name}_interval_ms={4 * REST_MS}" for name in ("decision", "shed", "split")),
        f"ownership.broker_timeout_ms={4 * REST_MS}",
    )
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack"), CLUSTER) as running:
        yield running


def rested_ms(stack: Stack) -> list[int]:
    """For how long each batch was held back."""
    return [line["rested_ms"] for line in stack.lines("job", "progress")]


def wait_for_rest(stack: Stack) -> None:
    """Wait until a batch is written and nothing follows it."""
    done = -1

    def is_resting() -> bool:
        nonlocal done
        before, done = done, stack.batches_done()
        return before == done and stack.lines("job", "batch")[-1]["rest_ms"] > HEARD_MS

    stack.wait("the job to rest", is_resting)


def test_what_cannot_wait_ends_a_rest(stack: Stack) -> None:
    wait_for_rest(stack)
    bundle, owner = min(stack.owners().items())
    stack.command("away", "unload_bundle", {"bundle": bundle})
    stack.wait("the command", lambda: stack.outcome("away") == "done")
    stack.wait("a new owner", lambda: stack.owners().get(bundle, owner) != owner)
    stack.wait("the rest's line", lambda: any(rested_ms(stack)))
    assert max(rested_ms(stack)) < HEARD_MS
    wait_for_rest(stack)
    stack.fleet(f"/kill/{owner}", "POST")
    stack.fleet(f"/start/{owner}", "POST")
    count = len(stack.lines("job", "progress"))
    stack.wait("its start to be heard", lambda: len(stack.lines("job", "progress")) > count)
    stack.wait_settled()
    assert max(rested_ms(stack)) < HEARD_MS


def run_folders(stack: Stack) -> list[Path]:
    """Where jobs kept what they can lose."""
    found = (stack.folder / "job" / "spark").glob("run-*")
    return sorted(path for path in found if path.is_dir())


def unpacked(pid: int) -> set[Path]:
    """The libraries that Java has unpacked for a process and those that it started."""
    found: set[Path] = set()
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            found |= {Path(one.path) for one in process.memory_maps() if "rocksdbjni" in one.path}
    return found


def test_job_that_is_killed_at_rest_repeats_its_batch_to_the_same_effects(stack: Stack) -> None:
    wait_for_rest(stack)
    (left,) = run_folders(stack)
    libraries = unpacked(stack.children["job"].pid)
    stack.kill("job")
    stack.start_job()
    stack.wait_for_batches(1)
    assert not left.exists()
    assert libraries
    assert not [path for path in libraries if path.exists()]
    assert stack.outcome("away") == "done"
    stack.command("again", "pause", {})
    stack.wait("the command", lambda: stack.outcome("again") == "done")


def test_job_that_is_told_to_end_at_rest_ends_in_order(stack: Stack) -> None:
    wait_for_rest(stack)
    assert stack.stop("job") == 0
    left, last = stack.lines("job", "stop")[-1], stack.lines("job", "batch")[-1]
    assert left["unfinished_batch"] in (None, last["batch_id"] + 1)  # Spark may begin one more
    assert run_folders(stack) == []
