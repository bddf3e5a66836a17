"""Verbs of few answers: ownership, strategies, narrow topics, state, and times of all verbs."""

import argparse
import json
import time
from pathlib import Path

import pytest

from jobs.adapters.delta.tables import ensure_table
from jobs.adapters.kafka.command_client import NEVER, NoOutcome
from jobs.adapters.spark.checkpoint import hold_folder, restored_mark
from jobs.cli import main
from jobs.console import CommandError, Exit, format_instant
from jobs.operating.answers import Answers
from jobs.parser import parse_duration_ms, parse_instant_ms
from jobs.verbs.reading import change_lines
from lbcore.model.tables import TABLES
from lbcore.ownership.changes import find_differences
from lbcore.plan.registry import STRATEGIES
from tests.support import Capsys, Patch
from tests.support.tables.commands_table import CommandsTable

MOST = 20


def row(namespace: str, at: int) -> dict[str, object]:
    bundle = f"{namespace}/0x{at:02x}000000_0x{at + 1:02x}000000"
    owned = {"state": "Owned", "source": None, "destination": "b1", "version_id": 1}
    return {"namespace": namespace, "bundle": bundle, **owned, "cause": "assign", "at_ms": 0}


def test_bundles_of_a_namespace_that_is_new_are_counted_instead_of_listed() -> None:
    many = [row("acme/many", at) for at in range(MOST + 1)]
    changes = list(find_differences([], [row("acme/few", 0), *many]))
    assert list(change_lines(changes, MOST)) == [
        "+ 21 bundles of acme/many are new (--namespace acme/many lists them)",
        "+ acme/few/0x00000000_0x01000000  Owned b1",
    ]
    assert len(list(change_lines(changes, len(changes)))) == len(changes)


def test_bundles_of_a_namespace_that_went_are_counted_and_those_that_moved_are_listed() -> None:
    many = [row("acme/gone", at) for at in range(MOST + 1)]
    kept = [row("acme/kept", at) for at in range(MOST + 1)]
    moved = [{**one, "destination": "b2"} for one in kept]
    lines = list(change_lines(list(find_differences([*many, *kept], moved)), MOST))
    assert lines[0] == "- 21 bundles of acme/gone are gone (--namespace acme/gone lists them)"
    assert len(lines) == 1 + len(moved)
    assert lines[1].startswith("  acme/kept/0x00000000_0x01000000  Owned b1  =>  Owned b2")


