"""Folders of one process are gone with it, or with the next one of its kind."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.adapters.processes.paths import private_directory

_MAKES_ONE = (
    "import sys; from pathlib import Path\n"
    "from jobs.adapters.processes.paths import private_directory\n"
    "folder = private_directory('kind', Path(sys.argv[1]))\n"
    "(folder / 'deep').mkdir()\n"
    "(folder / 'deep' / 'file').write_text('x')\n"
    "print(folder, flush=True)\n"
    "sys.stdin.read()\n"
)


def _process(above: Path) -> tuple["subprocess.Popen[str]", Path]:
    running = subprocess.Popen(
        [sys.executable, "-c", _MAKES_ONE, str(above)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    return running, Path(running.stdout.readline().strip())


def test_folder_goes_when_its_process_ends_in_order(tmp_path: Path) -> None:
    running, folder = _process(tmp_path)
    assert (folder / "deep" / "file").exists()
    running.communicate()
    assert not list(tmp_path.iterdir())


def test_folder_of_a_killed_process_goes_with_the_next_one_and_no_other(tmp_path: Path) -> None:
    living, kept = _process(tmp_path)
    killed, left = _process(tmp_path)
    killed.kill()
    killed.communicate()
    assert left.exists()
    (tmp_path / "kind-of-somebody-else").mkdir()
    (tmp_path / "another-kind").mkdir()
    next_one, own = _process(tmp_path)
    expected = {kept.name, own.name, "kind-of-somebody-else", "another-kind"}
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == expected
    living.communicate()
    next_one.communicate()


def test_two_of_one_process_live_side_by_side(tmp_path: Path) -> None:
    first = private_directory("kind", tmp_path / "made at need")
    second = private_directory("kind", tmp_path / "made at need")
    assert first != second
    assert first.exists()


def test_folder_that_was_removed_and_then_written_again_goes_as_well(tmp_path: Path) -> None:
    """Spark's state store uploads a snapshot up to a minute after the query has ended."""
    ended, again = _process(tmp_path)
    killed, left = _process(tmp_path)
    for folder in (again, left):
        shutil.rmtree(folder)
        (folder / "state").mkdir(parents=True)
    ended.communicate()
    killed.kill()
    killed.communicate()
    assert not again.exists()
    assert left.exists()
    private_directory("kind", tmp_path)
    assert not left.exists()


def test_lock_stays_with_a_folder_that_could_not_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its lock no process would ever take it for a dead one's."""
    killed, left = _process(tmp_path)
    killed.kill()
    killed.communicate()
    remove = shutil.rmtree

    def remove_while_written(path: Path, **how: bool) -> None:
        remove(path, **how)
        path.mkdir()

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", remove_while_written)
        private_directory("kind", tmp_path)
    assert left.exists()
    private_directory("kind", tmp_path)
    assert not left.exists()
