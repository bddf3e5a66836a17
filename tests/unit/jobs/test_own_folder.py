"""Folders of one process are gone with it, or with the next one of its kind."""

import subprocess
import sys
from pathlib import Path

from jobs.adapters.processes.own_folder import own_folder

_MAKES_ONE = (
    "import sys; from pathlib import Path\n"
    "from jobs.adapters.processes.own_folder import own_folder\n"
    "folder = own_folder('kind', Path(sys.argv[1]))\n"
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
    assert {path.name for path in tmp_path.iterdir()} == expected
    living.communicate()
    next_one.communicate()


def test_two_of_one_process_live_side_by_side(tmp_path: Path) -> None:
    first = own_folder("kind", tmp_path / "made at need")
    second = own_folder("kind", tmp_path / "made at need")
    assert first != second
    assert first.exists()
