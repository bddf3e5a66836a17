"""`ballast top`: what keys do, what fits, and that the terminal is left as it was found."""

import argparse
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from rich.console import Console

from jobs.cli import main
from jobs.console import CommandError
from jobs.operating.keyboard import parse_keys
from jobs.operating.sources import ServiceSource, TablesSource, bundle_lines
from jobs.operating.stack_words import add_stack_arguments, whereabouts
from jobs.operating.top_view import (
    ASK_DRAIN,
    BUNDLES,
    DRAIN,
    EXPLAIN,
    HELP,
    Shown,
    TopState,
    after_key,
    ordered,
    render,
)
from tests.support.worlds.explained_world import write_tables
from tests.support.worlds.ruled_world import running, skewed
from tests.support.worlds.world import World

ROOT = Path(__file__).resolve().parents[3]
NAMES = ["b1", "b2", "b3"]
_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def world() -> World:
    """A cluster whose load differs by broker."""
    made = running(3, 12)
    skewed(made)
    made.run(70_000)
    return made


@pytest.fixture(scope="module")
def tables(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its tables, as if it had ended now."""
    root = tmp_path_factory.mktemp("top") / "tables"
    write_tables(world, root, time.time_ns() // 1_000_000)
    return root


@pytest.fixture(scope="module")
def overview(tables: Path) -> Any:
    """What is drawn."""
    with mock.patch("sys.stdout", new=io.StringIO()) as said:
        assert main(["top", "--json", "--tables", str(tables)]) == 0
    return json.loads(said.getvalue())


def drawn(state: TopState, shown: Shown, *, height: int = 30) -> str:
    console = Console(width=110, height=height, file=io.StringIO(), legacy_windows=False)
    console.print(render(state, shown, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def keyed(*keys: str) -> TopState:
    state = TopState()
    for key in keys:
        state = after_key(state, key, NAMES)
    return state


def test_keys_are_told_apart() -> None:
    assert list(parse_keys("s\x1b[A\x1bOB\r\x1b[5~q\x1b")) == [
        "s", "up", "down", "enter", "q", "escape",
    ]  # fmt: skip


def test_keys_select_sort_explain_and_quit() -> None:
    assert keyed("down", "j").selected == "b3"
    assert keyed("down", "j", "down", "k").selected == "b2"
    assert keyed("s").order == "msg/s"
    assert keyed("s", "s", "s", "s", "s").order == "usage"
    assert (keyed("down", "e").panel, keyed("down", "e").about) == (EXPLAIN, "b2")
    assert keyed("down", "b").panel == BUNDLES
    assert keyed("enter", "escape") == TopState(selected="b1", about="b1")
    assert keyed("?").panel == HELP
    assert keyed("?", "?") == keyed("?", "escape") == TopState()
    assert not keyed("escape").is_over
    assert keyed("q").is_over
    assert after_key(TopState(), "enter", []) == TopState()


def test_filter_is_typed_kept_or_taken_back() -> None:
    assert keyed("/", "b", "q", "\x7f", "2").wanted == "b2"
    assert not keyed("/", "q").is_over
    assert keyed("/", "b", "2", "enter") == TopState(wanted="b2")
    assert keyed("/", "b", "2", "escape") == TopState()
    assert keyed("/", "b", "enter", "?", "escape").wanted == "b"
    assert keyed("/", "b", "enter", "escape").wanted == ""


def test_drain_is_asked_for_and_only_y_is_a_yes() -> None:
    assert keyed("down", "D").panel == ASK_DRAIN
    assert (keyed("down", "D", "y").panel, keyed("down", "D", "y").about) == (DRAIN, "b2")
    for other in ("n", "enter", "escape", "q", "Y", "D"):
        assert keyed("D", other).panel == ""
        assert not keyed("D", other).is_over


def test_filter_help_and_question_are_drawn_and_fit(overview: Any) -> None:
    shown = Shown(overview=overview)
    names = [row["broker"] for row in overview["status"]["broker_rows"]]
    only = drawn(TopState(wanted=names[1]), shown)
    assert [name in only for name in names] == [False, True, False]
    assert "Esc show all" in only
    assert "/brok▏" in drawn(TopState(wanted="brok", is_typing=True), shown)
    assert "no broker" in drawn(TopState(wanted="nobody"), shown)
    assert "▶" not in drawn(TopState(wanted="nobody"), shown)
    assert f"All bundles of {names[0]}" in drawn(TopState(panel=ASK_DRAIN, about=names[0]), shown)
    for height in (20, 30):
        text = drawn(TopState(panel=HELP), shown, height=height)
        assert "sort by the next of" in text
        assert len(text.splitlines()) <= height


def test_bundles_of_a_broker_are_listed_busiest_first(tables: Path, overview: Any) -> None:
    parser = argparse.ArgumentParser()
    add_stack_arguments(parser)
    source = TablesSource(whereabouts(parser.parse_args(["--tables", str(tables)])))
    broker = overview["status"]["broker_rows"][0]["broker"]
    lines = bundle_lines(source.bundles(broker))
    rates = [float(line.split()[0].replace(",", "")) for line in lines]
    assert rates == sorted(rates, reverse=True)
    assert len(rates) == overview["status"]["broker_rows"][0]["bundles"]
    assert "no load is known" in bundle_lines(source.bundles("nobody"))[0]


def test_view_shows_brokers_in_order_and_fits(overview: Any) -> None:
    shown = Shown(overview=overview)
    text = drawn(TopState(), shown)
    rows = overview["status"]["broker_rows"]
    hot = max(rows, key=lambda row: row["usage"])
    assert re.search(rf"▶ {hot['broker']} .*{hot['usage']:.0%}.*█", text)
    assert "last decisions" in text
    assert "imbalance" in text
    names = [row["broker"] for row in ordered(overview, "name")]
    assert names == sorted(names)
    for height in (12, 20, 30, 60):
        assert len(drawn(TopState(), shown, height=height).splitlines()) <= height


def test_view_scrolls_to_the_selected_broker(overview: Any) -> None:
    many = json.loads(json.dumps(overview))
    row = many["status"]["broker_rows"][0]
    many["status"]["broker_rows"] = [{**row, "broker": f"broker-{n:03}"} for n in range(200)]
    text = drawn(TopState(order="name", selected="broker-150"), Shown(overview=many))
    assert "▶ broker-150" in text
    assert "broker-001" not in text


def test_trouble_is_shown_over_what_is_known(overview: Any) -> None:
    text = drawn(TopState(), Shown(overview=overview, trouble="the disk is gone"))
    assert "old: the disk is gone" in text
    assert "▶" in text


def test_service_that_is_away_says_what_to_do() -> None:
    with pytest.raises(CommandError, match="can't be asked"):
        ServiceSource("http://127.0.0.1:9").overview()
    assert main(["top", "--url", "nonsense"]) == 2


def test_without_a_terminal_it_says_what_else_there_is(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mock.patch.object(TablesSource, "overview", return_value={}):
        assert main(["top", "--tables", str(tables)]) == 2
    assert "ballast top --once" in capsys.readouterr().err


def test_one_look_is_plain_text_that_names_every_broker_and_ends(
    tables: Path, capsys: pytest.CaptureFixture[str], overview: Any
) -> None:
    assert main(["top", "--once", "--tables", str(tables)]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "q quit" not in text
    assert "last decisions" in text
    many = json.loads(json.dumps(overview))
    row = many["status"]["broker_rows"][0]
    many["status"]["broker_rows"] = [{**row, "broker": f"broker-{n:03}"} for n in range(200)]
    many["status"]["alarms"] = [f"alarm {n}" for n in range(9)]
    many["status"]["warnings"] = ["a warning"]
    with mock.patch.object(TablesSource, "overview", return_value=many):
        assert main(["top", "--once", "--tables", str(tables)]) == 0
    text = capsys.readouterr().out
    assert [f"broker-{n:03}" in text for n in (0, 100, 199)] == [True] * 3
    assert "warning a warning" in text


class Terminal:
    """`ballast top` in a terminal of its own."""

    def __init__(self, tables: Path) -> None:
        self.ours, theirs = pty.openpty()
        self.theirs = theirs
        self.before = termios.tcgetattr(theirs)
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "110", "LINES": "30"}
        environment["BALLAST_STATE_DIR"] = str(tables.parent / "no-run")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jobs.cli", "top", "--tables", str(tables), "--every", "1s"],
            cwd=ROOT,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.set_blocking(self.ours, False)
        self.text = ""

    def wait(self, pattern: str) -> None:
        """Until this stands on the screen, or stood there since the last wait."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < deadline_s, f"{pattern!r} is not in {self.text[-3000:]!r}"
            self.read()
            time.sleep(0.02)
        self.text = self.text[found.end() :]

    def read(self) -> None:
        try:
            self.text += os.read(self.ours, 1 << 16).decode("utf-8", "replace")
        except (BlockingIOError, OSError):
            return

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def end(self) -> int:
        """Wait for the end; the exit code."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline_s
            self.read()
            time.sleep(0.02)
        self.read()
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal(tables: Path) -> Iterator[Terminal]:
    """It has drawn once, on the alternate screen, without a cursor."""
    made = Terminal(tables)
    made.wait(r"\x1b\[\?1049h")
    made.wait("last decisions")
    yield made
    made.close()


def is_restored(terminal: Terminal) -> bool:
    left = terminal.text.rindex("\x1b[?1049l")
    return (
        termios.tcgetattr(terminal.theirs) == terminal.before
        and "\x1b[?25h" in terminal.text
        and "\x1b[?1049h" not in terminal.text[left:]
    )


def test_real_terminal_takes_keys_and_is_left_as_it_was(terminal: Terminal) -> None:
    assert termios.tcgetattr(terminal.theirs) != terminal.before
    terminal.press("s")
    terminal.wait(r"by msg/s")
    terminal.press("\x1b[B")
    terminal.press("e")
    terminal.wait(r"explain broker-\d")
    terminal.wait(r"is active and serves \d+ bundles")
    terminal.press("\x1b")
    terminal.wait("last decisions")
    terminal.press("b")
    terminal.wait(r"bundles broker-\d")
    terminal.wait(r"\d msg/s")
    terminal.press("?")
    terminal.wait("drain it: asks first")
    terminal.press("\x1b")
    terminal.wait("last decisions")
    terminal.press("Dy")
    terminal.wait("it is not known where Kafka is")
    terminal.press("\x1b")
    terminal.wait("last decisions")
    terminal.press("/nobody\r")
    terminal.wait("no broker has 'nobody'")
    terminal.press("q")
    assert terminal.end() == 0
    assert is_restored(terminal)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_leaves_the_terminal_as_it_was(
    terminal: Terminal, number: signal.Signals, code: int
) -> None:
    terminal.process.send_signal(number)
    assert terminal.end() == code
    assert is_restored(terminal)