def test_strategies_verb_lists_every_strategy(capsys: Capsys) -> None:
    assert main(["strategies", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    listed = {(row["kind"], row["name"]) for row in rows}
    assert {(kind, one.name) for kind, found in STRATEGIES.items() for one in found} <= listed
    assert ("split", "ballast") in listed


def test_strategies_verb_of_a_pulsar_class_shows_its_settings(capsys: Capsys) -> None:
    assert main(["strategies", "ThresholdShedder"]) == 0
    shown = capsys.readouterr().out
    assert "loadBalancerBrokerThresholdShedderPercentage" in shown
    assert "AvgShedder" not in shown


def test_strategies_verb_unknown_name_is_misuse_that_names_the_one_that_is_meant(
    capsys: Capsys,
) -> None:
    assert main(["strategies", "threshhold"]) == 2
    told = capsys.readouterr().err
    assert "there is no strategy 'threshhold'" in told
    assert "did you mean threshold? " in told


TOPIC = "persistent://acme/ns/t"
EVIDENCE = "8 partitions are on 1 of 3 brokers: 8 on a:8080"
FINDING = {"subject": TOPIC, "since_ms": 1, "evidence": EVIDENCE, "stage": "told"}


@pytest.fixture
def tables(tmp_path: Path) -> CommandsTable:
    for table in TABLES:
        ensure_table(tmp_path, table)
    return CommandsTable(tmp_path)


def asked(tables: CommandsTable, *words: str) -> int:
    where = ["--tables", str(tables.root), "--conf", "pulsar", "--json"]
    return main(["bundle", "list", "--by", "partitions", *where, *words])


def tell(tables: CommandsTable, *troubles: str) -> None:
    result = {"findings": [{**FINDING, "trouble": one} for one in troubles]}
    at_ms = time.time_ns() // 1_000_000
    tables.add("c1", "done", at_ms, kind="observe_ownership", result=result)


def test_topics_on_too_few_brokers_are_told_and_nothing_else_that_is_wrong(
    tables: CommandsTable, capsys: Capsys
) -> None:
    tell(tables, "doubled", "narrow")
    assert asked(tables) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["subject"], found["evidence"]) == (TOPIC, EVIDENCE)
    for broker, expected in (("a:8080", [found]), ("b:8080", []), ("a:80", []), (":8080", [])):
        assert asked(tables, "--broker", broker) == 0
        assert json.loads(capsys.readouterr().out) == expected


def test_without_a_bridge_it_is_an_error_and_no_empty_list(
    tables: CommandsTable, capsys: Capsys
) -> None:
    assert asked(tables) == 1
    assert "ballast bridge pulsar" in capsys.readouterr().err


def state_dir(root: Path) -> Path:
    (root / "checkpoints" / "epoch-3").mkdir(parents=True)
    (root / "job.json").write_text("{}")
    return root


def test_rebuild_moves_checkpoint_and_manifest_and_says_where(
    tmp_path: Path, capsys: Capsys
) -> None:
    folder = state_dir(tmp_path)
    assert main(["state", "rebuild", "--state-dir", str(folder), "--yes", "--json"]) == 0
    moved = json.loads(capsys.readouterr().out)["set_aside"]
    assert [Path(path).name for path in moved] == ["job.json", "checkpoints"]
    assert all(Path(path).exists() for path in moved)
    assert not (folder / "checkpoints").exists()
    assert main(["state", "rebuild", "--state-dir", str(folder), "--yes"]) == 0  # nothing to do


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_rebuild_of_restored_tables_is_noted_for_the_next_start(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    folder = tmp_path / "made-for-it" if not words else state_dir(tmp_path)
    command = ["state", "rebuild", "--restored", "--state-dir", str(folder), "--yes", *words]
    assert main(command) == 0
    assert restored_mark(folder).exists() is (not words)


def test_rebuild_that_is_a_dry_run_not_agreed_to_or_of_a_job_at_work_changes_nothing(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    folder = state_dir(tmp_path)
    rebuild = ["state", "rebuild", "--state-dir", str(folder)]
    assert main([*rebuild, "--dry-run"]) == 0
    monkeypatch.setattr("sys.stdin", (folder / "job.json").open())
    assert main(rebuild) == 2
    assert "add --yes" in capsys.readouterr().err
    with hold_folder(folder):
        assert main([*rebuild, "--yes"]) == 1
    assert "stop that job first" in capsys.readouterr().err
    assert (folder / "checkpoints").exists()
    assert (folder / "job.json").exists()
    assert main([*rebuild[:-1], str(tmp_path / "nowhere"), "--yes"]) == 2


NOW_MS = 1_700_000_000_000
SPANS = {"500ms": 500, "30s": 30_000, "1.5m": 90_000, "2h": 7_200_000, "45": 45_000}
INSTANTS = {
    "5m": NOW_MS - 300_000,
    "0s": NOW_MS,
    "2023-11-14T22:13:20Z": NOW_MS,
    "2023-11-14T22:13:20": NOW_MS,
    "2023-11-14T23:13:20+01:00": NOW_MS,
    "2023-11-14": 1_699_920_000_000,
}


def test_times_are_read_as_people_write_them() -> None:
    assert {text: parse_duration_ms(text) for text in SPANS} == SPANS
    assert {text: parse_instant_ms(text, NOW_MS) for text in INSTANTS} == INSTANTS
    assert parse_duration_ms(" 0 ") == 0
    assert format_instant(NOW_MS) == "2023-11-14T22:13:20Z"


LONG = ("9" * 400 + "s", "9" * 400, "36501d", "1" + "0" * 20 + "ms")
REFUSED = {
    **dict.fromkeys(("", "soon", "-5s", "5 parsecs", "1h30m"), "no duration"),
    **dict.fromkeys(LONG, "too long for a duration"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=REFUSED[text]):
        parse_duration_ms(text)
    with pytest.raises(argparse.ArgumentTypeError, match="no time"):
        parse_instant_ms("yesterday", NOW_MS)


def test_command_sent_before_the_tables_became_unreadable_has_an_unknown_outcome(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    why = "the table ownership_events is damaged: 7.json is empty"

    def carry_out(*_: object, **__: object) -> NoOutcome:
        return NoOutcome(
            command_id="c", waited_ms=0, accepted=None, writer_silent_ms=NEVER, unread=why
        )

    def fail(*_: object) -> None:
        raise CommandError("the tables are damaged", why="7.json is empty", next_step="mend them")

    monkeypatch.setattr(Answers, "carry_out", carry_out)
    monkeypatch.setattr(Answers, "settings_in_force", fail)
    root = CommandsTable(tmp_path).root
    assert main(["pause", "--tables", str(root), "--command-id", "c", "--json"]) == Exit.UNKNOWN
    error = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert "no outcome of pause" in error["error"]
    assert why in error["why"]
    assert "--command-id c" in error["next"]
