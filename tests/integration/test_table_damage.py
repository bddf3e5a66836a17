"""Damaged tables: each kind of file, damaged in each way, met by job, service and verbs.

Nobody shows a traceback, serves less than was committed without a word, or commits after a commit
that was lost: what can be proven is mended, all else stops with file, cause and next command.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from jobs.adapters.delta.table_log import ASIDE_SUFFIX, DamagedTableError
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.cli import main
from jobs.console import CommandError, say
from jobs.service.views import TableViews
from lbcore.balancer.effects import Effect
from tests.support.tables.lookup_tables import bundles_of
from tests.support.tables.small_batches import (
    CrashError,
    EffectsFrame,
    batch,
    command_row,
    crash_at,
    namespace_row,
    record,
    rows,
    sink_on,
)

Case: TypeAlias = tuple[str, str, str]
Damage: TypeAlias = Callable[[Path], None]
BATCHES, CHECKPOINT_AFTER = 7, 3
BUNDLES = bundles_of("t/n", 2)
TABLES = ("ownership_events", "bundle_ownership", "namespaces", "commands")
VERBS = (
    "status",
    "bundles",
    "doctor",
    "ownership",
    "explain cluster",
    "plan --dry-run",
    "sql SELECT%count(*)%FROM%ownership_events",
    "sql SELECT%count(*)%FROM%bundle_ownership",
)


def effects(number: int) -> EffectsFrame:
    records = [record(bundle, number + 1) for bundle in BUNDLES]
    named = Effect(kind="namespaces", rows=[namespace_row("t/n", number + 1)])
    outcome = Effect(kind="commands", rows=[command_row(f"command-{number}")])
    made = batch(*records, now_ms=1_000 * (number + 1)).effects
    return EffectsFrame([*made, named, outcome], "local")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with a checkpoint in the middle of their log, and all commits behind it."""
    root = tmp_path_factory.mktemp("whole") / "tables"
    sink = sink_on(root)
    for number in range(BATCHES):
        sink(effects(number), number)
        if number == CHECKPOINT_AFTER:
            for name in TABLES:
                sink.writer.table(name).create_checkpoint()
        if number == 0:
            for name in TABLES:
                sink.writer.table(name).create_checkpoint()
    return root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "tables"))


# -- which file, and what becomes of it


