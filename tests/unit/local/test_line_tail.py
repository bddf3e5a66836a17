"""Following a file of JSON lines that another process writes."""

from pathlib import Path

import pytest

from jobs.local.job_log import LineTail


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines.jsonl"


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_line_tail_of_a_file_not_there_yet_waits_for_it(path: Path) -> None:
    tail = LineTail(path)
    assert tail.read() == []
    _append(path, '{"a": 1}\n')
    assert tail.read() == [{"a": 1}]
    assert tail.read() == []


def test_line_tail_takes_a_line_only_when_it_is_whole(path: Path) -> None:
    tail = LineTail(path)
    _append(path, '{"a": 1}\n{"b"')
    assert tail.read() == [{"a": 1}]
    _append(path, ": 2}\n")
    assert tail.read() == [{"b": 2}]


def test_line_tail_from_end_skips_what_was_there(path: Path) -> None:
    _append(path, '{"a": 1}\n')
    tail = LineTail(path, from_end=True)
    _append(path, '{"b": 2}\n')
    assert tail.read() == [{"b": 2}]


def test_line_tail_cut_off_and_foreign_lines_are_counted_not_raised(path: Path) -> None:
    tail = LineTail(path)
    _append(path, '{"a": \n[1]\n\n{"b": 2}\n')
    assert tail.read() == [{"b": 2}]
    assert tail.unreadable == 2


def test_line_tail_of_a_file_begun_anew_starts_over(path: Path) -> None:
    tail = LineTail(path)
    _append(path, '{"a": 1}\n{"a": 2}\n')
    tail.read()
    path.write_text('{"b": 1}\n')
    assert tail.read() == [{"b": 1}]
