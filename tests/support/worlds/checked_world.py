"""A world that checks itself: each batch for invariants, each moment for doubles.

One batch in some is computed a second time, from the unpacked state and from shuffled input, which
must make no difference to its effects, its state or anything given to it.
"""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from lbcore.agent.reporting import LoadRead
from lbcore.agent.state import EndConfirmed, ReportConfirmed
from lbcore.balancer.batch_context import BalancerState
from lbcore.balancer.effects import Effect
from lbcore.balancer.ledger import Ledger
from lbcore.balancer.rebuild import newest_rows, record_from_row
from lbcore.config.load import parse_assignments, parse_config
from lbcore.config.ownership import FENCING_LEASE
from lbcore.config.tree import Config
from lbcore.foresight.forecast import Foresight, WhatIf, foresee
from lbcore.foresight.rehearse import RehearsalRows
from lbcore.machine import Step
from lbcore.model.bundles import Bundle
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.scorer.broker_states import RawMessage
from lbcore.scorer.group_update import GroupUpdate
from lbcore.sim.engine.job import packed_effects
from lbcore.wire.messages import BrokerLoad, Heartbeat, Message
from tests.support.values.clusters import with_constants
from tests.support.values.ownership_records import is_next, violations
from tests.support.worlds.simulated_brokers import Broker
from tests.support.worlds.world import CLUSTER, World, copied, is_settled

Records = dict[str, OwnershipRecord]
AGAIN_ONE_IN = 11  # not a divisor of how often a cycle or a report comes


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
        known = told.get(record.bundle)
        assert known is None or is_next(known, record), (known, record)
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


def records_of(state: BalancerState | None) -> Records:
    if state is None:
        return {}
    found = ((name, state.ledger.record(name)) for name in state.ledger.names)
    return {name: record for name, record in found if record is not None}


def rows_of(effects: Sequence[Effect], kind: str) -> list[Mapping[str, Any]]:
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


HOT, COLD = "broker-0:8080", "broker-1:8080"
SETTINGS = (
    "shedding.strategy=uniform",
    "placement.strategy=least_long_term_message_rate",
    "shedding.cool_down_ms=0",
    "shedding.grace_period_ms=120000",
    "splitting.enabled=false",
)


@copied
def hot_world(*more: str, **constants: int) -> World:
    """It begins to shed now. more: settings; constants: of the section shedding or cluster."""
    config = parse_assignments(Config(), [*SETTINGS, "shedding.is_shedding=false", *more])
    for name, value in {"role_cool_down_ms": 60_000, **constants}.items():
        section = "shedding" if hasattr(config.shedding, name) else "cluster"
        config = with_constants(config, {f"{section}.{name}": value})
    world = CheckedWorld(config, 3)
    world.command("create_namespace", namespace="acme/a", bundles=24)
    world.run(60_000)
    assert is_settled(world)
    for row in world.newest():
        world.rates[str(row["bundle"])] = 800.0 if row["destination"] == HOT else 50.0
    world.run(600_000, step_ms=10_000)
    world.command("set_config", values={"shedding.is_shedding": True})
    return world


MINUTE_MS = 60_000


class GaugedWorld(CheckedWorld):
    """A CheckedWorld whose brokers measure usages once a minute, as means over it."""

    def load(self, broker: Broker) -> LoadRead:
        read = super().load(broker)
        if not hasattr(self, "past"):
            self.past: dict[str, list[tuple[int, float]]] = {}
            self.gauges: dict[str, tuple[int, float]] = {}
        past = self.past.setdefault(broker.name, [])
        past.append((self.now_ms, float(read.usage[0])))
        minute = self.now_ms // MINUTE_MS
        if self.gauges.get(broker.name, (-1, 0.0))[0] != minute:
            window = [usage for at_ms, usage in past if at_ms > self.now_ms - MINUTE_MS]
            self.gauges[broker.name] = (minute, float(np.mean(window)))
        usage = np.array([self.gauges[broker.name][1], *read.usage[1:]])
        return replace(read, usage=usage)


