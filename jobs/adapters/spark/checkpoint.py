"""Choice of where the query resumes: its checkpoint, the tables, or nowhere.

Spark repeats an unfinished batch. New code or settings may decide it differently, so a checkpoint
is not used if old ones left a batch half written. A batch that has reached no table may be decided
differently. A checkpoint that is missing, or whose topics were recreated, can't be used. In both
cases the state is rebuilt from the tables.

The state is also rebuilt when a cluster comes back that the job served before: the checkpoint's
state of it is old. A cluster that is new, or is served no more, needs nothing.

A checkpoint that belongs to something else is refused, and a person must decide: it has none of
the job's clusters or another Kafka, or its tables were restored or taken over by another job. A
damaged manifest is refused too, unless the tables prove that they belong to this folder. After
damage the state is rebuilt from the tables. The damaged checkpoint is kept until two others have
followed it.
"""

import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import IO, Any, get_origin

import lbcore
from jobs.adapters.processes.paths import code_digest, python_files
from jobs.adapters.spark.checkpoint_damage import find_damage, numbered, state_partitions
from jobs.atomic_file import atomic_write
from jobs.console import CommandError, cause_message

_MANIFEST = "job.json"
_FOLDER = "checkpoints"
_SET_ASIDE = "set-aside"
_RESTORED = "restored"
_VERSION_FILE = "events-version"
_UNUSED_MAX = 2
"""Checkpoints that are kept beside the one in use: a damaged one can be looked at."""

LAYOUT = 4
"""Version of state store, keys and offsets: `spark_machine`, `partitioning`, `kafka_source`.

No start resumes from a checkpoint of another version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Conditions under which a checkpoint was made and last used.

    state_schema: sum of both operators' versions, so that it rises with either. layout: as LAYOUT.
    topics: name → Kafka's id. epoch: writer epoch of the job that used it last. claim: the id of
    its claim of the tables, "" once it is known to have succeeded. own: custom strategy → its code.
    origins: digest of the origin of each setting, which a repeated batch may write again.
    partitions: of the state. Fields that an older manifest lacks are empty, and fit everything but
    the layout.
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
    partitions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """Checkpoint to resume with.

    reason: why the state is rebuilt, "" when the checkpoint goes on. is_damaged: the reason is
    damage, which somebody should look into.
    """

    checkpoint: Path
    reason: str
    is_damaged: bool = False

    @property
    def is_rebuilt(self) -> bool:
        """True if the state comes from the tables."""
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


class DamagedStateError(CommandError):
    """Damaged file of a state folder that the tables may not belong to."""

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(
            f"{path} is damaged: {fault}",
            why="it says to which tables and Kafka the checkpoint beside it belongs, and the"
            " tables don't prove that they are these",
            next_step="make sure of --tables and --bootstrap, then"
            f" `ballast state rebuild --state-dir {path.parent}` and start the job again: it"
            " rebuilds its state from the tables (--restored where they came from a backup)",
        )
        self.reason = f"{path.name} is damaged: {fault}"


class DamagedCheckpointError(CommandError):
    """Spark can't read a checkpoint, and says so when its query has begun."""

    def __init__(self, checkpoint: Path, cause: str) -> None:
        state_dir = checkpoint.parent.parent
        super().__init__(
            f"Spark can't read the checkpoint {checkpoint}",
            why=f"the checkpoint is damaged: {cause}",
            next_step="the state was rebuilt from the tables once, and the new checkpoint can't be"
            f" read either: look at the disk of {state_dir}; `ballast state rebuild --state-dir"
            f" {state_dir}` and a start begin with a new one again",
        )


