"""An agent's state as bytes, and back.

`agent` offers it as the Machine's pack and unpack.
"""

import json
from dataclasses import replace
from typing import Any

from lbcore.agent.state import AgentState
from lbcore.machine import UnknownStateSchemaError
from lbcore.ownership.busy_ranges import BusyRanges
from lbcore.plain import applied, plain_of

STATE_SCHEMA = 2
_STATE = plain_of(AgentState)


def pack_agent(state: AgentState) -> bytes:
    """The state as canonical JSON; the same bytes for equal states."""
    plain = {"schema": STATE_SCHEMA, **applied(_STATE.to, state)}
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def unpack_agent(blob: bytes) -> AgentState:
    """The inverse of `pack_agent`. Raises UnknownStateSchemaError."""
    plain: dict[str, Any] = json.loads(blob)
    schema = plain.pop("schema")
    if schema != STATE_SCHEMA:
        raise UnknownStateSchemaError.of("Agent", schema, STATE_SCHEMA)
    state: AgentState = applied(_STATE.back, plain)
    busy = BusyRanges({})
    for name, holding in state.holdings.items():
        if holding.running is not None or holding.stuck is not None:
            busy.take(name)
    return replace(
        state,
        pending=frozenset(name for name, one in state.holdings.items() if one.is_pending),
        busy=busy.freeze(),
        stuck=frozenset(name for name, one in state.holdings.items() if one.stuck is not None),
    )