@copied
def long_hot(config: Config, rate: float = 3_000.0) -> GaugedWorld:
    """One broker of four has long been hot, and balancing is paused. rate: of its bundles."""
    world = GaugedWorld(config, 4, seed=5)
    world.run(2_000)
    world.command("create_namespace", namespace="t/n", bundles=24)
    world.run(25_000)
    world.command("pause")
    skewed(world)
    world.rates = {name: min(one, rate) for name, one in world.rates.items()}
    world.run(8 * MINUTE_MS)
    return world


class LaggingWorld(CheckedWorld):
    """A CheckedWorld.

    read_until_ms: the job sees nothing of the log that is later: its batches are full, by messages
    of other clusters. slow_ms: how long callbacks of a broker take.
    """

    def __init__(self, config: Config, brokers: int, *, seed: int = 0) -> None:
        self.read_until_ms: int | None = None
        self.slow_ms: dict[str, int] = {}
        super().__init__(config, brokers, seed=seed)

    def read_rows(self) -> list[RawMessage]:
        """What the job sees of what nobody has read yet."""
        if self.read_until_ms is None:
            return super().read_rows()
        whole = dict(self.log)
        for place, messages in whole.items():
            seen = [m for m in messages if m.position.timestamp_ms <= self.read_until_ms]
            self.log[place] = seen
        found = super().read_rows()
        self.log.update(whole)
        is_full = any(self.read[place] < len(messages) for place, messages in whole.items())
        return [replace(one, is_full=is_full) for one in found]

    def call_ms(self, broker: Broker) -> int:
        """How long a callback of a broker takes; the dice are thrown for a slow one, too."""
        drawn_ms = super().call_ms(broker)
        return self.slow_ms.get(broker.name, drawn_ms)


def tables_of(world: World) -> RehearsalRows:
    newest = {row["broker"]: row for row in world.other_rows["load_history"]}
    return RehearsalRows(
        tables=newest_rows(world.newest(), world.other_rows),
        load=[dict(row) for row in newest.values()],
        decisions=world.decisions,
    )


def foreseen(world: World, **what_if: Any) -> Foresight:
    rows = tables_of(world)
    found = foresee(world.config, CLUSTER, rows, world.now_ms, WhatIf(**what_if))
    assert isinstance(found, Foresight), found
    return found


LEASED = parse_config({"ownership": {"fencing": FENCING_LEASE}})


class LeasedWorld(LaggingWorld):
    """A world under `fencing = lease`.

    confirmed: sending times by incarnation. late_readers: brokers that get no records for now.
    """

    def __init__(self, config: Config, brokers: int, *, seed: int = 0) -> None:
        self.confirmed: dict[str, list[int]] = defaultdict(list)
        self.late_readers: set[str] = set()
        super().__init__(config, brokers, seed=seed)

    def used(self) -> dict[str, dict[str, int]]:
        """Bundle → broker → token of what services may use at this moment."""
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for name, broker in self.brokers.items():
            if broker.agent is None or broker.is_paused:
                continue
            usable = broker.agent.usable_at(self.now_ms + broker.ahead_ms)
            for bundle, token in usable.items():
                found[bundle][name] = token
        return found

    def look(self) -> None:
        """No hash of a namespace is used by two brokers, whatever has happened."""
        super().look()
        used = [(Bundle.parse(b), name) for b, names in self.used().items() for name in names]
        for number, (bundle, name) in enumerate(used):
            for other, other_name in used[number + 1 :]:
                is_apart = bundle.namespace != other.namespace or not bundle.range.overlaps(
                    other.range
                )
                assert name == other_name or is_apart, (self.now_ms, bundle, name, other_name)

    def append(self, message: Message, partition: int | None = None) -> None:
        super().append(message, partition)
        if isinstance(message, Heartbeat | BrokerLoad):
            made = message.envelope
            self.confirmed[made.incarnation].append(made.reported_at_ms)

    def _step_broker(self, broker: Broker) -> None:
        if broker.agent is None or broker.is_paused:
            return
        is_connected = not broker.is_cut_off
        if is_connected:
            sent = self.confirmed.pop(f"{broker.name}/{broker.starts}", [])
            self.advance(broker, [ReportConfirmed(sent_ms=sent_ms) for sent_ms in sent])
        is_late = broker.name in self.late_readers
        held, broker.inbox = (broker.inbox, []) if is_late else ([], broker.inbox)
        super()._step_broker(broker)
        broker.inbox = [*held, *broker.inbox]
        if is_connected and not is_late:
            self.advance(broker, [EndConfirmed(asked_ms=self.now_ms + broker.ahead_ms)])