def code_version() -> str:
    """Digest of the code whose decisions a repeated batch must repeat: all of lbcore."""
    return code_digest(python_files(Path(lbcore.__file__).parent))[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTables:
    """Writers and contents of the tables, for the choice of a checkpoint.

    epoch: the newest that any job has claimed, -1 = none; claimed_by: returns the id of that claim.
    events_version: of `ownership_events`, None = not known. knows: True if they have rows of a
    cluster. has_batch: True if one has a batch, by its number and its query's id.
    last_commit: metadata of the newest commit of events.
    """

    epoch: int
    claimed_by: Callable[[], str] = lambda: ""
    events_version: int | None = None
    knows: Callable[[str], bool] = lambda _: False
    has_batch: Callable[[int, str], bool] = lambda *_: True
    last_commit: Callable[[], Mapping[str, Any] | None] = lambda: None


def choose_checkpoint(state_dir: Path, present: Manifest, tables: ClaimedTables) -> Resumption:
    """Choose the last checkpoint if it may be used, else a new one.

    present: the present conditions; its `epoch` is the one that this job is about to claim, its
    `checkpoint` is ignored. Writes nothing; raises CheckpointMismatchError, and
    DamagedStateError where the tables don't prove that they are those of this folder.
    """
    try:
        last, noted_version = _own_files(state_dir)
    except DamagedStateError as damaged:
        _check_proven(state_dir, present, tables, damaged)
        return new_checkpoint(state_dir, present.epoch, damaged.reason, is_damaged=True)
    if last is None:
        return new_checkpoint(state_dir, present.epoch, "no checkpoint yet")
    checkpoint = state_dir / _FOLDER / last.checkpoint
    damage = _damage(checkpoint, tables) if numbered(checkpoint / "commits") else ""
    reason = _distrust(state_dir, last, present, tables, is_damaged=bool(damage))
    if not reason and last.clusters:  # clusters that are new to the tables need nothing
        added = sorted(set(present.clusters) - set(last.clusters))
        back = ", ".join(name for name in added if tables.knows(name))
        reason = back and f"clusters are back that were served before: {back}"
    _check_version(state_dir, noted_version, tables)
    if reason:
        return new_checkpoint(state_dir, present.epoch, reason)
    if last.claim and tables.epoch == last.epoch and tables.claimed_by() != last.claim:
        raise CheckpointMismatchError(
            state_dir,
            f"another job claimed the tables when this one did (writer epoch {tables.epoch}), and "
            "won: what this checkpoint says of owners is out of date",
        )
    if damage:
        return new_checkpoint(state_dir, present.epoch, damage, is_damaged=True)
    return Resumption(checkpoint=checkpoint, reason="")


def new_checkpoint(
    state_dir: Path, epoch: int, reason: str, *, is_damaged: bool = False
) -> Resumption:
    """Return the start with a new checkpoint, whose state the tables give."""
    name = f"epoch-{epoch}"
    while (state_dir / _FOLDER / name).exists():
        name += "-again"
    return Resumption(checkpoint=state_dir / _FOLDER / name, reason=reason, is_damaged=is_damaged)


def remove_old_checkpoints(state_dir: Path, current: Path) -> list[str]:
    """Remove unused checkpoints but the newest two; return their names."""
    others = [path for path in (state_dir / _FOLDER).glob("*") if path != current]
    others.sort(key=lambda path: (path.stat().st_mtime_ns, path.name))
    gone = others[:-_UNUSED_MAX]
    for path in gone:
        shutil.rmtree(path, ignore_errors=True)
    return [path.name for path in gone]


def check_standby(state_dir: Path, clusters: tuple[str, ...], state_schema: int) -> None:
    """Refuse to wait for an unusable checkpoint while its job still works."""
    # a damaged one is read again when the folder is free: its job may write it until then
    with suppress(DamagedStateError):
        last = read_manifest(state_dir)
        if last is not None:
            present = replace(last, clusters=clusters, state_schema=state_schema)
            _check_mismatches(state_dir, last, present)


def note_version(state_dir: Path, version: int) -> None:
    """Note the version of `ownership_events` at the end of a batch.

    Done before Spark notes the batch's end, so no checkpoint is ahead of the noted version.
    """
    path = state_dir / _VERSION_FILE
    if not path.exists() or path.read_bytes() != str(version).encode():
        atomic_write(path, str(version))


def write_manifest(state_dir: Path, present: Manifest, resumption: Resumption) -> None:
    """Write the manifest of the checkpoint in use, before the epoch is claimed."""
    written = asdict(replace(present, checkpoint=resumption.checkpoint.name))
    atomic_write(state_dir / _MANIFEST, json.dumps(written, indent=1))


def read_manifest(state_dir: Path) -> Manifest | None:
    """Return the manifest, also of an older version; None when there is none.

    Raises DamagedStateError.
    """
    path = state_dir / _MANIFEST
    try:
        found = json.loads(path.read_text())
        known = {one.name: one for one in fields(Manifest)}
        values = {name: value for name, value in found.items() if name in known}
        manifest = Manifest(**{**values, "clusters": tuple(values.get("clusters", ()))})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        is_empty = path.is_file() and not path.stat().st_size
        raise DamagedStateError(path, "it is empty" if is_empty else f"{error}") from error
    for name, one in known.items():
        kind: Any = get_origin(one.type) or one.type
        if not isinstance(getattr(manifest, name), kind):
            raise DamagedStateError(path, f"{name} has a value of another type")
    return manifest


def archive_state(state_dir: Path, *, dry_run: bool = False) -> list[Path]:
    """Move manifest and checkpoints to a new folder; return their new paths.

    Nothing is deleted.
    """
    names = [name for name in (_MANIFEST, _FOLDER, _VERSION_FILE) if (state_dir / name).exists()]
    target = state_dir / _SET_ASIDE / time.strftime("%Y%m%dT%H%M%S")
    while target.exists():
        target = target.with_name(f"{target.name}-again")
    if names and not dry_run:
        target.mkdir(parents=True)
        for name in names:
            (state_dir / name).replace(target / name)
    return [target / name for name in names]


def restored_mark(state_dir: Path) -> Path:
    """Return the file that marks restored tables until the next start."""
    return state_dir / _RESTORED


def query_id(checkpoint: Path) -> str:
    """Return Spark's query id of this checkpoint, which a query writes at its start."""
    return str(json.loads((checkpoint / "metadata").read_text())["id"])


def newest_begun(checkpoint: Path) -> int:
    """The newest batch that Spark has begun; -1 when there is none."""
    return max(numbered(checkpoint / "offsets"), default=-1)


def is_ended(checkpoint: Path, batch_id: int) -> bool:
    """Return True if Spark has committed this batch."""
    return (checkpoint / "commits" / str(batch_id)).exists()


def unfinished_batch(checkpoint: Path) -> int | None:
    """Return the begun batch that Spark will repeat; None without one."""
    begun = newest_begun(checkpoint)
    return None if begun < 0 or is_ended(checkpoint, begun) else begun


def _distrust(
    state_dir: Path, last: Manifest, present: Manifest, tables: ClaimedTables, *, is_damaged: bool
) -> str:
    """Return why the checkpoint can't be used, "" when it can.

    Raises when it must not be replaced.
    """
    checkpoint = state_dir / _FOLDER / last.checkpoint
    if not last.checkpoint or not checkpoint.is_dir():
        return "the checkpoint is gone"
    if tables.epoch > last.epoch >= 0:
        raise CheckpointMismatchError(
            state_dir,
            f"another job has taken over the tables since (writer epoch {tables.epoch}, this "
            f"checkpoint ends at {last.epoch}), so what it says of owners is out of date",
        )
    if not numbered(checkpoint / "commits"):
        return "the checkpoint has no finished batch"  # so it lacks the state that it began with
    unclaimed = 1 if last.claim else 0  # if a job died between its manifest and its claim
    if tables.epoch < last.epoch - unclaimed:
        raise CheckpointMismatchError(
            state_dir,
            f"the tables know writer epochs up to {tables.epoch}, this checkpoint was used under "
            f"{last.epoch}: these are other tables, or they were restored from a backup",
            _GO_ON_FROM_BACKUP,
        )
    _check_mismatches(state_dir, last, present)
    unfinished = None if is_damaged else unfinished_batch(checkpoint)
    is_half_written = unfinished is not None and tables.has_batch(unfinished, query_id(checkpoint))
    made_with = last.partitions or state_partitions(checkpoint)
    return _out_of_date(last, present, made_with, is_half_written=is_half_written)


def _damage(checkpoint: Path, tables: ClaimedTables) -> str:
    """Return the damage of a checkpoint, "" = none.

    One that ends before the tables is an old copy: Spark would decide later batches a second time.
    """
    found = find_damage(checkpoint)
    if found:
        return f"the checkpoint is damaged: {checkpoint / found}"
    last, newest = tables.last_commit(), newest_begun(checkpoint)
    if last and last["query_id"] == query_id(checkpoint) and last["batch_id"] > newest:
        return (
            f"the checkpoint {checkpoint} is an old copy: it ends with batch {newest}, the tables"
            f" have batch {last['batch_id']} of it"
        )
    return ""


def _own_files(state_dir: Path) -> tuple[Manifest | None, int]:
    """Return the manifest, and the version that `note_version` noted, -1 = none.

    Raises DamagedStateError.
    """
    manifest = read_manifest(state_dir)
    if manifest is None and any((state_dir / _FOLDER).glob("*/metadata")):
        raise DamagedStateError(state_dir / _MANIFEST, "it is missing, and checkpoints are not")
    path = state_dir / _VERSION_FILE
    try:
        return manifest, int(path.read_text()) if path.exists() else -1
    except (OSError, ValueError) as error:
        raise DamagedStateError(path, "it has no number") from error


def _check_proven(
    state_dir: Path, present: Manifest, tables: ClaimedTables, damaged: DamagedStateError
) -> None:
    """Raise `damaged` unless the tables match a checkpoint here and this Kafka."""
    last, queries = tables.last_commit() or {}, []
    for path in (state_dir / _FOLDER).glob("*/metadata"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            queries.append(query_id(path.parent))
    if last.get("query_id") not in queries or last.get("topics") != dict(present.topics):
        raise damaged
    with suppress(OSError, ValueError):
        _check_version(state_dir, int((state_dir / _VERSION_FILE).read_text()), tables)


def _check_version(state_dir: Path, noted_version: int, tables: ClaimedTables) -> None:
    """Refuse tables that lack commits which this checkpoint has seen."""
    if tables.events_version is not None and tables.events_version < noted_version:
        raise CheckpointMismatchError(
            state_dir,
            f"the table ownership_events is at version {tables.events_version}, this checkpoint "
            f"has seen {noted_version}: these are other tables, or they were restored from a "
            "backup",
            _GO_ON_FROM_BACKUP,
        )


def _check_mismatches(state_dir: Path, last: Manifest, present: Manifest) -> None:
    """Refuse a checkpoint of other clusters, another Kafka or a newer version."""
    if last.clusters and not set(last.clusters) & set(present.clusters):
        raise CheckpointMismatchError(
            state_dir,
            f"it was made for the clusters {', '.join(last.clusters)}, this job has "
            f"{', '.join(present.clusters)} (pipeline.clusters)",
        )
    if last.kafka_cluster and last.kafka_cluster != present.kafka_cluster:
        raise CheckpointMismatchError(
            state_dir,
            f"it was made with the Kafka cluster {last.kafka_cluster}, this one is "
            f"{present.kafka_cluster}",
        )
    if last.topics and last.topics.keys() != present.topics.keys():
        raise CheckpointMismatchError(
            state_dir,
            f"it reads the topics {', '.join(sorted(last.topics))}, this job has "
            f"{', '.join(sorted(present.topics))} (pipeline.topic_prefix)",
        )
    if last.state_schema > present.state_schema:
        raise CheckpointMismatchError(
            state_dir,
            f"its state has schema {last.state_schema}, this version reads up to "
            f"{present.state_schema}: it was written by a newer version of this code",
            _NEWER_ON,
        )


def _out_of_date(
    last: Manifest, present: Manifest, made_with: int, *, is_half_written: bool
) -> str:
    """Return why to rebuild. made_with: the checkpoint's partitions, 0 = not known."""
    recreated = sorted(name for name, known in last.topics.items() if present.topics[name] != known)
    is_alike = all(
        getattr(last, name) == getattr(present, name)
        for name in ("code_version", "config_version", "origins")
    )
    reasons = (
        (recreated, f"topics were made anew: {', '.join(recreated)}"),
        (last.layout != LAYOUT, "this version reads Kafka or lays the state out otherwise"),
        (
            last.scorer_groups != present.scorer_groups,
            "the number of scorer groups was changed",
        ),
        (
            made_with != present.partitions and made_with and present.partitions,
            f"the number of state partitions was changed: {made_with} to {present.partitions}",
        ),
        (
            is_half_written and not is_alike,
            "a batch was left half written by other code or settings",
        ),
    )
    return next((reason for is_so, reason in reasons if is_so), "")


_RETRY_S = 0.02


@contextmanager
def hold_folder(state_dir: Path, *, until: threading.Event | None = None) -> Iterator[bool]:
    """Hold the folder's lock. Raises CommandError when another process has it.

    until: wait for the lock, and give up when this is set; yields False then.
    """
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        file = (state_dir / "lock").open("a")
    except OSError as error:
        raise CommandError(
            f"the lock of the state folder can't be opened: {state_dir / 'lock'}",
            why=cause_message(error),
            next_step="give this user the right to write there, or move what is in the way; what"
            " the lock file holds does not matter",
        ) from error
    with file as lock:
        while not (is_held := _try_lock(lock)) and until is not None and not until.wait(_RETRY_S):
            pass
        if until is None and not is_held:
            raise CommandError(
                f"the state folder {state_dir} is in use",
                why="another balance_cluster job of this machine holds its lock",
                next_step="stop that job first, or give this one another --state-dir",
            )
        yield is_held


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return True
