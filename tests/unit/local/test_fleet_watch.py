"""What a run knows of its fleet at each second."""

import json
from pathlib import Path

import pytest

from jobs.fleet.control import FleetClient
from jobs.local.fleet_watch import FleetWatch
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
