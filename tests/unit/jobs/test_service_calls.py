"""Every callback of a bundle × everything that it can do wrong: told, and nobody else's trouble."""

import pytest

from lbcore.ownership.records import State
from lbcore.wire.messages import AckOutcome
from tests.support.processes.misbehaving_service import (
    BAD,
    CHILDREN,
    RAISED,
    Beside,
    asked,
    elsewhere,
    goes_on,
    hung,
    opened,
    raising,
    record,
)


@pytest.mark.parametrize("callback", ["open", "close", "split"])
@pytest.mark.parametrize("how", RAISED)
def test_whatever_a_callback_raises_is_told_and_the_others_go_on(
    made: list[Beside], callback: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent = opened(made, {callback: raising(RAISED[how])})
    version = asked(agent, callback)
    agent.until_said(BAD, version, AckOutcome.FAILED)
    reason = agent.outcomes(BAD)[-1].reason
    assert type(RAISED[how]).__name__ in reason
    assert len(reason) <= 256
    assert reason.isprintable()
    assert agent.callbacks(callback, "failed") == 1
    assert f"{callback} of {BAD} failed" in caplog.text
    assert (BAD in agent.permitted()) == (callback != "open")  # what was served still is
    goes_on(agent)


@pytest.mark.parametrize("callback", ["open", "close", "split"])
def test_callback_that_never_returns_is_given_up_and_the_others_go_on(
    made: list[Beside], callback: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent = opened(made, {}, hangs=callback)
    hung(agent, callback)
    assert BAD not in agent.permitted()
    assert "it has not returned within" in agent.outcomes(BAD)[-1].reason
    assert agent.callbacks(callback, "overdue") == 1
    assert agent.count("ballast_agent_hanging_callbacks", callback=callback) == 1
    assert f"{callback} of {BAD} hangs" in caplog.text
    goes_on(agent)


@pytest.mark.parametrize("callback", ["open", "close", "split"])
def test_bundle_with_a_hanging_callback_is_refused_not_kept_waiting(
    made: list[Beside], callback: str
) -> None:
    agent = opened(made, {}, hangs=callback)
    hung(agent, callback)
    ran = list(agent.service.ran)
    agent.read(record(BAD, 7, State.OWNED))  # the balancer leaves it here after all
    agent.until_said(BAD, 7, AckOutcome.FAILED)
    agent.read(elsewhere(BAD, 8))
    agent.read(*(record(child, 9) for child in CHILDREN))
    for child in CHILDREN:
        agent.until_said(child, 9, AckOutcome.FAILED)
    assert agent.service.ran == ran  # never two callbacks of one range at once
    assert not {BAD, *CHILDREN} & set(agent.permitted())


@pytest.mark.parametrize("callback", ["open", "close", "split"])
def test_hanging_callback_that_returns_is_cleared_away_and_the_bundle_can_come_back(
    made: list[Beside], callback: str
) -> None:
    agent = opened(made, {}, hangs=callback)
    hung(agent, callback)
    agent.read(elsewhere(BAD, 7))
    agent.service.end.set()
    agent.until(lambda: not agent.agent.state.stuck)
    left = ("close", BAD, 7)
    agent.until(lambda: callback == "close" or left in agent.service.ran)
    agent.until(lambda: BAD not in agent.agent.state.holdings)
    assert agent.count("ballast_agent_hanging_callbacks", callback=callback) == 0
    agent.read(record(BAD, 9))
    agent.until_said(BAD, 9, AckOutcome.OPENED)
    assert agent.permitted()[BAD] == 9


def test_pause_of_the_whole_process_is_no_callbacks_fault(made: list[Beside]) -> None:
    agent = opened(made, {}, hangs="close")
    asked(agent, "close")
    agent.until(lambda: ("close", BAD, 3) in agent.service.ran)
    agent.clock_s += 3_600
    agent.calls.look()
    assert agent.callbacks("close", "overdue") == 0


def test_late_success_is_not_permitted_after_the_failure_was_told(made: list[Beside]) -> None:
    agent = opened(made, {}, hangs="open")
    hung(agent, "open")
    agent.service.end.set()
    agent.until(lambda: not agent.agent.state.stuck)
    assert BAD not in agent.permitted()
