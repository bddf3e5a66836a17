"""Ctrl-C in a long computation: what is known by then is told, the shell learns 130."""

import pytest

from jobs.cli import main

SCENARIO = "conf/scenarios/g03-new-empty-broker.scenario"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["simulate", SCENARIO, "--strategy", "avg,none"], "0 of 0 runs are as expected"),
        (["simulate", SCENARIO, "--compare", "avg,none"], "0 of 0 runs"),
    ],
)
def test_ctrl_c_keeps_what_is_known_and_exits_130(
    words: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("jobs.verbs.simulate.run_scenario", interrupt)
    assert main([*words, "--workers", "1"]) == 130
    out, err = capsys.readouterr()
    assert told in out
    assert "stopped" in err
