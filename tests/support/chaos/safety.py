"""Safety of a simulated run, looked at in every batch and at every opening of a bundle.

Decides what must never be, whatever fails: records that break an invariant (two owners, a gap, a
version that went back), a transition that skips a version, and two brokers that serve the same
topics although nobody took them away by force under a newer token. The invariants are
`lbcore.ownership.invariants`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lbcore.balancer.rebuild import record_from_row
from lbcore.balancer.state.effects import TOMBSTONE, Effect
from lbcore.model.names import parse_bundle
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.sim.engine.engine import Engine
from tests.support.values.invariants import violations

MOST_KEPT = 20


@dataclass(slots=True)
class SafetyWatch:
    """Looks at an engine's run; faults: a sentence each, with its time, at most MOST_KEPT."""

    engine: Engine
    faults: list[str] = field(default_factory=list)
    _before: dict[str, OwnershipRecord] = field(default_factory=dict)
    _forced: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)

    def begin(self) -> None:
        """Look from now on."""
        self._before = dict(self.engine.job.committed.records)
        self.engine.when_committed = self.look
        self.engine.coverage.when_double = self.look_at_double

    def look(self, effects: Sequence[Effect]) -> None:
        """Hold the records of a committed batch against those before it."""
        changed = [effect for effect in effects if effect.kind in ("ownership_events", TOMBSTONE)]
        if not changed:
            return
        after = self.engine.job.committed.records
        gone = {str(r["bundle"]) for e in changed if e.kind == TOMBSTONE for r in e.rows}
        before = {name: record for name, record in self._before.items() if name not in gone}
        for found in violations(after, before):
            self._note(f"{found.invariant.value}: {found.where}: {found.sentence}")
        for effect in changed:
            if effect.kind != TOMBSTONE:
                self._look_at_events(effect.rows)
        self._before = dict(after)

    def look_at_double(self, bundle: str, broker: int, others: Iterable[int]) -> None:
        """A broker opens what others serve: only by force, and under another token."""
        nodes = list(self.engine.nodes.values())
        token = nodes[broker].served().get(bundle, 0)
        for number in sorted(others):
            for name, other in sorted(nodes[number].served().items()):
                if _overlap(name, bundle) and not self._was_taken(bundle, name, token, other):
                    self._note(
                        f"two serve: {nodes[broker].name} opened {bundle} under {token} while "
                        f"{nodes[number].name} serves {name} under {other}, and no record by "
                        "force came between"
                    )

    def _look_at_events(self, rows: Iterable[Mapping[str, Any]]) -> None:
        known = dict(self._before)
        for record in map(record_from_row, rows):
            before = known.get(record.bundle)
            if before is not None and not _follows(before, record):
                versions = f"{before.version_id} to {record.version_id}"
                self._note(f"{record.bundle} went from version {versions}")
            known[record.bundle] = record
            if record.is_forced:
                namespace, lower, upper = parse_bundle(record.bundle)
                forced = (lower, upper, record.version_id)
                self._forced.setdefault(namespace, []).append(forced)

    def _was_taken(self, bundle: str, other: str, token: int, other_token: int) -> bool:
        """Whether a record by force lies between the two tokens; children count on from theirs."""
        namespace, lower, upper = parse_bundle(bundle)
        older, newer = sorted((token, other_token))
        is_same = bundle == other
        return not (is_same and older == newer) and any(
            low < upper and lower < high and older < version and (version <= newer or not is_same)
            for low, high, version in self._forced.get(namespace, ())
        )

    def _note(self, sentence: str) -> None:
        if len(self.faults) < MOST_KEPT:
            self.faults.append(f"{self.engine.clock.scenario_ms / 1_000:.1f}s: {sentence}")


def _follows(before: OwnershipRecord, after: OwnershipRecord) -> bool:
    """The next version; a new life of a deleted bundle begins anywhere above its last."""
    is_new_life = before.state is State.DELETED and after.state is not State.DELETED
    expected = before.version_id + 1
    return after.version_id == expected or (is_new_life and after.version_id > expected)


def _overlap(one: str, other: str) -> bool:
    name, low, high = parse_bundle(one)
    other_name, other_low, other_high = parse_bundle(other)
    return name == other_name and low < other_high and other_low < high
