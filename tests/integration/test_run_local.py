"""`ballast run-local` whole: crashes on the way, an end by time, by Ctrl-C and by force, twice."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

from tests.support.processes.programs import json_lines

ROOT = Path(__file__).resolve().parents[2]
_START_S = 400.0
_STOP_S = 40.0
"""It takes 2 s on a quiet machine; whoever is asked in vain is killed after 4 s."""

_SIZE = ("--brokers", "4", "--bundles", "24")
_ODD_NAME = "-é 🙂 q'u\"o %x #a"


class _Run:
    """One run in a process of its own; its status lines as they come."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self.out = folder.with_name(f"{folder.name}-{time.monotonic_ns()}.jsonl")
        command = [sys.executable, "-m", "jobs.cli", "run-local", "--headless", "--conf", "test"]
        with self.out.open("w") as out, self.out.with_suffix(".err").open("w") as err:
            self.process = subprocess.Popen(
                [*command, "--state-dir", str(folder), *words], cwd=ROOT, stdout=out, stderr=err
            )

    def lines(self) -> list[Mapping[str, Any]]:
        return json_lines(self.out)

    def wait_for(self, what: str, condition: Callable[[Mapping[str, Any]], bool]) -> None:
        deadline_s = time.monotonic() + _START_S
        while not any(condition(line) for line in self.lines()[-1:]):
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline_s, f"{what} never came true; {self.said()}"
            time.sleep(0.2)

    def said(self) -> str:
        last = self.lines()[-1:]
        return self.out.with_suffix(".err").read_text()[-2000:] + f"\nlast line: {last}"

    def events(self) -> list[str]:
        return [event for line in self.lines() for event in line["events"]]

    def processes(self) -> dict[int, str]:
        """Every process that names the run's folder, but for the run itself."""
        running = psutil.process_iter(["pid", "cmdline"])
        commands = {one.pid: " ".join(one.info["cmdline"] or ()) for one in running}
        mine = {pid: command for pid, command in commands.items() if str(self.folder) in command}
        return {pid: command for pid, command in mine.items() if pid != self.process.pid}

    def pid_of(self, words: str) -> int:
        found = [pid for pid, command in self.processes().items() if words in command]
        return max(found)  # the tether has the words too, and is older


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., _Run]]:
    runs: list[_Run] = []

    def make(*words: str, parent: str = "var") -> _Run:
        (tmp_path / parent).mkdir(exist_ok=True)
        runs.append(_Run(tmp_path / parent / "local", *words))
        return runs[-1]

    yield make
    for run in runs:
        if run.process.poll() is None:
            run.process.terminate()
            run.process.wait(_STOP_S)


def _is_open(line: Mapping[str, Any]) -> bool:
    return bool(line["bundles_open"] == line["bundles"] > 0 and line["phase"] == "running")


def _gone(run: _Run) -> bool:
    deadline_s = time.monotonic() + _STOP_S
    while run.processes() and time.monotonic() < deadline_s:
        time.sleep(0.2)
    return not run.processes()


def _is_rescued(line: Mapping[str, Any]) -> bool:
    """All bundles are open, though a broker is dead."""
    states = {row["name"]: row["state"] for row in line["brokers"]}
    return states.get("broker-2") == "killed" and _is_open(line)


def test_run_local_in_an_oddly_named_folder_survives_crashes(
    start: Callable[..., _Run], tmp_path: Path
) -> None:
    summary_path = tmp_path / _ODD_NAME / "summary.json"
    first = start(*_SIZE, "--summary", str(summary_path), parent=_ODD_NAME)
    first.wait_for("all bundles open", _is_open)
    told = first.out.with_suffix(".err").read_text()
    for name in ("Kafka", "lookup service", "simulated brokers"):
        assert 0 <= told.find(f"{name}: starting") < told.find(f"{name}: ready after")
    second = start(*_SIZE, parent=_ODD_NAME)
    assert second.process.wait(_START_S) == 1
    assert "another run is using" in second.said()
    batches = first.lines()[-1]["batches"]
    os.kill(first.pid_of("jobs.balance_cluster"), signal.SIGKILL)
    first.wait_for("the job works again", lambda line: line["batches"] > batches + 2)
    _ballast("kill-broker", "broker-2", "--state-dir", str(first.folder))
    first.wait_for("broker-2's bundles are open elsewhere", _is_rescued)
    _ask_about(first.folder)
    _end(first)
    _check_summary(json.loads(summary_path.read_text()))
    assert any(event.endswith("balance_cluster was started again") for event in first.events())
    _check_folder(tmp_path, first.folder)


