"""The lookup service's workers: how long they may take to stop."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs import serve_lookup
from jobs.adapters.processes.processes import ProcessSpec, Supervisor
from jobs.cli import main
from jobs.console import Exit
from tests.support import Capsys


class RecordingSupervisor(Supervisor):
    """A supervisor that records the specs and starts nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.specs: list[ProcessSpec] = []

    def start(self, spec: ProcessSpec) -> None:
        self.specs.append(spec)


def stop_at_once(stop: Callable[[], object]) -> None:
    stop()


def test_worker_is_not_killed_while_it_still_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = RecordingSupervisor()
    monkeypatch.setattr(serve_lookup, "Supervisor", lambda: supervisor)
    monkeypatch.setattr(serve_lookup, "on_signals", stop_at_once)
    monkeypatch.setattr(serve_lookup, "log_json_lines", lambda **_: None)  # it is the process's
    monkeypatch.setattr(serve_lookup, "private_directory", lambda _: tmp_path)
    settings = ("--set", "lookup.stop_delay_ms=30000", "--workers=2", "--port=0")
    main(["serve", f"--tables={tmp_path}", "--cluster=local", *settings])
    assert len(supervisor.specs) == 2
    assert all(spec.grace_ms > 30_000 for spec in supervisor.specs)


@pytest.mark.parametrize(
    ("word", "setting"),
    [
        ("--port=70000", "lookup.port"),
        ("--poll-ms=0", "lookup.poll_interval_ms"),
        ("--wait-ms=-1", "lookup.wait_timeout_ms"),
        ("--workers=0", "lookup.workers"),
    ],
)
def test_short_option_out_of_its_settings_range_is_misuse(
    word: str, setting: str, tmp_path: Path, capsys: Capsys
) -> None:
    assert main(["serve", f"--tables={tmp_path}", "--cluster=local", word]) == Exit.MISUSE
    assert f"{setting}: " in capsys.readouterr().err
