"""Every answer that a service's load and topics can give: told, and no bundle's trouble."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lbcore.agent.reporting import LoadRead, TopicsRead
from lbcore.model.resources import COUNT
from lbcore.ownership.records import State
from lbcore.wire.messages import AckOutcome, BundleLoad, TopicLoad
from tests.support.processes.misbehaving_service import (
    BAD,
    GOOD,
    RAISED,
    Beside,
    goes_on,
    load,
    opened,
    raising,
    record,
)


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
    agent.service.end.set()
    agent.until(lambda: agent.count("ballast_agent_hanging_callbacks", callback="load") == 0)


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
