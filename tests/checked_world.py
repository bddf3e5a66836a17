"""A world that checks itself: each batch for determinism and invariants, each moment for doubles.

Every batch is computed a second time from the unpacked state and from shuffled input, which must
make no difference to its effects, its state or anything given to it.
"""

import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from lbcore.config.tree import Config
from lbcore.machine import Step
from lbcore.machines.effects import Effect, pack_effect
from lbcore.machines.group_update import GroupUpdate, pack_update
from lbcore.machines.rebuild import record_from_row
from lbcore.machines.tracks import RawMessage
from lbcore.machines.work import BalancerState
from lbcore.ownership.invariants import violations
from lbcore.ownership.records import OwnershipRecord
from tests.world import World

Records = dict[str, OwnershipRecord]


class CheckedWorld(World):
    """A World; restarts_often: the job comes back from its packed state after every batch."""

    def __init__(
        self, config: Config, brokers: int, *, seed: int = 0, restarts_often: bool = False
    ) -> None:
        super().__init__(config, brokers, seed=seed)
        self.shuffler = random.Random(-seed - 1)
        self.restarts_often = restarts_often

    def step_scorer(self, group: int, messages: Sequence[RawMessage]) -> Step[Any, Any]:
        """The first operator's part, held against a second computation of it."""
        scorer, state = self.scorers[group], self.scored.get(group)
        packed = None if state is None else scorer.pack(state)
        step = scorer.step(state, messages, self.now_ms)
        again = scorer.step(
            None if packed is None else scorer.unpack(packed), self._shuffled(messages), self.now_ms
        )
        assert step.state is not None
        assert again.state is not None
        assert scorer.pack(step.state) == scorer.pack(again.state)
        assert [pack_update(u) for u in step.effects] == [pack_update(u) for u in again.effects]
        assert packed is None or scorer.pack(state) == packed
        return step

    def step_balancer(self, updates: Sequence[GroupUpdate]) -> Step[BalancerState, Effect]:
        """The second operator's part, held against a second computation of it."""
        balancer, state = self.balancer, self.state
        packed = None if state is None else balancer.pack(state)
        step = balancer.step(state, updates, self.now_ms)
        unpacked = None if packed is None else balancer.unpack(packed)
        again = balancer.step(unpacked, self._shuffled(updates), self.now_ms)
        assert step.state is not None
        assert again.state is not None
        after = balancer.pack(step.state)
        assert after == balancer.pack(again.state)
        assert after == balancer.pack(balancer.unpack(after))
        assert _packed(step.effects) == _packed(again.effects)
        assert packed is None or (state is not None and balancer.pack(state) == packed)
        check_records(state, step)
        return again if self.restarts_often else step

    def look(self) -> None:
        """Two brokers serve a bundle only after a record by force, and under two tokens."""
        for bundle, tokens in self.served().items():
            for older, newer in pairwise(sorted(tokens.values())):
                forced = [
                    row["version_id"]
                    for row in self.events
                    if row["bundle"] == bundle and row["is_forced"]
                ]
                assert any(older < int(str(v)) <= newer for v in forced), (bundle, tokens)

    def _shuffled(self, items: Sequence[Any]) -> list[Any]:
        return self.shuffler.sample(list(items), len(items))


def check_records(before: BalancerState | None, step: Step[BalancerState, Effect]) -> None:
    """A batch's records keep the invariants, and its events lead from the old to the new ones."""
    assert step.state is not None
    old, new = records_of(before), records_of(step.state)
    assert violations(new, old) == []
    told: Records = dict(old)
    for row in rows_of(step.effects, "ownership_events"):
        record = record_from_row(row)
        known = told.get(record.bundle)
        assert known is None or record.version_id == known.version_id + 1, (known, record)
        told[record.bundle] = record
    assert {name: told[name].version_id for name in told} == {
        name: new[name].version_id for name in new
    }
    changed = {name: new[name].version_id for name in new if new[name] != old.get(name)}
    shown = {str(r["bundle"]): r["version_id"] for r in rows_of(step.effects, "bundle_ownership")}
    assert shown == changed


def records_of(state: BalancerState | None) -> Records:
    """Every record that a state holds, by bundle."""
    if state is None:
        return {}
    found = ((name, state.ledger.record(name)) for name in state.ledger.names)
    return {name: record for name, record in found if record is not None}


def rows_of(effects: Sequence[Effect], kind: str) -> list[Mapping[str, Any]]:
    """The rows for one table."""
    return [row for effect in effects if effect.kind == kind for row in effect.rows]


def _packed(effects: Sequence[Effect]) -> list[tuple[str, bytes]]:
    return [(effect.kind, pack_effect(effect)) for effect in effects]