def commits(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.json"))


def checkpoints(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.checkpoint.parquet"))


def needed(table: Path) -> list[Path]:
    return [one for one in commits(table) if one.name[:20] > checkpoints(table)[-1].name[:20]]


def data(table: Path) -> list[Path]:
    return sorted(table.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)


FILES: Mapping[str, Callable[[Path], Path]] = {
    "newest commit": lambda table: commits(table)[-1],
    "middle commit": lambda table: needed(table)[1],
    "oldest needed commit": lambda table: needed(table)[0],
    "commit before the checkpoint": lambda table: commits(table)[1],
    "hint": lambda table: table / "_delta_log" / "_last_checkpoint",
    "checkpoint": lambda table: checkpoints(table)[-1],
    "newest data file": lambda table: data(table)[-1],
    "oldest data file": lambda table: data(table)[0],
    "log": lambda table: table / "_delta_log",
    "table": lambda table: table,
    "rest of the newest batch": lambda table: max(
        (table.parent / "ownership_events" / "_batches").glob("*.arrow"),
        key=lambda file: file.stat().st_mtime_ns,
    ),
}


def old_copy(file: Path) -> None:
    """Put a file of the same kind in its place: the one before it."""
    if file.name == "_last_checkpoint":
        older = checkpoints(file.parent.parent)[0].name
        file.write_text(f'{{"version":{int(older[:20])},"size":1}}')
        return
    alike = [one for one in file.parent.glob(f"*{''.join(file.suffixes[-2:])}") if one != file]
    alike = [one for one in alike if ("checkpoint" in one.name) == ("checkpoint" in file.name)]
    if "parquet" not in file.name:
        alike = [one for one in alike if one.name < file.name] or alike
        file.write_bytes(max(alike, key=lambda one: one.name).read_bytes())
        return
    file.write_bytes(min(alike, key=lambda one: one.stat().st_mtime_ns).read_bytes())


def change(file: Path, to: Callable[[bytes], bytes]) -> None:
    file.write_bytes(to(file.read_bytes()))


DAMAGES: Mapping[str, Damage] = {
    "missing": lambda file: shutil.rmtree(file) if file.is_dir() else file.unlink(),
    "empty": lambda file: file.write_bytes(b"") and None,
    "cut": lambda file: change(file, lambda text: text[: len(text) // 2]),
    "garbage": lambda file: change(file, lambda text: bytes(255 - one for one in text)),
    "zeros": lambda file: change(file, lambda text: bytes(len(text))),
    "cut at a line": lambda file: change(file, lambda text: text.splitlines(keepends=True)[0]),
    "old copy": old_copy,
}
CASES = [
    (table, file, damage)
    for table in TABLES
    for file in FILES
    for damage in DAMAGES
    if (damage == "missing" or file not in ("log", "table"))
    and (damage != "cut at a line" or "commit" in file)
    and (table == "ownership_events" or file != "rest of the newest batch")
]
SHORT = [
    ("ownership_events", "newest commit", "empty"),
    ("ownership_events", "middle commit", "empty"),
    ("bundle_ownership", "newest commit", "cut at a line"),
    ("ownership_events", "checkpoint", "cut"),
    ("bundle_ownership", "newest data file", "cut"),
    ("ownership_events", "oldest data file", "garbage"),
    ("commands", "log", "missing"),
    ("namespaces", "newest commit", "missing"),
]
all_cases = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case in SHORT else pytest.mark.long, id="-".join(case))
        for case in CASES
    ],
)


# -- what each of them makes of it


def served(follower: DeltaFollower) -> list[tuple[str, int]]:
    if follower.view is None:
        return []
    found = follower.view.snapshot.namespaces
    return sorted((one.bundle, one.version_id) for name in found for one in found[name].live)


EVERYTHING = [(bundle, BATCHES) for bundle in BUNDLES]


def service(root: Path) -> str:
    """What a service makes of tables that it finds when it starts."""
    follower, views = DeltaFollower(root, "local"), TableViews(root, "local")
    for _ in range(2):
        follower.poll()
        views.refresh()
    said = follower.counts.last_error
    if served(follower) != EVERYTHING:
        assert "parquet" in said or "_delta_log" in said or "/" in said, said
        assert "damaged" in said or "missing" in said or "not made" in said, said
    return f"{'all' if served(follower) == EVERYTHING else 'less'}: {said or views.last_error}"


def job(root: Path, *, is_unread: bool) -> str:
    """What the job's writer makes of them: its start after a batch that has ended, and the next.

    is_unread: the damaged file is one of data that the job only adds to.
    """
    try:
        sink = sink_on(root)
        sink.writer.write_pending_rows()
        sink(effects(BATCHES), BATCHES)
    except CommandError as error:
        assert str(root) in error.why  # noqa: PT017 either is an outcome
        assert error.next_step  # noqa: PT017 as above
        return f"stopped: {error.why}"
    if is_unread:
        return "goes on, what it does not read stays damaged"
    assert len(rows(root, "ownership_events")) == len(BUNDLES) * (BATCHES + 1)
    assert len(rows(root, "commands")) == BATCHES + 1
    assert {row["version_id"] for row in rows(root, "bundle_ownership")} == {BATCHES + 1}
    return "goes on" + (", mended" if sink.writer.is_repaired else "")


def verb(line: str, root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, output, and errors without a trace of Python or Rust."""
    words = [word.replace("%", " ") for word in line.split()]
    code = main([*words, "--tables", str(root), "--cluster", "local"])
    said = capsys.readouterr()
    assert "Traceback" not in said.err + said.out
    assert "panicked" not in said.err + said.out
    return code, said.out, said.err


@pytest.fixture(scope="module")
def answers(whole: Path) -> dict[str, int]:
    found = {}
    for line in VERBS:
        words = [word.replace("%", " ") for word in line.split()]
        found[line] = main([*words, "--tables", str(whole), "--cluster", "local"])
    return found


@all_cases
def test_damaged_file_is_left_out_or_mended_or_named(
    root: Path, answers: Mapping[str, int], capsys: pytest.CaptureFixture[str], case: Case
) -> None:
    table, file, damage = case
    running = DeltaFollower(root, "local")
    running.poll()
    assert served(running) == EVERYTHING
    DAMAGES[damage](FILES[file](root / table))
    for _ in range(2):
        running.poll()
        assert served(running) == EVERYTHING
    told = [f"running service: {running.counts.last_error}", f"service: {service(root)}"]
    capsys.readouterr()
    for line in VERBS:
        code, out, err = verb(line, root, capsys)
        if code != answers[line]:
            assert err.count("next:") == 1 or (line == "doctor" and "fail" in out), (line, out, err)
        told.append(f"{line}: {code} {err.strip().splitlines()[-3:]}")
    is_unread = "data file" in file and table in ("ownership_events", "commands")
    told.append(f"job: {job(root, is_unread=is_unread)}")
    say("\n   ".join((f"## {', '.join(case)}", *told)).replace(str(root), ""))


def test_events_that_nobody_was_told_of_are_repeated(root: Path) -> None:
    """A power cut between the commit of events and its way to the disk."""
    sink = sink_on(root)
    sink.passed = crash_at("events_committed")
    with pytest.raises(CrashError):
        sink(effects(BATCHES), BATCHES)
    newest = commits(root / "ownership_events")[-1]
    newest.write_bytes(b"")
    assert "all" in service(root)
    again = sink_on(root)
    assert newest.with_name(f"{newest.name}{ASIDE_SUFFIX}").exists()
    assert not again.writer.has_batch("ownership_events", BATCHES)
    again(effects(BATCHES), BATCHES)
    written = [row["version_id"] for row in rows(root, "ownership_events")]
    assert sorted(written) == sorted([*range(1, BATCHES + 2)] * len(BUNDLES))
    assert len(rows(root, "commands")) == BATCHES + 1


def test_commit_that_was_told_and_is_let_go_of_by_hand_lets_the_job_start(root: Path) -> None:
    newest = commits(root / "ownership_events")[-1]
    newest.write_bytes(b"")
    with pytest.raises(DamagedTableError, match="brokers were told") as refused:
        TableWriter(root)
    assert f"mv {newest} {newest}{ASIDE_SUFFIX}" in refused.value.next_step
    newest.rename(f"{newest}{ASIDE_SUFFIX}")
    sink_on(root)(effects(BATCHES), BATCHES)
    assert TableReader(root, "local").newest().version > 0


def test_running_job_commits_nothing_after_a_commit_that_is_torn(root: Path) -> None:
    sink = sink_on(root)
    path = commits(root / "commands")[-1]
    path.with_name(f"{int(path.stem) + 1:020d}.json").write_bytes(b"")
    with pytest.raises(DamagedTableError, match="newest commit"):
        sink(effects(BATCHES), BATCHES)


def test_batch_is_on_the_disk_before_brokers_are_told(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data, then the log, then Kafka; the file that the commit names as well."""
    synced: list[str] = []

    def fsync(number: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{number}").readlink()))

    sink = sink_on(root)
    monkeypatch.setattr(os, "fsync", fsync)
    told: list[int] = []
    monkeypatch.setattr(sink.publisher, "publish", lambda _: told.append(len(synced)))
    sink(effects(BATCHES), BATCHES)
    before = synced[: told[0]]
    events = root / "ownership_events"
    order = [str(data(events)[-1]), str(events), str(commits(events)[-1]), f"{events}/_delta_log"]
    assert [one for one in before if one in order] == order
    assert any(one.startswith(f"{events}/_batches/") for one in before)
    for name in TABLES:
        assert {str(data(root / name)[-1]), str(commits(root / name)[-1])} <= set(synced), name
