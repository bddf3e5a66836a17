"""A stack whose jobs are of different versions, and what its clients see meanwhile."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.adapters.delta.table_log import last_writer_commit, newest_version
from lbcore.model.tables import OWNERSHIP_EVENTS
from tests.integration.meanwhile import repeated
from tests.integration.other_versions import in_folder
from tests.integration.stack import ROOT, Stack

STATE = "state"
"""The state folder that all jobs use, one after another."""

TOPICS = [f"persistent://demo/{name}/topic-{i}" for i in range(20) for name in ("one", "two")]
_LOOK_S = 0.1


@dataclass
class VersionedStack(Stack):
    """The stack, whose jobs may be of different versions but use one state folder."""

    versions: dict[str, Path] = field(default_factory=lambda: {"this": ROOT})
    running: str = "this"

    def beginning(self, module: str) -> Sequence[str]:
        """A job is of the version that was chosen last, everything else of this one."""
        root = self.versions[self.running]
        is_job = module == "tests.integration.killable_job"
        return in_folder(root) if is_job else super().beginning(module)

    def environment(self, role: str) -> dict[str, str]:
        root = self.versions[self.running] if role == "job" else ROOT
        return {**super().environment(role), "PYTHONPATH": str(root)}

    def start_version(self, version: str, name: str, *more: str) -> None:
        """Start a job of a version under a name of its own."""
        self.running = version
        self.start_job(name, "--state-dir", str(self.folder / STATE), *more)

    def stand_by(self, version: str, name: str) -> None:
        """Start a job that waits for the present one to end, and wait until it does."""
        self.start_version(version, name, "--standby")
        self.wait(f"{name} to stand by", lambda: self.lines(name, "standby"))

    def rebuilt_because(self, name: str) -> str:
        """What a job's start said, once it has ended a few batches."""
        self.wait_for_batches(3, name)
        said: str = self.lines(name, "start")[-1]["rebuilt_because"]
        return said

    def died(self, *names: str) -> int:
        """The same of all jobs, without names."""
        return super().died(*(names or [path.stem for path in self.folder.glob("*.jsonl")]))

    def code(self) -> str:
        """What the newest commit says of the code that decided it."""
        events = self.tables / OWNERSHIP_EVENTS.name
        commit = last_writer_commit(events, newest_version(events))
        assert commit is not None
        return commit.code_version


@dataclass
class Seen:
    """What clients saw while something was done: refused lookups, bundles open not just once."""

    lookups: int = 0
    slowest_ms: float = 0
    refused: list[Any] = field(default_factory=list)
    wrong: set[str] = field(default_factory=set)

    def look(self, stack: Stack, topic: str) -> None:
        began_s = time.monotonic()
        status, body = stack.lookup(topic)
        self.slowest_ms = max(self.slowest_ms, (time.monotonic() - began_s) * 1_000)
        self.lookups += 1
        if status != 200:
            self.refused.append((topic, status, body))

    def figures(self) -> dict[str, float]:
        return {"lookups": self.lookups, "slowest_lookup_ms": round(self.slowest_ms)}


@contextmanager
def nobody_notices(stack: VersionedStack) -> Iterator[Seen]:
    """All the while lookups are answered, and every bundle stays open at its owner alone."""
    seen, owners, died = Seen(), stack.owners(), stack.died()
    assert len(owners) == stack.cluster.bundles

    def look() -> None:
        seen.look(stack, TOPICS[seen.lookups % len(TOPICS)])
        served = stack.served()
        seen.wrong |= {name for name, owner in owners.items() if served.get(name) != [owner]}

    with repeated(look, _LOOK_S):
        yield seen
    assert seen.lookups > 0
    assert seen.refused == []
    assert seen.wrong == set()
    assert stack.owners() == owners
    assert stack.died() == died


def tell(what: str, **figures: object) -> None:
    print(json.dumps({"rehearsed": what, **figures}))  # noqa: T201 (a measurement)


def gap_ms(stack: VersionedStack, old: str, new: str) -> int:
    """From the last batch of one job to the first of the next."""
    last, first = stack.lines(old, "batch")[-1], stack.lines(new, "batch")[0]
    return int(first["logged_at_ms"] - last["logged_at_ms"])
