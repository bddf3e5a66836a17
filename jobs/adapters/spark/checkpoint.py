"""Where the query goes on: from its checkpoint, from the tables, or not at all.

Decides which. A checkpoint that other code or settings left with a batch half written is not
trusted to repeat it alike, and one that is missing, or whose topics were made anew, can't be used:
then the state is rebuilt from the tables. A batch of which the tables have nothing was heard of by
nobody, and is decided by whoever comes. So it is when a cluster comes back that the job served
before, for what the checkpoint knows of that one is old; one that is new, or is served no more,
needs nothing. One that belongs to something else (other clusters altogether, another Kafka, tables
that another job has taken over or that were restored) is refused: a person must say which of the
two is right. Nothing is ever deleted here. Source: ours.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

import lbcore
from jobs.adapters.processes.code_digest import code_digest, python_files
from jobs.console import CommandError
from jobs.whole_file import write_whole

_MANIFEST = "job.json"
_FOLDER = "checkpoints"
_SET_ASIDE = "set-aside"
_RESTORED = "restored"
_SEEN = "events-version"

LAYOUT = 3
"""Of Spark's state store, see `spark_machine`, and of the source's offsets, see `kafka_source`.

In 1 every chunk had its own entry, in 2 the source was Spark's own. From a checkpoint with another
one no start goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Under what a checkpoint was made and last used.

    state_schema: of the state, the sum of both operators', so that it rises with either. layout: of
    Spark's state store. topics: name → Kafka's id. epoch: the writer's, of the job that used it
    last. claim: the id of its claim of the tables, "" once it is known to have succeeded. own:
    strategies that are not Ballast's → which code. origins: digest of who set which setting, which
    a repeated batch may have to tell again. What an older manifest doesn't say is empty, and
    fits everything but the layout.
    """

    code_version: str
    config_version: str
    scorer_groups: int
    state_schema: int = 0
    layout: int = 0
    clusters: tuple[str, ...] = ()
    kafka_cluster: str = ""
    topics: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str = ""
    epoch: int = -1
    claim: str = ""
    own: Mapping[str, str] = field(default_factory=dict)
    origins: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """Where to go on. reason: why the state is rebuilt, "" when the checkpoint goes on."""

    checkpoint: Path
    reason: str

    @property
    def is_rebuilt(self) -> bool:
        """Whether the state comes from the tables."""
        return bool(self.reason)


_CORRECT = (
    "correct what the job was told; or, if this is right, set the checkpoint aside with "
    "`ballast state rebuild {0}` and start the job again: it rebuilds its state from the tables"
)
_GO_ON_FROM_BACKUP = (
    "if they were restored, `ballast state rebuild --restored {0}` and start the job again: it "
    "goes on from them; if they were not, name the job's own with --tables"
)
_NEWER_ON = (
    "let the newer version run; or stop it, then `ballast state rebuild {0}` and start this one: "
    "it rebuilds its state from the tables"
)


class CheckpointMismatchError(CommandError):
    """The checkpoint belongs to something else than what the job was told to balance."""

    def __init__(self, state_dir: Path, why: str, next_step: str = _CORRECT) -> None:
        super().__init__(
            f"the checkpoint in {state_dir} does not match this job",
            why=why,
            next_step=next_step.format(f"--state-dir {state_dir}"),
        )


def code_version() -> str:
    """Digest of the code whose decisions a repeated batch must repeat: all of lbcore."""
    return code_digest(python_files(Path(lbcore.__file__).parent))[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTables:
    """What the tables say of who wrote them, and of whom.

    epoch: the newest that any job has claimed, -1 for none; claimed_by: gives the id of that claim.
    events_version: of `ownership_events`, None where it is not known. knows: whether they have
    anything of a cluster. has_batch: or of a batch, by its number and its query's id.
    """

    epoch: int
    claimed_by: Callable[[], str] = lambda: ""
    events_version: int | None = None
    knows: Callable[[str], bool] = lambda _: False
    has_batch: Callable[[int, str], bool] = lambda *_: True


def choose_checkpoint(state_dir: Path, present: Manifest, tables: ClaimedTables) -> Resumption:
    """Go on from the last checkpoint if it may be trusted, else from a new one.

    present: as things are now; its `epoch` is the one that this job is about to claim, its
    `checkpoint` is not looked at. Writes nothing; raises CheckpointMismatchError.
    """
    last = read_manifest(state_dir)
    reason = _distrust(state_dir, last, present, tables)
    if last is not None:
        reason = reason or _returning(last, present, tables.knows)
        _check_version(state_dir, tables.events_version)
        if not reason:
            _check_claim(state_dir, last, tables)
    name = f"epoch-{present.epoch}" if reason or last is None else last.checkpoint
    return Resumption(checkpoint=state_dir / _FOLDER / name, reason=reason)


def check_standby(state_dir: Path, clusters: tuple[str, ...], state_schema: int) -> None:
    """Refuse to wait for a checkpoint that could not be gone on from, while its job still works."""
    last = read_manifest(state_dir)
    if last is not None:
        present = replace(last, clusters=clusters, state_schema=state_schema)
        _check_mismatches(state_dir, last, present)


class SeenVersion:
    """Remembers in the state folder how far `ownership_events` was when a batch ended.

    Told before Spark notes the batch's end, so a checkpoint never knows more than this says.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path, self._noted = state_dir / _SEEN, -1

    def note(self, version: int) -> None:
        """Write it down if it is another than the last time."""
        if version != self._noted:
            write_whole(self._path, str(version))
            self._noted = version


