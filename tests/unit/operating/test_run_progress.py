"""How far a computation is: the words, and how often they come."""

import pytest

from jobs.operating.many_runs import RunProgress, progress_message


@pytest.mark.parametrize(
    ("share", "passed_s", "words"),
    [
        (0.0, 5.0, "0 of 8 runs, 0%"),
        (0.25, 30.0, "0 of 8 runs, 25%, about 1 min 30 s left"),
        (0.1, 100.0, "0 of 8 runs, 10%, about 15 min left"),
        (1.0, 30.0, "0 of 8 runs, 100%, about 0 ms left"),
    ],
)
def test_what_is_left_is_in_proportion_to_what_is_done(
    share: float, passed_s: float, words: str
) -> None:
    assert progress_message(0, 8, "runs", share, passed_s) == words


def test_line_comes_each_half_minute_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now_s = [0.0]
    progress = RunProgress("runs", 4, lambda: now_s[0])
    for second in range(0, 100, 10):
        now_s[0] = float(second)
        progress.update(1, second / 100)
    progress.clear()
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[2].partition(",")[0].strip() for line in lines] == [
        "30%",
        "60%",
        "90%",
    ]


def test_bar_is_drawn_over_itself_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    now_s = [0.0]
    progress = RunProgress("runs", 4, lambda: now_s[0])
    progress.update(0, 0.1)
    now_s[0] = 10.0
    progress.update(2, 0.5)
    progress.clear()
    drawn = capsys.readouterr().err
    assert drawn.startswith("\r[############............] 2 of 4 runs, 50%, about 10 s left")
    assert drawn.endswith("\r")
    assert "\n" not in drawn
