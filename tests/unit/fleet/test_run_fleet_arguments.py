"""What the fleet makes of its command line and keeps between its starts."""

from pathlib import Path

import pytest

from jobs.console import CommandError, MisuseError
from jobs.fleet.control import EventLog
from jobs.run_fleet import model_of, parse_namespace, parser, settings_of
from lbcore.model.hashing import HashFunction
from lbcore.sim.load.load import LoadShape, NamespaceLoad
from lbcore.sim.summary import BundleOpened
from tests.support.processes.agent_talk import read_events, read_opened

REQUIRED = ["--bootstrap", "k:1", "--state-dir", "s", "--namespace", "t/n:murmur3_32:8"]


def test_settings_follow_the_command_line() -> None:
    words = [*REQUIRED, "--report-interval-ms", "2000", "--heartbeat-interval-ms", "700"]
    words += ["--callback-ms", "10-20", "--capacity", "broker-2=0.5", "--speed", "30"]
    words += ["--bundle-report-interval-ms", "60000"]
    made = settings_of(parser().parse_args(words))
    assert (made.signals.report_check_ms, made.signals.report_max_interval_ms) == (2000, 1999)
    assert made.signals.bundle_report_interval_ms == 60_000
    assert (made.agent.heartbeat_interval_ms, made.callback_ms) == (700, (10, 20))
    assert (made.capacities, made.speed) == ({"broker-2": 0.5}, 30.0)


def test_model_follows_the_command_line() -> None:
    words = [*REQUIRED, "--load", "daily-wave", "--brokers", "3", "--seed", "9"]
    made = model_of(parser().parse_args(words))
    assert (made.profile.shape, made.profile.brokers, made.profile.seed) == (
        LoadShape.DAILY_WAVE,
        3,
        9,
    )
    expected = NamespaceLoad(name="t/n", hash_function=HashFunction.MURMUR3_32, bundles=8)
    assert made.namespaces == (expected,)


@pytest.mark.parametrize("text", ["t/n", "t/n:crc32", "t/n:md5:8", "t/n:crc32:many", "a:b:c:d"])
def test_namespace_that_is_malformed_says_how_it_is_written(text: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_namespace(text)
    assert "TENANT/NS:HASH:BUNDLES" in caught.value.next_step


def test_capacity_that_is_malformed_says_how_it_is_written() -> None:
    with pytest.raises(CommandError) as caught:
        settings_of(parser().parse_args([*REQUIRED, "--capacity", "broker-2"]))
    assert "BROKER=X" in caught.value.next_step


@pytest.mark.parametrize("text", ["fast", "300-50", "-5", "1-2-3", ""])
def test_time_of_callbacks_that_is_malformed_says_how_it_is_written(text: str) -> None:
    with pytest.raises(MisuseError) as caught:
        settings_of(parser().parse_args([*REQUIRED, f"--callback-ms={text}"]))
    assert "MIN-MAX" in caught.value.next_step


def test_lease_that_heartbeats_cannot_carry_is_refused() -> None:
    words = [*REQUIRED, "--agent-lease-ms", "4000"]
    assert settings_of(parser().parse_args(words)).agent.agent_lease_ms == 4000
    with pytest.raises(MisuseError, match="--agent-lease-ms 4000"):
        settings_of(parser().parse_args([*words, "--fencing", "lease"]))


def test_event_log_is_appended_and_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "events.jsonl"
    opening = {"at_ms": 5, "event": "opened", "broker": "b", "bundle": "t/n/0x0"}
    for _ in range(2):
        with EventLog(path) as log:
            log.note({"at_ms": 1, "event": "broker alive", "broker": "b"})
            log.note(opening)
    with path.open("a") as file:
        file.write('{"at_ms": 6, "eve')
    assert len(read_events(path)) == 4
    assert read_opened(path) == [BundleOpened(bundle="t/n/0x0", broker="b", at_ms=5)] * 2