class RebuiltWorld(CheckedWorld):
    """A CheckedWorld that looks, whenever its job is rebuilt, whether the tables told it all."""

    def rebuild_job(self) -> None:
        """The job comes back from the tables, as it was."""
        check_tables(self)
        super().rebuild_job()


def check_tables(world: World) -> None:
    """The tables are those of a replay of the log of events, and give the state that there is."""
    replayed = {str(row["bundle"]): row for row in world.newest()}
    for bundle, row in world.current.items():
        assert {name: replayed[bundle][name] for name in _SHARED} == {n: row[n] for n in _SHARED}
    assert all(
        replayed[bundle]["state"] == "Deleted" for bundle in set(replayed) - {*world.current}
    )
    if world.state is not None:
        after = promised(world.job.rebuilt())
        for name, value in promised(world.state).items():
            assert after[name] == value, name


_SHARED = ("state", "version_id", "source", "destination", "destination_incarnation", "is_forced")


def promised(state: BalancerState) -> Mapping[str, object]:
    return {
        "records": records_of(state),
        "brokers": {
            name: (
                entry.incarnation,
                entry.is_dead,
                entry.is_draining,
                {key: text for key, text in entry.texts.items() if text},
                entry.starts_ms,
                entry.restarted_ms,
            )
            for name, entry in state.brokers.items()
        },
        "namespaces": state.namespaces,
        "rules": state.rules,
        "settings": json.loads(json.dumps(state.settings)),
        "created": state.catalog,
        "commands": state.commands,
        "waiting": {
            command_id: (one.deadline_ms, one.is_queued, one.moving, one.faults, one.failed)
            for command_id, one in state.waiting.items()
        },
    }


HOUR_MS = 3_600_000


AVG = ("shedding.strategy=avg", "placement.strategy=avg")


@copied
def running(
    brokers: int = 4, bundles: int = 24, *, seed: int = 5, **sections: Mapping[str, Any]
) -> CheckedWorld:
    """A cluster at rest under `avg`; sections: settings to change, by section."""
    config = parse_assignments(Config(), AVG)
    changes = {name: replace(getattr(config, name), **new) for name, new in sections.items()}
    world = CheckedWorld(replace(config, **changes), brokers, seed=seed)
    world.run(2_000)
    world.command("create_namespace", namespace="t/n", bundles=bundles)
    world.run(25_000)
    assert is_settled(world)
    return world


def outcome(world: World, command_id: str) -> Mapping[str, Any]:
    return [r for r in world.other_rows["commands"] if r["command_id"] == command_id][-1]


def owners(world: World) -> dict[str, str]:
    return {str(row["bundle"]): str(row["destination"]) for row in world.newest()}


def decided(world: World, kind: str, reason: str = "") -> list[Mapping[str, Any]]:
    found = [row for row in world.decisions if row["kind"] == kind]
    return [row for row in found if not reason or row["reason"] == reason]


def newest(world: World, table: str, *key: str) -> dict[tuple[str, ...], Mapping[str, Any]]:
    return {tuple(str(row[name]) for name in key): row for row in world.other_rows[table]}


def most_unserved(world: World, duration_ms: int) -> int:
    """The longest time, in steps of 500 ms, that a bundle was open nowhere."""
    missing: Counter[str] = Counter()
    longest = 0
    for _ in range(duration_ms // 500):
        world.run(500)
        served = world.served()
        for bundle in owners(world):
            missing[bundle] = 0 if served.get(bundle) else missing[bundle] + 1
        longest = max([longest, *missing.values()])
    return longest


def skewed(world: World) -> None:
    hot = owners(world)[min(owners(world))]
    world.rates = {name: 3_000.0 if b == hot else 1.0 for name, b in owners(world).items()}
