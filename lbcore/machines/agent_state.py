"""What an agent's Machine takes in, wants done and remembers: its events, effects and state.

Decides nothing; `agent` does. Source: ours.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from lbcore.machine import UnknownStateSchemaError
from lbcore.machines.agent_reporting import LoadRead, Reporting, TopicsRead, TopicsReported
from lbcore.ownership.holding import (
    Call,
    Callback,
    CallDone,
    Goal,
    Holding,
    forget,
    next_call,
)
from lbcore.ownership.records import OwnershipRecord
from lbcore.signals.report_trigger import ReportedLoad
from lbcore.wire.messages import AckOutcome, Acks, BrokerLoad, BundleLoad, Heartbeat, TopicLoad

STATE_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRead:
    """A record of the ownership topic."""

    record: OwnershipRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordForgotten:
    """A null message of the ownership topic: the bundle's key is deleted."""

    bundle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The broker is to end: it asks to be drained, and waits, shutdown_timeout_ms at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLoad:
    """Effect: read the service's load and answer with LoadRead (and TopicsRead for each bundle)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Effect: send this message, after those before it, with acks=all."""

    message: Heartbeat | BrokerLoad | BundleLoad | TopicLoad | Acks


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Effect: nothing is served any more and everything is said; the process may end."""


Event: TypeAlias = RecordRead | RecordForgotten | CallDone | LoadRead | TopicsRead | Stop
Effect: TypeAlias = Call | ReadLoad | Send | Stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """What an agent knows.

    versions: the newest version read of each bundle. holdings: the bundles it has to do with;
    pending: those of them that something may be due for. stopping_at_ms: when it was told to stop.
    """

    versions: Mapping[str, int] = field(default_factory=dict)
    holdings: Mapping[str, Holding] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    reporting: Reporting = field(default_factory=Reporting)
    stopping_at_ms: int | None = None
    is_stopped: bool = False


class Work:
    """An agent's state while one step changes it; what is not changed is not copied."""

    def __init__(self, state: AgentState) -> None:
        self.versions = state.versions
        self.holdings = state.holdings
        self.reporting = state.reporting
        self.stopping_at_ms = state.stopping_at_ms
        self.is_stopped = state.is_stopped
        self.effects: list[Effect] = []
        self._before = state
        self._pending = set(state.pending)

    def freeze(self) -> AgentState:
        """The state as it is now."""
        return AgentState(
            versions=self.versions,
            holdings=self.holdings,
            pending=frozenset(self._pending),
            reporting=self.reporting,
            stopping_at_ms=self.stopping_at_ms,
            is_stopped=self.is_stopped,
        )

    def pending(self) -> list[str]:
        """The bundles that something may be due for, sorted."""
        return sorted(self._pending)

    def advance(self, holding: Holding) -> None:
        """Keep a holding, after starting the callback that it needs; forget it when it is idle."""
        kept, call = next_call(holding)
        if call is not None:
            self.effects.append(call)
        if kept is self.holdings.get(kept.bundle):
            return
        holdings = self._own_holdings()
        if kept.is_idle:
            holdings.pop(kept.bundle, None)
        else:
            holdings[kept.bundle] = kept
        if kept.is_pending:
            self._pending.add(kept.bundle)
        else:
            self._pending.discard(kept.bundle)

    def remember_version(self, bundle: str, version_id: int | None) -> None:
        """Note the newest version read of a bundle; None = its key is deleted."""
        if self.versions is self._before.versions:
            self.versions = dict(self.versions)
        versions = self.versions
        assert isinstance(versions, dict)  # noqa: S101 copied above
        if version_id is None:
            versions.pop(bundle, None)
        else:
            versions[bundle] = version_id

    def forget_record(self, bundle: str, now_ms: int) -> None:
        """The bundle's key is deleted: whatever is left of it here is closed."""
        self.remember_version(bundle, None)
        holding = self.holdings.get(bundle)
        if holding is not None:
            self.advance(forget(holding, now_ms))

    def inherit(self, children: tuple[Holding, ...]) -> None:
        """Keep the children of a split until their records come."""
        holdings = self._own_holdings()
        for child in children:
            holdings.setdefault(child.bundle, child)

    def disinherit(self, parent: Holding) -> None:
        """The bundle is served as its children no more: those without records go."""
        holdings = self._own_holdings()
        for child in parent.split_into:
            if child in holdings and holdings[child].version_id == 0:
                del holdings[child]
                self._pending.discard(child)

    def ask_load(self, now_ms: int) -> None:
        """Have the service's load read."""
        self.reporting = replace(self.reporting, asked_at_ms=now_ms)
        self.effects.append(ReadLoad())

    def _own_holdings(self) -> dict[str, Holding]:
        if self.holdings is self._before.holdings:
            self.holdings = dict(self.holdings)
        holdings = self.holdings
        assert isinstance(holdings, dict)  # noqa: S101 copied above
        return holdings


def pack_agent(state: AgentState) -> bytes:
    """The state as canonical JSON; the same bytes for equal states."""
    plain = {"schema": STATE_SCHEMA, **asdict(state)}
    del plain["pending"]
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def unpack_agent(blob: bytes) -> AgentState:
    """The inverse of `pack_agent`. Raises UnknownStateSchemaError."""
    plain = json.loads(blob)
    if plain["schema"] != STATE_SCHEMA:
        raise UnknownStateSchemaError.of("Agent", plain["schema"], STATE_SCHEMA)
    holdings = {name: _holding(fields) for name, fields in plain["holdings"].items()}
    return AgentState(
        versions=plain["versions"],
        holdings=holdings,
        pending=frozenset(name for name, holding in holdings.items() if holding.is_pending),
        reporting=_reporting(plain["reporting"]),
        stopping_at_ms=plain["stopping_at_ms"],
        is_stopped=plain["is_stopped"],
    )


def _holding(fields: dict[str, Any]) -> Holding:
    outcome = None if fields["outcome"] is None else AckOutcome(fields["outcome"])
    return Holding(
        **{
            **fields,
            "goal": Goal(fields["goal"]),
            "children": tuple(fields["children"]),
            "split_into": tuple(fields["split_into"]),
            "running": _call(fields["running"]),
            "outcome": outcome,
        }
    )


def _call(fields: dict[str, Any] | None) -> Call | None:
    if fields is None:
        return None
    callback, children = Callback(fields["callback"]), tuple(fields["children"])
    return Call(**{**fields, "callback": callback, "children": children})


def _reporting(fields: dict[str, Any]) -> Reporting:
    topics = {
        name: TopicsReported(
            topics=tuple(reported["topics"]),
            load=ReportedLoad(**reported["load"]),
            reported_at_ms=reported["reported_at_ms"],
        )
        for name, reported in fields["topics"].items()
    }
    load = None if fields["load"] is None else ReportedLoad(**fields["load"])
    return Reporting(**{**fields, "topics": topics, "load": load})
