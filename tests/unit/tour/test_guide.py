"""The tour states what an answer has said, waits within bounds, deletes nothing foreign."""

from pathlib import Path
from unittest import mock

import pytest

from jobs.adapters.processes.prometheus import Prometheus
from jobs.console import CommandError, MisuseError
from jobs.local.layout import Layout
from jobs.tour.alert_words import alert_lines, state_of
from jobs.tour.guide import Guide
from jobs.tour.verb import _make_room, _program


def guide(tmp_path: Path, *, is_running: bool = True, patience_s: float = 0.0) -> Guide:
    return Guide(Layout(root=tmp_path), lambda: is_running, patience_s)


def test_statement_that_does_not_hold_ends_the_tour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guide(tmp_path).hold("bundles have owners", "60 Owned", r"\d+ Owned")
    assert "✓ bundles have owners" in capsys.readouterr().out
    with pytest.raises(CommandError, match="was to be true, and is not: bundles are free"):
        guide(tmp_path).hold("bundles are free", "60 Owned", r"\d+ Free")


def test_tour_waits_as_long_as_it_is_told(tmp_path: Path) -> None:
    assert guide(tmp_path).wait("three", lambda: 3) == 3
    with pytest.raises(CommandError, match="in vain for a miracle"):
        guide(tmp_path).wait("a miracle", lambda: None)
    with pytest.raises(CommandError, match="the run ended while"):
        guide(tmp_path, is_running=False, patience_s=60).wait("a miracle", lambda: None)


def test_answers_are_shown_as_the_verb_gave_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = guide(tmp_path).ask("doctor", "--no-kafka", shown=2, codes=(1,))
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "$ ballast doctor --no-kafka"
    assert shown[1].strip() == text.splitlines()[0]
    assert shown[3].strip().startswith("... and ")
    with pytest.raises(CommandError, match="ended with 1"):
        guide(tmp_path).ask("status")


def test_folder_that_is_not_of_a_tour_is_left_alone(tmp_path: Path) -> None:
    root = tmp_path / "tour"
    _make_room(Layout(root=root))
    (root / "tables").mkdir()
    _make_room(Layout(root=root))
    assert not (root / "tables").exists()
    foreign = tmp_path / "home"
    foreign.mkdir()
    (foreign / "letter.txt").touch()
    with pytest.raises(MisuseError, match="not the folder of a tour"):
        _make_room(Layout(root=foreign))
    assert (foreign / "letter.txt").exists()


ALERTS = [
    {
        "labels": {"alertname": name, "severity": "warning", "broker": broker},
        "annotations": {"summary": f"{broker} is silent.", "runbook_url": "docs/runbook.md#x"},
        "state": state,
    }
    for name, broker, state in (
        ("BallastImbalance", "b1", "pending"),
        ("BallastBrokerDown", "b2", "firing"),
        ("BallastBrokerDown", "b3", "pending"),
    )
]


def test_state_of_an_alert_is_that_of_the_broker_it_is_about() -> None:
    assert state_of(ALERTS, "BallastBrokerDown") == "firing"
    assert state_of(ALERTS, "BallastBrokerDown", "b3") == "pending"
    assert state_of(ALERTS, "BallastBrokerDown", "b1") == ""
    assert state_of([], "BallastImbalance") == ""


def test_alerts_are_shown_with_their_runbook_section_and_those_that_fire_first() -> None:
    lines = list(alert_lines(ALERTS))
    assert lines[0] == "firing   warning   BallastBrokerDown"
    assert lines[1].strip() == "b2 is silent.  docs/runbook.md#x"
    assert [line.split()[0] for line in lines[::2]] == ["firing", "pending", "pending"]
    assert list(alert_lines([])) == ["no alert"]


def test_statement_about_an_alert_waits_for_it_and_is_left_out_without_prometheus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = guide(tmp_path)
    made.hold_alert("b2 is reported", "BallastBrokerDown", "firing", about="b2")
    said = capsys.readouterr().out
    assert "✓" not in said
    assert "left out, because no Prometheus is here: b2 is reported" in said
    made.prometheus = mock.Mock(spec=Prometheus, url="http://p", **{"alerts.return_value": ALERTS})
    made.hold_alert("b2 is reported", "BallastBrokerDown", "firing", about="b2")
    assert "✓ b2 is reported" in capsys.readouterr().out
    with pytest.raises(CommandError, match="in vain for BallastBrokerDown to be over"):
        made.hold_alert("it is over", "BallastBrokerDown", "", about="b2")


def test_prometheus_is_the_named_one_and_where_none_is_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = tmp_path / "prometheus"
    with pytest.raises(MisuseError, match="is no program"):
        _program(named)
    named.write_text("#!/bin/sh\n")
    named.chmod(0o755)
    assert _program(named) == named
    none = CommandError("prometheus can't be had", why="no apt-get", next_step="install it")
    with mock.patch("jobs.tour.verb.have_tool", side_effect=none):
        assert _program(None) is None
    assert "What alerts say is left out" in capsys.readouterr().out
