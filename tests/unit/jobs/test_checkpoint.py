"""Which checkpoint the job goes on from, when the state is rebuilt, and when it is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.spark.checkpoint import (
    LAYOUT,
    CheckpointMismatchError,
    ClaimedTables,
    Manifest,
    Resumption,
    archive_state,
    check_standby,
    choose_checkpoint,
    note_version,
    read_manifest,
    write_manifest,
)
from tests.support.tables.commands_table import write_checkpoint

_PRESENT = Manifest(
    code_version="c1",
    config_version="f1",
    scorer_groups=2,
    state_schema=2,
    layout=LAYOUT,
    clusters=("local",),
    kafka_cluster="k1",
    topics={"acks": "t1", "ownership": "t2"},
    epoch=0,
)
_NEXT = replace(_PRESENT, epoch=1)


def choose(state_dir: Path, present: Manifest, epoch: int, **known: Any) -> Resumption:
    return choose_checkpoint(state_dir, present, ClaimedTables(epoch=epoch, **known))


def _first_run(state_dir: Path, *, begun: int = 3, ended: int = 3) -> Resumption:
    chosen = choose(state_dir, _PRESENT, -1)
    write_manifest(state_dir, _PRESENT, chosen)
    write_checkpoint(chosen.checkpoint, begun=begun, ended=ended)
    return chosen


HALF_WRITTEN = "a batch was left half written by other code or settings"


@pytest.mark.parametrize(
    ("ended", "changed", "reason"),
    [
        (2, {}, ""),
        (3, {"code_version": "c2"}, ""),
        (2, {"code_version": "c2"}, HALF_WRITTEN),
        (2, {"config_version": "f2"}, HALF_WRITTEN),
        (0, {}, "checkpoint"),
        (3, {"scorer_groups": 4}, "groups"),
        (3, {"topics": {"acks": "t1", "ownership": "t9"}}, "topics were made anew: ownership"),
        (3, {"layout": LAYOUT - 1}, "lays the state out"),  # Spark would refuse its variables
        (3, {"layout": LAYOUT + 1}, "lays the state out"),
    ],
)
def test_checkpoint_goes_on_or_is_rebuilt_anew_with_the_reason(
    tmp_path: Path, ended: int, changed: dict[str, Any], reason: str
) -> None:
    first = _first_run(tmp_path, ended=ended)
    if "layout" in changed:
        write_manifest(tmp_path, replace(_PRESENT, **changed), first)
    chosen = choose(tmp_path, replace(_NEXT, **changed), 0)
    assert (chosen.is_rebuilt, reason in chosen.reason) == (bool(reason), True)
    assert chosen.checkpoint.name == ("epoch-1" if reason else "epoch-0")
    shutil.rmtree(tmp_path / "checkpoints")
    assert choose(tmp_path, _NEXT, 0).reason == "the checkpoint is gone"


def test_batch_that_nobody_has_heard_of_is_done_by_other_code(tmp_path: Path) -> None:
    """Spark had begun it, and nothing of it was written."""
    _first_run(tmp_path, ended=2)
    asked: list[tuple[int, str]] = []

    def has_batch(number: int, query: str) -> bool:
        return bool(asked.append((number, query)))

    chosen = choose(tmp_path, replace(_NEXT, code_version="c2"), 0, has_batch=has_batch)
    assert (chosen.reason, asked) == ("", [(2, "q")])


@pytest.mark.parametrize("clusters", [("new", "local"), ("local", "new")])
def test_checkpoint_goes_on_with_a_cluster_more_that_is_new(
    tmp_path: Path, clusters: tuple[str, ...]
) -> None:
    first = _first_run(tmp_path)
    more = replace(_NEXT, clusters=clusters, config_version="f2")
    chosen = choose(tmp_path, more, 0, knows=lambda name: name == "local")
    assert (chosen.checkpoint, chosen.reason) == (first.checkpoint, "")
    check_standby(tmp_path, clusters, 2)


def test_checkpoint_goes_on_with_a_cluster_less_and_is_old_when_that_one_is_back(
    tmp_path: Path,
) -> None:
    both = replace(_PRESENT, clusters=("local", "other"))
    chosen = choose(tmp_path, both, -1)
    write_manifest(tmp_path, both, chosen)
    write_checkpoint(chosen.checkpoint, begun=3, ended=3)
    less = choose(tmp_path, _NEXT, 0, knows=lambda _: True)
    assert (less.checkpoint, less.reason) == (chosen.checkpoint, "")
    write_manifest(tmp_path, _NEXT, less)
    back = choose(tmp_path, replace(both, epoch=2), 1, knows=lambda _: True)
    assert back.reason == "clusters are back that were served before: other"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"clusters": ("elsewhere",)}, "made for the clusters local, this job has elsewhere"),
        ({"kafka_cluster": "k2"}, "made with the Kafka cluster k1, this one is k2"),
        ({"topics": {"eu.acks": "t1", "eu.ownership": "t2"}}, "pipeline.topic_prefix"),
        ({"state_schema": 1}, "written by a newer version"),
        ({"state_schema": 1}, "let the newer version run; or stop it, then"),
    ],
)
def test_checkpoint_of_something_else_is_refused_with_the_command_that_helps(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    _first_run(tmp_path)
    with pytest.raises(CheckpointMismatchError) as refused:
        choose(tmp_path, replace(_NEXT, **change), 0)
    assert words in f"{refused.value}"
    assert f"ballast state rebuild --state-dir {tmp_path}" in refused.value.next_step


@pytest.mark.parametrize(
    ("clusters", "schema", "words"),
    [(("local",), 1, "by a newer version"), (("elsewhere",), 2, "this job has elsewhere")],
)
def test_standby_that_could_not_go_on_is_refused_while_the_job_works(
    tmp_path: Path, clusters: tuple[str, ...], schema: int, words: str
) -> None:
    _first_run(tmp_path)
    with pytest.raises(CheckpointMismatchError) as refused:
        check_standby(tmp_path, clusters, schema)
    assert words in refused.value.why


def test_standby_that_can_go_on_waits(tmp_path: Path) -> None:
    check_standby(tmp_path, ("local",), 2)
    _first_run(tmp_path)
    check_standby(tmp_path, ("local",), 2)
    check_standby(tmp_path, ("local",), 3)


def test_checkpoint_of_tables_that_another_job_took_over_is_refused(tmp_path: Path) -> None:
    _first_run(tmp_path)
    with pytest.raises(CheckpointMismatchError, match="does not match") as refused:
        choose(tmp_path, replace(_PRESENT, epoch=2), 1)
    assert "another job has taken over the tables" in refused.value.why


@pytest.mark.parametrize(("used_under", "claimed"), [(7, 3), (1, 0)])
def test_checkpoint_of_newer_tables_than_these_is_refused(
    tmp_path: Path, used_under: int, claimed: int
) -> None:
    """A backup of a stopped job lacks no more than the claim of the start after it."""
    first = _first_run(tmp_path)
    write_manifest(tmp_path, replace(_PRESENT, epoch=used_under), first)
    with pytest.raises(CheckpointMismatchError) as refused:
        choose(tmp_path, replace(_PRESENT, epoch=claimed + 1), claimed)
    assert "restored from a backup" in refused.value.why
    assert f"rebuild --restored --state-dir {tmp_path}" in refused.value.next_step


def test_checkpoint_that_has_seen_more_commits_than_the_tables_have_is_refused(
    tmp_path: Path,
) -> None:
    """A snapshot of a running job has the same writer epoch as its checkpoint."""
    _first_run(tmp_path)
    for version in (11, 12, 12):
        note_version(tmp_path, version)
    for version in (12, 13, None):
        assert choose(tmp_path, _NEXT, 0, events_version=version).reason == ""
    for unfit in (_NEXT, replace(_NEXT, scorer_groups=4)):  # a rebuild alone is not enough either
        with pytest.raises(CheckpointMismatchError) as refused:
            choose(tmp_path, unfit, 0, events_version=11)
        assert "at version 11, this checkpoint has seen 12" in refused.value.why
        assert f"rebuild --restored --state-dir {tmp_path}" in refused.value.next_step
    archive_state(tmp_path)
    assert choose(tmp_path, _NEXT, 0, events_version=11).is_rebuilt


def test_checkpoint_of_a_job_that_died_before_its_claim_goes_on(tmp_path: Path) -> None:
    first = _first_run(tmp_path)
    write_manifest(tmp_path, replace(_NEXT, claim="mine"), first)
    assert choose(tmp_path, _NEXT, 0).reason == ""


def test_manifest_of_older_code_fits_whatever_it_does_not_say(tmp_path: Path) -> None:
    first = _first_run(tmp_path)
    said = {"code_version": "c1", "config_version": "f1", "scorer_groups": 2, "layout": LAYOUT}
    said["colour"] = "red"
    (tmp_path / "job.json").write_text(json.dumps({**said, "checkpoint": first.checkpoint.name}))
    assert choose(tmp_path, _NEXT, 0).reason == ""


def test_checkpoint_set_aside_is_kept_and_the_next_start_is_a_first_one(tmp_path: Path) -> None:
    first = _first_run(tmp_path)
    would_be = archive_state(tmp_path, dry_run=True)
    assert first.checkpoint.exists()
    assert [path.name for path in would_be] == ["job.json", "checkpoints"]
    manifest, checkpoints = archive_state(tmp_path)
    assert json.loads(manifest.read_text())["checkpoint"] == "epoch-0"
    assert (checkpoints / "epoch-0" / "metadata").exists()
    assert read_manifest(tmp_path) is None
    assert choose(tmp_path, _NEXT, 0).reason == "no checkpoint yet"
    assert archive_state(tmp_path) == []
