"""When an agent reports what: heartbeats, load by the trigger, parts, topics, draining."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from lbcore.agent.agent import AgentMachine
from lbcore.agent.load_validation import check_load, check_topics, identity_fault
from lbcore.agent.reporting import Identity, LoadRead, TopicsRead
from lbcore.agent.state import Send, Stop, Stopped
from lbcore.config.load import checked_dynamic
from lbcore.config.ownership import AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.config.tree import SETTINGS
from lbcore.model.resources import complete
from lbcore.wire.format import format_message
from lbcore.wire.messages import NOT_REPORTED, BrokerLoad, BundleLoad

CONFIG = AgentConfig()
SIGNALS = SignalsConfig()
IDENTITY = Identity(
    cluster="local", broker="broker-a", incarnation="a1", web_service_url="http://a:80"
)


def load(cpu: float = 50.0, rate: float = 100.0, bundles: int = 1) -> LoadRead:
    return LoadRead(
        usage=np.array(complete([cpu, 99.0])),
        limit=np.array(complete([100.0, 100.0, 100.0])),
        traffic=np.array([rate, 0.0, 0.0, 0.0]),
        bundles=tuple(f"t/n{i}/0x00000000_0xffffffff" for i in range(bundles)),
        stats=np.arange(bundles * 8, dtype=np.float64).reshape(bundles, 8),
        topic_count=7,
    )


class Driver:
    """An agent, its state and its clock."""

    def __init__(self, config: AgentConfig = CONFIG, signals: SignalsConfig = SIGNALS) -> None:
        self.agent = AgentMachine(IDENTITY, config, signals)
        self.state = None
        self.now_ms = 0

    def give(self, *events: object, at_ms: int) -> list[object]:
        """The effects of a step, messages without their wrapping."""
        self.now_ms = at_ms
        step = self.agent.step(self.state, events, at_ms)
        self.state, self.wake_at_ms = step.state, step.wake_at_ms
        return [effect.message if isinstance(effect, Send) else effect for effect in step.effects]


def of_kind(found: list[object], kind: type) -> list:
    return [message for message in found if isinstance(message, kind)]


APART = SignalsConfig(bundle_report_interval_ms=20_000)
"""Bundles are reported at an interval of their own."""


@pytest.mark.parametrize(
    ("second", "after_ms", "reported"),
    [
        (load(), 19_999, []),
        (load(), 20_000, [BundleLoad]),
        (load(cpu=61.0), 5_000, [BrokerLoad]),
        (load(cpu=61.0), 20_000, [BrokerLoad, BundleLoad]),
        (load(), SIGNALS.report_max_interval_ms + 1, [BrokerLoad, BundleLoad]),
    ],
)
def test_bundles_with_an_interval_of_their_own_are_reported_apart_from_the_broker(
    second: LoadRead, after_ms: int, reported: list[type]
) -> None:
    driver = Driver(signals=APART)
    first = driver.give(load(), at_ms=0)
    found = driver.give(second, at_ms=after_ms)
    for messages, kinds in ((first, [BrokerLoad, BundleLoad]), (found, reported)):
        sent = [type(one) for one in messages if isinstance(one, BrokerLoad | BundleLoad)]
        assert sent == kinds


def test_bundles_of_their_own_interval_come_again_an_interval_after_the_last() -> None:
    driver = Driver(signals=APART)
    sent_ms = [
        at_ms
        for at_ms in range(0, 70_000, 5_000)
        if of_kind(driver.give(load(), at_ms=at_ms), BundleLoad)
    ]
    assert sent_ms == [0, 20_000, 40_000, 60_000]


def test_broker_that_stops_reports_its_bundles_whatever_their_interval() -> None:
    driver = Driver(signals=APART)
    driver.give(load(), at_ms=0)
    driver.give(Stop(), at_ms=10)
    assert len(of_kind(driver.give(load(), at_ms=20), BundleLoad)) == 1


def test_broker_without_bundles_reports_that_it_stops_before_it_ends() -> None:
    """Else it would be given bundles until it is missed: it has the least load of all."""
    driver = Driver()
    driver.give(load(bundles=0), at_ms=0)
    assert Stopped() not in driver.give(Stop(), at_ms=10)
    found = driver.give(load(bundles=0), at_ms=20)
    assert [message.is_draining for message in of_kind(found, BrokerLoad)] == [True]
    assert found[-1] == Stopped()


def test_broker_whose_load_is_not_read_while_it_stops_ends_in_time() -> None:
    driver = Driver()
    driver.give(load(bundles=0), at_ms=0)
    driver.give(Stop(), at_ms=10)
    assert Stopped() in driver.give(at_ms=10 + CONFIG.shutdown_timeout_ms)


class Watched(SignalsConfig):
    """Settings that note which of them are read."""

    __slots__ = ()
    read: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        Watched.read.add(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("interval_ms", [0, 20_000])
def test_settings_that_an_agent_reads_at_its_start_are_not_live(interval_ms: int) -> None:
    driver = Driver(signals=Watched(bundle_report_interval_ms=interval_ms))
    Watched.read.clear()
    driver.give(at_ms=0)
    for at_ms in (1, 5_000, 70_000):
        topics = TopicsRead(bundle=load().bundles[0], topics=("t",), traffic=np.ones((1, 4)))
        driver.give(load(), topics, at_ms=at_ms)
    names = {entry.name: key for key, entry in SETTINGS.items() if entry.section == "signals"}
    read = {names[name] for name in Watched.read if name in names}
    assert {"signals.report_check_ms", "signals.bundle_report_interval_ms"} <= read
    of_agents = read | {key for key in SETTINGS if key.startswith("agent.")}
    assert [key for key in sorted(of_agents) if SETTINGS[key].setting.dynamic] == []
    values, problems = checked_dynamic({"signals.report_check_ms": 1_000})
    assert not values
    assert "at a restart only" in problems[0].detail


def test_offered_load_is_reported_and_an_agent_without_it_sends_no_field() -> None:
    for offered, sent in ((None, False), (100.0, True), (np.float64(300.0), True)):
        checked = check_load(replace(load(), offered_msg_rate=offered))
        assert (checked.fault, checked.read is not None) == ("", True)
        (message,) = of_kind(Driver().give(checked.read, at_ms=1), BrokerLoad)
        assert message.offered_msg_rate == (offered if sent else NOT_REPORTED)
        assert (b"msgRateOffered" in format_message(message)[2]) == sent


@pytest.mark.parametrize("offered", [-1.0, np.nan, np.inf, -np.inf, 99.9, 1e19, "300", True, [300]])
def test_offered_load_that_cannot_be_is_left_out_and_the_rest_is_reported(offered: object) -> None:
    checked = check_load(replace(load(), offered_msg_rate=offered))
    assert checked.read is not None
    assert checked.read.offered_msg_rate is None
    assert checked.read.traffic.tolist() == load().traffic.tolist()
    assert "offered_msg_rate" in checked.fault
    assert "100 msg/s" in checked.fault


@pytest.mark.parametrize(("broker", "is_fit"), [("broker-1:8080", True), ("a\ud800", False)])
def test_identity_is_refused_where_no_report_could_carry_it(
    broker: str,
    is_fit: bool,  # noqa: FBT001 a case of the table
) -> None:
    identity = Identity(cluster="local", broker=broker, incarnation=f"{broker}/1")
    assert (identity_fault(identity) == "") == is_fit


def test_topics_that_a_report_has_no_room_for_are_left_out_and_counted() -> None:
    names = tuple(f"persistent://t/n/{n}" for n in range(10_005))
    bundle = "t/n/0x00000000_0xffffffff"
    traffic = np.arange(4.0 * len(names)).reshape(len(names), 4)
    checked = check_topics(TopicsRead(bundle=bundle, topics=names, traffic=traffic))
    assert checked.read is not None
    assert checked.read.topics == names[5:]
    assert checked.fault.startswith(f"topics() of {bundle} leaves out the 5 least busy topics")