@pytest.mark.long
def test_second_run_goes_on_with_the_state_of_the_first(start: Callable[..., _Run]) -> None:
    first = start(*_SIZE, parent=_ODD_NAME)
    first.wait_for("all bundles open", _is_open)
    _end(first)
    second = start("--for", "8", parent=_ODD_NAME)
    assert second.process.wait(_START_S) == 0, second.said()
    assert _gone(second)
    assert second.lines()[-1]["bundles"] == 24
    events = DeltaTable(str(first.folder / "tables" / "ownership_events")).to_pyarrow_table()
    versions = list(
        zip(*(events[name].to_pylist() for name in ("bundle", "version_id")), strict=True)
    )
    assert len(set(versions)) == len(versions), "the second run forgot what the first decided"


@pytest.mark.long
def test_commands_of_the_tours_page_work_on_a_run(start: Callable[..., _Run]) -> None:
    run = start(*_SIZE)
    run.wait_for("all bundles open", _is_open)
    blocks = re.findall(
        r"^```bash\n(.*?)^```$", (ROOT / "docs" / "local.md").read_text(), re.MULTILINE | re.DOTALL
    )
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) > 15
    warns = "[ $? = 1 ] || "  # status ends with 1 while something is wrong, as after the crash
    # a broker that came back is being filled: the bundle may be on its way there
    again = {line: f"{{ sleep 30; {line}; }} || " for line in lines if "bundle unload" in line}
    again["ballast status"] = warns
    checked = (f"{line} || {again.get(line, '')}echo FAILED $? >&2" for line in lines)
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [shutil.which("bash") or "bash", "-xc", "\n".join(checked)],
        cwd=run.folder.parents[1],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "FAILED" not in done.stderr, done.stderr + done.stdout
    assert "broker-2 found dead" in done.stdout
    assert done.stdout.count("its parent was split") <= 1


def _ballast(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "jobs.cli", *words], cwd=ROOT, check=True)


def _end(run: _Run) -> None:
    """Ctrl-C: all of it ends soon and leaves no process."""
    began_s = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(_STOP_S) == 0, run.said()
    assert time.monotonic() - began_s < _STOP_S
    assert run.processes() == {}


def _check_summary(summary: Mapping[str, Any]) -> None:
    lookups = summary["lookups"]
    assert (lookups["wrong"], lookups["pending"]) == (0, 0)
    assert lookups["right"] > 100
    (crash,) = summary["crashes"]
    assert (crash["broker"], crash["unserved"]) == ("broker-2", [])
    assert crash["bundles"] > 0
    assert crash["all_served_again_ms"] >= crash["first_served_again_ms"] > 0
    assert summary["restarts"]["balance_cluster"] == 1
    assert summary["batches"] > 5
    assert summary["reports"]["accepted"] > 0
    assert summary["reports"]["rejected"] == 0
    assert summary["imbalance"]["first_30_s"]["max_over_mean"] >= 1.0
    assert summary["decision_to_lookup_ms"]["count"] > 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["x" * 200, "a:b {x} $x*?;&"])
def test_run_local_keeps_its_state_in_the_folder_that_was_named(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name / "local"
    folder.parent.mkdir()
    for _ in range(2):
        run = _Run(folder, *_SIZE)
        try:
            run.wait_for("all bundles open", _is_open)
            _ask_about(folder)
        finally:
            run.process.terminate()
            run.process.wait(_STOP_S)
    _check_folder(tmp_path, folder)


def _ask_about(folder: Path) -> None:
    """Ask the run in this folder by two verbs that read its tables."""
    _ballast("sql", "who-has-what", "--state-dir", str(folder))
    _ballast("explain", "cluster", "--state-dir", str(folder))


def _check_folder(parent: Path, folder: Path) -> None:
    """Check that a run wrote to the folder that was named, and to none beside it."""
    assert os.listdir(parent) == [folder.parent.name]  # noqa: PTH208 (names as they are)
    assert {"kafka", "tables", "job", "logs"} <= {path.name for path in folder.iterdir()}
    assert (folder / "job" / "checkpoints" / "epoch-0" / "commits").is_dir()


@pytest.mark.long
def test_run_local_killed_while_starting_leaves_no_process(start: Callable[..., _Run]) -> None:
    run = start(*_SIZE)
    deadline_s = time.monotonic() + _START_S
    while not run.processes():
        assert time.monotonic() < deadline_s, run.said()
        time.sleep(0.1)
    while not any("jobs.run_fleet" in command for command in run.processes().values()):
        assert time.monotonic() < deadline_s, run.said()
        time.sleep(0.1)
    run.process.kill()
    run.process.wait(10)
    assert _gone(run), run.processes()
