"""What a run knows of its fleet at each second."""

import json
from pathlib import Path

import pytest

from jobs.console import CommandError
from jobs.fleet.control import FleetClient
from jobs.local.fleet_watch import FleetWatch, crash_broker
from jobs.local.layout import Layout


def test_opening_that_a_sample_counts_is_known_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(root=tmp_path)
    layout.fleet.mkdir()
    layout.fleet_port.write_text("1")
    watch = FleetWatch(layout)
    opened = {"event": "opened", "bundle": "a/b/0", "broker": "broker-1", "at_ms": 5}
    row = {"broker": "broker-1", "life": "up", "load": 1.0, "bundle_count": 1}

    def brokers(_: FleetClient) -> dict[str, object]:
        with layout.fleet_events.open("a") as log:
            log.write(json.dumps(opened) + "\n")
        return {"at_ms": 6, "brokers": [row], "loads": {}, "bundles_open": 1}

    monkeypatch.setattr(FleetClient, "brokers", brokers)
    monkeypatch.setattr("jobs.local.fleet_watch.sample_of", lambda body: body)
    watch.look()
    assert [one.bundle for one in watch.opened] == ["a/b/0"]


@pytest.mark.parametrize(
    ("broker", "why", "step"),
    [
        ("broker-33", "the fleet has broker-1, broker-3", "did you mean broker-3?"),
        ("broker-3", "it has been dead since 2023-11-14 22:13:20 UTC", "--start"),
    ],
)
def test_broker_that_is_unknown_or_dead_is_not_said_to_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: str, why: str, step: str
) -> None:
    layout = Layout(root=tmp_path)
    layout.fleet.mkdir()
    layout.fleet_port.write_text("1")
    crash = {"broker": "broker-3", "killed_at_ms": 1_700_000_000_000, "bundles": []}
    layout.crashes.write_text(json.dumps({**crash, "last_report_ms": 1}) + "\n")
    lives = {"broker-1": "alive", "broker-3": "killed"}
    body = {"brokers": [{"broker": name, "life": life} for name, life in lives.items()]}
    monkeypatch.setattr(FleetClient, "brokers", lambda _: body)
    with pytest.raises(CommandError) as raised:
        crash_broker(layout, broker)
    assert raised.value.why == why
    assert step in raised.value.next_step
