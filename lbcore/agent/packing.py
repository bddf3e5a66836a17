"""An agent's state as bytes, and back.

Decides nothing; `agent` offers it as the Machine's pack and unpack. Source: ours.
"""

import json
from dataclasses import asdict
from typing import Any

from lbcore.agent.lease import Lease
from lbcore.agent.reporting import Reporting, TopicsReported
from lbcore.agent.state import AgentState
from lbcore.machine import UnknownStateSchemaError
from lbcore.ownership.busy_ranges import BusyRanges
from lbcore.ownership.holding import Call, Callback, Goal, Holding
from lbcore.signals.report_trigger import ReportedLoad
from lbcore.wire.messages import AckOutcome

STATE_SCHEMA = 2


def pack_agent(state: AgentState) -> bytes:
    """The state as canonical JSON; the same bytes for equal states."""
    plain = {"schema": STATE_SCHEMA, **asdict(state), "blocked": sorted(state.blocked)}
    for derived in ("pending", "busy", "stuck"):
        del plain[derived]
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def unpack_agent(blob: bytes) -> AgentState:
    """The inverse of `pack_agent`. Raises UnknownStateSchemaError."""
    plain = json.loads(blob)
    if plain["schema"] != STATE_SCHEMA:
        raise UnknownStateSchemaError.of("Agent", plain["schema"], STATE_SCHEMA)
    holdings = {name: _holding(fields) for name, fields in plain["holdings"].items()}
    busy = BusyRanges({})
    for name, holding in holdings.items():
        if holding.running is not None or holding.stuck is not None:
            busy.take(name)
    return AgentState(
        versions=plain["versions"],
        holdings=holdings,
        pending=frozenset(name for name, holding in holdings.items() if holding.is_pending),
        busy=busy.freeze(),
        blocked=frozenset(plain["blocked"]),
        stuck=frozenset(name for name, holding in holdings.items() if holding.stuck is not None),
        reporting=_reporting(plain["reporting"]),
        stopping_at_ms=plain["stopping_at_ms"],
        is_stopped=plain["is_stopped"],
        lease=Lease(**plain["lease"]),
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
            "stuck": _call(fields.get("stuck")),
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
