"""An agent's packed state: what code of before has written is read, and written again alike."""

import json
from pathlib import Path

import pytest

from lbcore.agent.lease import Lease
from lbcore.agent.reporting import NEVER_MS, Reporting, TopicsReported
from lbcore.agent.state import AgentState, pack_agent, unpack_agent
from lbcore.machine import UnknownStateSchemaError
from lbcore.ownership.busy_ranges import BusyRanges
from lbcore.ownership.holding import Call, Callback, Goal, Holding
from lbcore.signals.report_trigger import ReportedLoad
from lbcore.wire.messages import AckOutcome

PACKED = Path(__file__).parent / "older_states" / "agent_schema_2.packed.json"
LOW, HIGH = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
CHILDREN = ("t/n/0x00000000_0x40000000",)
LOAD = ReportedLoad(usage=0.1, rate=2.5, throughput=1e9, bundles=3)


def state() -> AgentState:
    """The state that the file has, written by the code of before."""
    call = Call(callback=Callback.SPLIT, bundle=LOW, version_id=4, children=CHILDREN)
    high = Holding(
        bundle=HIGH,
        version_id=4,
        goal=Goal.SERVE,
        is_owned=True,
        token=9,
        is_settled=True,
        outcome=AckOutcome.OPENED,
        reason="é",
        said=2,
        since_ms=7,
    )
    low = Holding(bundle=LOW, version_id=4, goal=Goal.SPLIT, children=CHILDREN, running=call)
    busy = BusyRanges({})
    busy.take(LOW)
    return AgentState(
        versions={HIGH: 9, LOW: 4},
        holdings={HIGH: high, LOW: low},
        pending=frozenset(one.bundle for one in (high, low) if one.is_pending),
        busy=busy.freeze(),
        blocked=frozenset({"b", "a"}),
        reporting=Reporting(
            seqs={"acks": 3},
            heard_at_ms=1,
            load=LOAD,
            topics={HIGH: TopicsReported(topics=("x",), load=LOAD, reported_at_ms=5)},
            is_draining=True,
        ),
        stopping_at_ms=12,
        lease=Lease(),
    )


def test_state_is_packed_as_by_the_code_of_before_but_for_what_that_did_not_know() -> None:
    before, found = json.loads(PACKED.read_bytes()), json.loads(pack_agent(state()))
    assert found["reporting"].pop("bundles_reported_at_ms") == NEVER_MS
    assert found == before


def test_state_of_the_code_of_before_is_read_whole() -> None:
    found = unpack_agent(PACKED.read_bytes())
    assert found == state()
    low = found.holdings[LOW]
    assert low.running is not None
    assert (type(low.goal), type(low.running.callback)) == (Goal, Callback)
    assert type(found.holdings[HIGH].outcome) is AckOutcome


def test_state_of_another_schema_is_refused() -> None:
    plain = {**json.loads(PACKED.read_bytes()), "schema": 3}
    with pytest.raises(UnknownStateSchemaError):
        unpack_agent(json.dumps(plain).encode())