def write_manifest(state_dir: Path, present: Manifest, resumption: Resumption) -> None:
    """Say whose checkpoint this is from now on; done before the epoch is claimed."""
    written = asdict(replace(present, checkpoint=resumption.checkpoint.name))
    write_whole(state_dir / _MANIFEST, json.dumps(written, indent=1))


def read_manifest(state_dir: Path) -> Manifest | None:
    """The manifest, be it of an older version; None when there is none."""
    path = state_dir / _MANIFEST
    if not path.exists():
        return None
    found = json.loads(path.read_text())
    known = {one.name for one in fields(Manifest)}
    values = {name: value for name, value in found.items() if name in known}
    return Manifest(**{**values, "clusters": tuple(values.get("clusters", ()))})


def set_aside(state_dir: Path, *, dry_run: bool = False) -> list[Path]:
    """Move manifest and checkpoints out of the way; where they are now. Nothing is deleted."""
    there = [
        state_dir / name for name in (_MANIFEST, _FOLDER, _SEEN) if (state_dir / name).exists()
    ]
    target = state_dir / _SET_ASIDE / time.strftime("%Y%m%dT%H%M%S")
    while target.exists():
        target = target.with_name(f"{target.name}-again")
    if there and not dry_run:
        target.mkdir(parents=True)
        for path in there:
            path.replace(target / path.name)
    return [target / path.name for path in there]


def mark_restored(state_dir: Path) -> None:
    """Note for the next start that the tables were put back from a backup."""
    (state_dir / _RESTORED).touch()


def is_restored(state_dir: Path) -> bool:
    """Whether the tables were put back since the last start that went well."""
    return (state_dir / _RESTORED).exists()


def unmark_restored(state_dir: Path) -> None:
    """The tables are as they must be again."""
    (state_dir / _RESTORED).unlink(missing_ok=True)


def query_id(checkpoint: Path) -> str:
    """Spark's id of the query of this checkpoint; it is there once the query has started."""
    found: str = json.loads((checkpoint / "metadata").read_text())["id"]
    return found


def newest_begun(checkpoint: Path) -> int:
    """The newest batch that Spark has begun; -1 when there is none."""
    return max(_numbers(checkpoint / "offsets"), default=-1)


def is_ended(checkpoint: Path, batch_id: int) -> bool:
    """Whether Spark has committed this batch."""
    return (checkpoint / "commits" / str(batch_id)).exists()


def unfinished_batch(checkpoint: Path) -> int | None:
    """The batch that was begun and not ended, which Spark will repeat; None when there is none."""
    begun = newest_begun(checkpoint)
    return None if begun < 0 or is_ended(checkpoint, begun) else begun


