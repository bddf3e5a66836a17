"""The tour states what an answer has said, waits within bounds, deletes nothing foreign."""

from pathlib import Path

import pytest

from jobs.console import CommandError, MisuseError
from jobs.local.layout import Layout
from jobs.tour.guide import Guide
from jobs.tour.verb import _make_room


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
