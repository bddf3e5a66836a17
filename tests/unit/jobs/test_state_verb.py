"""`ballast state rebuild`: sets the checkpoint aside, and only while no job uses it."""

import json
from pathlib import Path

import pytest

from jobs.adapters.spark.checkpoint import hold_folder, is_restored, unmark_restored
from jobs.cli import main


def state_dir(root: Path) -> Path:
    (root / "checkpoints" / "epoch-3").mkdir(parents=True)
    (root / "job.json").write_text("{}")
    return root


def test_rebuild_moves_checkpoint_and_manifest_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = state_dir(tmp_path)
    assert main(["state", "rebuild", "--state-dir", str(folder), "--yes", "--json"]) == 0
    moved = json.loads(capsys.readouterr().out)["set_aside"]
    assert [Path(path).name for path in moved] == ["job.json", "checkpoints"]
    assert all(Path(path).exists() for path in moved)
    assert not (folder / "checkpoints").exists()


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_rebuild_of_restored_tables_is_noted_for_the_next_start(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    folder = tmp_path / "made-for-it" if not words else state_dir(tmp_path)
    command = ["state", "rebuild", "--restored", "--state-dir", str(folder), "--yes", *words]
    assert main(command) == 0
    assert is_restored(folder) is (not words)
    unmark_restored(folder)
    assert not is_restored(folder)


def test_rebuild_dry_run_changes_nothing(tmp_path: Path) -> None:
    folder = state_dir(tmp_path)
    assert main(["state", "rebuild", "--state-dir", str(folder), "--dry-run"]) == 0
    assert (folder / "job.json").exists()


def test_rebuild_without_anybody_to_ask_needs_yes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = state_dir(tmp_path)
    monkeypatch.setattr("sys.stdin", (tmp_path / "job.json").open())
    assert main(["state", "rebuild", "--state-dir", str(folder)]) == 2
    assert "add --yes" in capsys.readouterr().err
    assert (folder / "checkpoints").exists()


def test_rebuild_is_refused_while_a_job_holds_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = state_dir(tmp_path)
    with hold_folder(folder):
        assert main(["state", "rebuild", "--state-dir", str(folder), "--yes"]) == 1
    assert "stop that job first" in capsys.readouterr().err
    assert (folder / "checkpoints").exists()


def test_rebuild_of_a_folder_that_is_not_there_is_misuse(tmp_path: Path) -> None:
    assert main(["state", "rebuild", "--state-dir", str(tmp_path / "nowhere"), "--yes"]) == 2


def test_rebuild_without_a_checkpoint_has_nothing_to_do(tmp_path: Path) -> None:
    assert main(["state", "rebuild", "--state-dir", str(tmp_path)]) == 0