def _distrust(
    state_dir: Path, last: Manifest | None, present: Manifest, tables: ClaimedTables
) -> str:
    """Why the checkpoint can't be used, "" when it can; raises when it must not be replaced."""
    if last is None:
        return "no checkpoint yet"
    checkpoint, claimed_epoch = state_dir / _FOLDER / last.checkpoint, tables.epoch
    if not (checkpoint / "metadata").exists():
        return "the checkpoint is gone"
    if claimed_epoch > last.epoch >= 0:
        why = (
            f"another job has taken over the tables since (writer epoch {claimed_epoch}, this "
            f"checkpoint ends at {last.epoch}), so what it says of owners is out of date"
        )
        raise CheckpointMismatchError(state_dir, why)
    if not _numbers(checkpoint / "commits"):
        return "the checkpoint has no finished batch"  # so it lacks the state it was begun with
    unclaimed = 1 if last.claim else 0  # by a job that died between its manifest and its claim
    if claimed_epoch < last.epoch - unclaimed:
        why = (
            f"the tables know writer epochs up to {claimed_epoch}, this checkpoint was used under "
            f"{last.epoch}: these are other tables, or they were restored from a backup"
        )
        raise CheckpointMismatchError(state_dir, why, _GO_ON_FROM_BACKUP)
    _check_mismatches(state_dir, last, present)
    unfinished = unfinished_batch(checkpoint)
    is_half_written = unfinished is not None and tables.has_batch(unfinished, query_id(checkpoint))
    return _out_of_date(last, present, is_half_written=is_half_written)


def _check_claim(state_dir: Path, last: Manifest, tables: ClaimedTables) -> None:
    """Refuse a checkpoint whose job may have lost the race for the tables to another."""
    if last.claim and tables.epoch == last.epoch and tables.claimed_by() != last.claim:
        why = (
            f"another job claimed the tables when this one did (writer epoch {tables.epoch}), and "
            "won: what this checkpoint says of owners is out of date"
        )
        raise CheckpointMismatchError(state_dir, why)


def _check_version(state_dir: Path, events_version: int | None) -> None:
    """Refuse tables that lack commits of finished batches, though no job has claimed them since."""
    path = state_dir / _SEEN
    seen = int(path.read_text()) if path.exists() else -1
    if events_version is not None and events_version < seen:
        why = (
            f"the table ownership_events is at version {events_version}, this checkpoint has seen "
            f"{seen}: these are other tables, or they were restored from a backup"
        )
        raise CheckpointMismatchError(state_dir, why, _GO_ON_FROM_BACKUP)


def _check_mismatches(state_dir: Path, last: Manifest, present: Manifest) -> None:
    for why in _mismatches(last, present):
        raise CheckpointMismatchError(state_dir, why)
    if last.state_schema > present.state_schema:
        why = (
            f"its state has schema {last.state_schema}, this version reads up to "
            f"{present.state_schema}: it was written by a newer version of this code"
        )
        raise CheckpointMismatchError(state_dir, why, _NEWER_ON)


def _mismatches(last: Manifest, present: Manifest) -> Iterator[str]:
    if last.clusters and not set(last.clusters) & set(present.clusters):
        yield (
            f"it was made for the clusters {', '.join(last.clusters)}, this job has "
            f"{', '.join(present.clusters)} (pipeline.clusters)"
        )
    if last.kafka_cluster and last.kafka_cluster != present.kafka_cluster:
        yield (
            f"it was made with the Kafka cluster {last.kafka_cluster}, this one is "
            f"{present.kafka_cluster}"
        )
    if last.topics and last.topics.keys() != present.topics.keys():
        yield (
            f"it reads the topics {', '.join(sorted(last.topics))}, this job has "
            f"{', '.join(sorted(present.topics))} (pipeline.topic_prefix)"
        )


def _out_of_date(last: Manifest, present: Manifest, *, is_half_written: bool) -> str:
    anew = sorted(name for name, known in last.topics.items() if present.topics[name] != known)
    if anew:
        return f"topics were made anew: {', '.join(anew)}"
    if last.layout != LAYOUT:
        return "this version reads Kafka or lays the state out otherwise"
    if last.scorer_groups != present.scorer_groups:
        return "the number of scorer groups was changed"
    if is_half_written and _repeats_by(last) != _repeats_by(present):
        return "a batch was left half written by other code or settings"
    return ""


def _returning(last: Manifest, present: Manifest, knows: Callable[[str], bool]) -> str:
    """Why added clusters make the state old, "" when they don't: they are new to the tables."""
    added = sorted(set(present.clusters) - set(last.clusters)) if last.clusters else []
    back = [name for name in added if knows(name)]
    return f"clusters are back that were served before: {', '.join(back)}" if back else ""


def _repeats_by(manifest: Manifest) -> tuple[str, str, str]:
    """What must be as it was for a batch to be repeated alike."""
    return manifest.code_version, manifest.config_version, manifest.origins


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
