"""A cluster at rest, and batches of commands that it is given."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.state.batch_context import BalancerState
from lbcore.balancer.state.effects import pack_effect
from lbcore.balancer.state.records import Records
from lbcore.ownership.records import State
from lbcore.scorer.group_update import GroupUpdate, Placed
from lbcore.wire.messages import (
    Ack,
    AckOutcome,
    Acks,
    AuditEntry,
    Command,
    Envelope,
    Position,
)
from tests.bench.bench_balancer import CLUSTER, INTERVAL_MS, PER_NAMESPACE, START_MS, Bench

Message = Command | Acks | AuditEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One kind of batch. target_s: most CPU seconds; prepare: what the state has besides.

    following: batches that follow, in which brokers answer; the dearest of all counts.
    """

    name: str
    target_s: float
    messages: Callable[["Setting"], list[Message]]
    prepare: Callable[["Setting"], None] = lambda _: None
    following: int = 0


@dataclass(slots=True)
class Setting:
    """The cluster that a line finds, changed by its `prepare`."""

    bench: Bench
    balancer: ClusterBalancer
    state: BalancerState
    number: int = 0

    @property
    def names(self) -> list[str]:
        """The bundles' names."""
        return self.bench.cluster.names

    def namespace(self, at: int) -> str:
        """The name of one of the cluster's namespaces."""
        return self.names[at * PER_NAMESPACE].rpartition("/")[0]

    def broker(self, at: int) -> str:
        """The name of one of the cluster's brokers."""
        return sorted(self.state.brokers)[at]

    def with_rules(self, **rules: Any) -> None:
        """Put rules into the state."""
        self.state = replace(self.state, rules=replace(self.state.rules, **rules))

    def with_topics(self, topics: Mapping[str, int]) -> None:
        """Put topics into the record store."""
        records = Records(by_type={**self.state.records.by_type, "topic": topics})
        self.state = replace(self.state, records=records)

    def answers(self) -> list[Message]:
        """What brokers say to all that they were told."""
        ledger, found = self.state.ledger, list[Message]()
        by_broker: dict[str, list[Ack]] = {}
        for row in ledger.rows_in(State.ASSIGNING, State.RELEASING).tolist():
            record = ledger.record_at(row)
            is_opening = record.state is State.ASSIGNING
            outcome = AckOutcome.OPENED if is_opening else AckOutcome.CLOSED
            ack = Ack(bundle=record.bundle, version_id=record.version_id, outcome=outcome)
            by_broker.setdefault(record.destination if is_opening else record.source, []).append(
                ack
            )
        for name, acks in sorted(by_broker.items()):
            envelope = Envelope(
                cluster=CLUSTER, broker=name, incarnation="1", seq=2, reported_at_ms=START_MS
            )
            found.append(Acks(envelope=envelope, acks=tuple(acks)))
        return found

    def step(self, messages: Sequence[Message]) -> tuple[float, Mapping[str, int]]:
        """CPU seconds of one batch with these messages, and the outcomes; the state moves on."""
        self.number += 1
        number = self.bench.number + self.number
        update = _with(
            self.bench.cluster.update(number, range(self.bench.cluster.brokers), ()), messages
        )
        now_ms = START_MS + number * INTERVAL_MS
        state = replace(self.state, times=replace(self.state.times, cycle_ms=now_ms))
        started = time.process_time()
        step = self.balancer.step(state, [update], now_ms)
        assert step.state is not None
        self.balancer.pack(step.state)
        for effect in step.effects:
            pack_effect(effect)
        cpu_s = time.process_time() - started
        self.state = step.state
        outcomes: dict[str, int] = {}
        for effect in step.effects:
            for row in effect.rows if effect.kind == "commands" else ():
                outcomes[row["status"]] = outcomes.get(row["status"], 0) + 1
        return cpu_s, outcomes


def _with(update: GroupUpdate, messages: Sequence[Message]) -> GroupUpdate:
    return replace(
        update,
        placed=tuple(
            Placed(
                position=Position(topic="x", partition=0, offset=i, timestamp_ms=START_MS),
                message=message,
            )
            for i, message in enumerate(messages)
        ),
    )


def asked(kind: str, several: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Commands of one kind."""
    return [
        Command(cluster=CLUSTER, command_id=f"{kind}-{i}", kind=kind, arguments=arguments)
        for i, arguments in enumerate(several)
    ]
