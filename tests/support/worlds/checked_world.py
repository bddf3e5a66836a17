"""A world that checks itself: each batch for invariants, each moment for doubles.

One batch in some is computed a second time, from the unpacked state and from shuffled input, which
must make no difference to its effects, its state or anything given to it.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from lbcore.balancer.rebuild import record_from_row
from lbcore.balancer.state.batch_context import BalancerState
from lbcore.balancer.state.effects import Effect
from lbcore.balancer.state.ledger import Ledger
from lbcore.config.tree import Config
from lbcore.machine import Step
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.scorer.group_update import GroupUpdate
from lbcore.scorer.tracks import RawMessage
from lbcore.sim.engine.job import packed_effects
from tests.support.values.invariants import violations
from tests.support.worlds.world import World

Records = dict[str, OwnershipRecord]
AGAIN_ONE_IN = 5  # not a divisor of how often a cycle or a report comes


class CheckedWorld(World):
    """A World.

    restarts_often: the job comes back from its packed state after every batch. again_one_in: every
    how many batches one is computed a second time.
    """

    def __init__(
        self,
        config: Config,
        brokers: int,
        *,
        seed: int = 0,
        restarts_often: bool = False,
        again_one_in: int = AGAIN_ONE_IN,
    ) -> None:
        super().__init__(config, brokers, seed=seed)
        self.shuffler = random.Random(-seed - 1)
        self.restarts_often = restarts_often
        self.again_one_in = 1 if restarts_often else again_one_in
        self.batches = 0

    def step_scorer(self, group: int, messages: Sequence[RawMessage]) -> Step[Any, Any]:
        """The first operator's part, held against a second computation of it."""
        scorer, state = self.job.scorers[group], self.job.scored.get(group)
        if self.batches % self.again_one_in:
            return super().step_scorer(group, messages)
        packed = None if state is None else scorer.pack(state)
        step = scorer.step(state, messages, self.batch_ms)
        again = scorer.step(
            None if packed is None else scorer.unpack(packed),
            self._shuffled(messages),
            self.batch_ms,
        )
        assert step.state is not None
        assert again.state is not None
        assert scorer.pack(step.state) == scorer.pack(again.state)
        assert comparable(step.effects) == comparable(again.effects)
        assert packed is None or scorer.pack(state) == packed
        return step

    def step_balancer(self, updates: Sequence[GroupUpdate]) -> Step[BalancerState, Effect]:
        """The second operator's part, perhaps held against a second computation of it."""
        before, self.batches = self.state, self.batches + 1
        is_checked = self.batches % self.again_one_in == 0
        step = self._step_twice(updates) if is_checked else super().step_balancer(updates)
        check_records(before, step)
        return step

    def _step_twice(self, updates: Sequence[GroupUpdate]) -> Step[BalancerState, Effect]:
        balancer, state = self.job.balancer, self.state
        packed = None if state is None else balancer.pack(state)
        step = balancer.step(state, updates, self.batch_ms)
        unpacked = None if packed is None else balancer.unpack(packed)
        again = balancer.step(unpacked, self._shuffled(updates), self.batch_ms)
        assert step.state is not None
        assert again.state is not None
        after = balancer.pack(step.state)
        assert after == balancer.pack(again.state)
        fresh = balancer.unpack(after)
        assert after == balancer.pack(fresh)
        assert same_columns(step.state.ledger, fresh.ledger)
        assert packed_effects(step.effects) == packed_effects(again.effects)
        assert packed is None or (state is not None and balancer.pack(state) == packed)
        assert packed is None or same_columns(state.ledger, balancer.unpack(packed).ledger)
        return again if self.restarts_often else step

    def look(self) -> None:
        """Two brokers serve a bundle only after a record by force, and under two tokens."""
        for bundle, tokens in self.served().items():
            for older, newer in pairwise(sorted(tokens.values())):
                forced = self.forced_versions(bundle)
                assert any(older < version <= newer for version in forced), (bundle, tokens)

    def forced_versions(self, bundle: str) -> list[int]:
        """The versions that a bundle got by force."""
        rows = (row for row in self.events if row["bundle"] == bundle and row["is_forced"])
        return [int(str(row["version_id"])) for row in rows]

    def _shuffled(self, items: Sequence[Any]) -> list[Any]:
        return self.shuffler.sample(list(items), len(items))


def same_columns(one: Ledger, other: Ledger) -> bool:
    """Whether two ledgers hold the same; what one packs may be older than its columns."""
    return one.names == other.names and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in Ledger.ARRAYS
    )


def check_records(before: BalancerState | None, step: Step[BalancerState, Effect]) -> None:
    """A batch's records keep the invariants, and its events lead from the old to the new ones."""
    assert step.state is not None
    old, new = records_of(before), records_of(step.state)
    assert violations(new, old) == []
    told: Records = dict(old)
    for row in rows_of(step.effects, "ownership_events"):
        record = record_from_row(row)
        assert _follows(record, told.get(record.bundle)), (told.get(record.bundle), record)
        told[record.bundle] = record
    current = rows_of(step.effects, "bundle_ownership")
    for row in current:
        if row["state"] == State.INIT.value:
            assert told.pop(str(row["bundle"])).state is State.DELETED, row
    assert {name: told[name].version_id for name in told} == {
        name: new[name].version_id for name in new
    }
    changed = {name: new[name].version_id for name in new if new[name] != old.get(name)}
    kept = [row for row in current if row["state"] != State.INIT.value]
    shown = {str(row["bundle"]): row["version_id"] for row in kept}
    assert shown == changed


def _follows(record: OwnershipRecord, known: OwnershipRecord | None) -> bool:
    """Whether its version is the next; a new life of a bundle begins anywhere above the last."""
    if known is None:
        return True
    is_new_life = known.state is State.DELETED and record.state is not State.DELETED
    expected = known.version_id + 1
    return record.version_id == expected or (is_new_life and record.version_id > expected)


def records_of(state: BalancerState | None) -> Records:
    """Every record that a state holds, by bundle."""
    if state is None:
        return {}
    found = ((name, state.ledger.record(name)) for name in state.ledger.names)
    return {name: record for name, record in found if record is not None}


def rows_of(effects: Sequence[Effect], kind: str) -> list[Mapping[str, Any]]:
    """The rows for one table."""
    return [row for effect in effects if effect.kind == kind for row in effect.rows]


def comparable(value: Any) -> Any:
    """The value with records as mappings and arrays as bytes, so that == compares all of it."""
    if is_dataclass(value):
        return {one.name: comparable(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, Mapping):
        return {key: comparable(of) for key, of in value.items()}
    return [comparable(of) for of in value] if isinstance(value, list | tuple) else value
