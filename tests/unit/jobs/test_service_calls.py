"""Every callback and every load that a service can get wrong: told, and no bundle's trouble."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lbcore.agent.reporting import LoadRead, TopicsRead
from lbcore.model.resources import COUNT
from lbcore.ownership.records import State
from lbcore.wire.messages import AckOutcome, BrokerLoad, BundleLoad, TopicLoad
from tests.support.processes.misbehaving_service import (
    BAD,
    CHILDREN,
    GOOD,
    RAISED,
    Beside,
    asked,
    elsewhere,
    goes_on,
    hung,
    load,
    opened,
    raising,
    record,
)


@pytest.fixture
def made() -> Iterator[list[Beside]]:
    """Where a test puts its agents, so that their threads end."""
    agents: list[Beside] = []
    yield agents
    for agent in agents:
        agent.service.end.set()
        agent.calls.close()


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
def test_callback_that_never_returns_is_given_up_and_its_bundle_refused_not_kept_waiting(
    made: list[Beside], callback: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent = opened(made, {}, hangs=callback)
    hung(agent, callback)
    assert BAD not in agent.permitted()
    assert "it has not returned within" in agent.outcomes(BAD)[-1].reason
    assert agent.callbacks(callback, "overdue") == 1
    assert agent.count("ballast_agent_hanging_callbacks", callback=callback) == 1
    assert f"{callback} of {BAD} hangs" in caplog.text
    ran = list(agent.service.ran)
    agent.read(record(BAD, 7, State.OWNED))  # the balancer leaves it here after all
    agent.until_said(BAD, 7, AckOutcome.FAILED)
    agent.read(elsewhere(BAD, 8))
    agent.read(*(record(child, 9) for child in CHILDREN))
    for child in CHILDREN:
        agent.until_said(child, 9, AckOutcome.FAILED)
    assert agent.service.ran == ran  # never two callbacks of one range at once
    assert not {BAD, *CHILDREN} & set(agent.permitted())
    goes_on(agent)


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
    agent.calls.check_overdue()
    assert agent.callbacks("close", "overdue") == 0


def test_late_success_is_not_permitted_after_the_failure_was_told(made: list[Beside]) -> None:
    agent = opened(made, {}, hangs="open")
    hung(agent, "open")
    agent.service.end.set()
    agent.until(lambda: not agent.agent.state.stuck)
    assert BAD not in agent.permitted()


def number(value: float) -> dict[str, Callable[[], Any]]:
    five, stats = np.array([1.0, 1.0, 1.0, 1.0, value]), np.full((2, 8), value)
    return {
        f"usage {value}": lambda: load(usage=five),
        f"limit {value}": lambda: load(limit=np.where(five == 1.0, 1.0, value)),
        f"traffic {value}": lambda: load(traffic=five[1:]),
        f"all stats {value}": lambda: load(stats=stats, traffic=five[1:]),
    }


UNREADABLE: dict[str, Callable[[], Any]] = {
    **{how: raising(error) for how, error in RAISED.items()},
    **number(float("nan")),
    **number(float("inf")),
    **number(-float("inf")),
    **number(1e300),
    "nothing": lambda: None,
    "a list": lambda: [1.0, 2.0],
    "a text": lambda: "\udc80",
    "a class": lambda: LoadRead,
    "usage too short": lambda: load(usage=np.ones(4)),
    "usage empty": lambda: load(usage=np.ones(0)),
    "usage of tables": lambda: load(usage=np.ones((COUNT, COUNT))),
    "usage of texts": lambda: load(usage=["a"] * COUNT),
    "usage complex": lambda: load(usage=np.ones(COUNT, dtype=complex) * 1j),
    "usage none": lambda: load(usage=None),
    "stats too short": lambda: load(stats=np.ones((1, 8))),
    "stats too narrow": lambda: load(stats=np.ones((2, 7))),
    "stats ragged": lambda: load(stats=[[1.0], [1.0, 2.0]]),
    "stats of objects": lambda: load(stats=np.array([[object()] * 8] * 2)),
    "bundles one text": lambda: load(bundles=BAD),
    "bundles none": lambda: load(bundles=None),
    "count a text": lambda: load(topic_count="1"),
    "count nan": lambda: load(topic_count=float("nan")),
    "count negative": lambda: load(producer_count=-1),
}

NOT_WHOLE: dict[str, Callable[[], Any]] = {
    "nan of one": lambda: load(stats=np.array([[float("nan")] * 8, [1.0] * 8])),
    "inf of one": lambda: load(stats=np.array([[1.0] * 7 + [float("inf")], [1.0] * 8])),
    "negative of one": lambda: load(stats=np.array([[-1.0] * 8, [1.0] * 8])),
    "name no text": lambda: load(bundles=(7, GOOD)),
    "name a list": lambda: load(bundles=([BAD], GOOD)),
    "name no bundle": lambda: load(bundles=("bad", GOOD)),
    "name with a surrogate": lambda: load(bundles=("t/\udc80/0x00000000_0xffffffff", GOOD)),
    "name too long": lambda: load(bundles=(f"t/{'n' * 600}/0x00000000_0xffffffff", GOOD)),
    "name twice": lambda: load(bundles=(GOOD, GOOD)),
}


@pytest.mark.parametrize("how", UNREADABLE)
def test_load_that_cannot_be_read_is_told_and_bundles_go_on(
    made: list[Beside], how: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([UNREADABLE[how]])

    def answer() -> Any:
        return next(answers, load)()

    agent = opened(made, {"load": answer})
    agent.until(lambda: agent.count("ballast_agent_load_errors_total") == 1)
    assert "load can't be read" in caplog.text
    goes_on(agent)


@pytest.mark.parametrize("how", NOT_WHOLE)
def test_load_with_one_bundle_that_cannot_be_told_reports_the_others(
    made: list[Beside], how: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent = opened(made, {"load": NOT_WHOLE[how]})
    agent.until(lambda: bool(agent.own_error_message(BundleLoad)))
    assert agent.own_error_message(BundleLoad)[0].names == (GOOD,)
    agent.until(lambda: agent.count("ballast_agent_load_errors_total") >= 1)
    assert "leaves 1 bundles out" in caplog.text


def test_load_that_hangs_is_told_and_bundles_go_on(
    made: list[Beside], caplog: pytest.LogCaptureFixture
) -> None:
    agent = opened(made, {}, hangs="load")
    agent.hang("load")
    agent.until(lambda: agent.count("ballast_agent_hanging_callbacks", callback="load") == 1)
    assert agent.count("ballast_agent_load_errors_total") == 1
    assert "load hangs" in caplog.text
    agent.read(record(GOOD, 3, State.RELEASING))
    agent.until_said(GOOD, 3, AckOutcome.CLOSED)
    del agent.service.wrong["load"]
    agent.service.end.set()
    agent.until(lambda: agent.count("ballast_agent_hanging_callbacks", callback="load") == 0)
    agent.until(lambda: bool(agent.own_error_message(BrokerLoad)))  # load is reported again


def of_topics(**changed: Any) -> Callable[[], Any]:
    usual = TopicsRead(bundle=BAD, topics=("a", "b"), traffic=np.ones((2, 4)))
    good = TopicsRead(bundle=GOOD, topics=("c",), traffic=np.ones((1, 4)))
    return lambda: [replace(usual, **changed), good]


TOPICS: dict[str, Callable[[], Any]] = {
    "nan": of_topics(traffic=np.full((2, 4), float("nan"))),
    "too short": of_topics(traffic=np.ones((1, 4))),
    "flat": of_topics(traffic=np.ones(8)),
    "a list": lambda: [[], *of_topics()()],
    "nothing in it": lambda: [None, *of_topics()()],
    "topic no text": of_topics(topics=(1, 2)),
    "topic twice": of_topics(topics=("a", "a")),
    "topic with a surrogate": of_topics(topics=("\udc80", "b")),
    "topics none": of_topics(topics=None),
    "bundle none": of_topics(bundle=None),
    "bundle no name": of_topics(bundle="bad"),
}


@pytest.mark.parametrize("how", TOPICS)
def test_topics_that_cannot_be_told_are_left_out_alone(made: list[Beside], how: str) -> None:
    agent = opened(made, {"topics": TOPICS[how]})
    agent.until(lambda: GOOD in {said.bundle for said in agent.own_error_message(TopicLoad)})
    agent.until(lambda: agent.count("ballast_agent_load_errors_total") >= 1)
    goes_on(agent)


@pytest.mark.parametrize(
    "answer", [None, 7, "\udc80", *RAISED.values()], ids=["none", "number", "text", *RAISED]
)
def test_topics_that_are_no_list_leave_load_alone(made: list[Beside], answer: object) -> None:
    is_raised = isinstance(answer, BaseException)
    wrong = raising(answer) if isinstance(answer, BaseException) else lambda: answer
    agent = opened(made, {"topics": wrong})
    agent.until(lambda: agent.count("ballast_agent_load_errors_total") >= 1)
    assert is_raised or not agent.own_error_message(TopicLoad)
    goes_on(agent)
