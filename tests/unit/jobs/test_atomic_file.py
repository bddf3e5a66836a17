"""Files are replaced whole, or left as they were."""

from pathlib import Path

import pytest

from jobs.atomic_file import atomic_write


def test_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "port"
    for content in ("8080\n", b"8081\n", "größer\n"):
        atomic_write(path, content)
        wanted = content if isinstance(content, bytes) else content.encode()
        assert path.read_bytes() == wanted
    atomic_write(path, "#!/bin/sh\n", mode=0o700)
    assert path.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == [path]


def test_file_that_cannot_be_replaced_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "port"
    (folder / "kept").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        atomic_write(folder, "8080\n")
    assert list(tmp_path.iterdir()) == [folder]
