"""Where the query goes on: from its checkpoint, or from the tables.

Decides which: a checkpoint that other code or settings left with an unfinished batch is not
trusted to repeat it alike, one that is missing or was made for other groups can't be used; then
the state is rebuilt from the tables, and reading starts at the end of the last committed batch.
Source: ours.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lbcore

_MANIFEST = "job.json"
_FOLDER = "checkpoints"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Under what a checkpoint was made and last used."""

    code_version: str
    config_version: str
    scorer_groups: int
    checkpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """Where to go on. reason: why the state is rebuilt, "" when the checkpoint goes on."""

    checkpoint: Path
    reason: str

    @property
    def is_rebuilt(self) -> bool:
        """Whether the state comes from the tables."""
        return bool(self.reason)


def code_version() -> str:
    """Digest of the code whose decisions a repeated batch must repeat: all of lbcore."""
    root = Path(lbcore.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def choose_checkpoint(state_dir: Path, present: Manifest, epoch: int) -> Resumption:
    """Go on from the last checkpoint if it may be trusted, else from a new one.

    present: as things are now; its `checkpoint` is not looked at. Writes the manifest.
    """
    last = _read_manifest(state_dir)
    reason = _distrust(state_dir, last, present)
    name = f"epoch-{epoch}" if reason or last is None else last.checkpoint
    chosen = Resumption(checkpoint=state_dir / _FOLDER / name, reason=reason)
    written = {**asdict(present), "checkpoint": name}
    path = state_dir / _MANIFEST
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(written, indent=1))
    temporary.replace(path)
    return chosen


def query_id(checkpoint: Path) -> str:
    """Spark's id of the query of this checkpoint; it is there once the query has started."""
    found: str = json.loads((checkpoint / "metadata").read_text())["id"]
    return found


def unfinished_batch(checkpoint: Path) -> int | None:
    """The batch that was begun and not ended, which Spark will repeat; None when there is none."""
    begun = _numbers(checkpoint / "offsets")
    ended = _numbers(checkpoint / "commits")
    if begun and (not ended or begun[-1] > ended[-1]):
        return begun[-1]
    return None


def starting_offsets(
    last_commit: Mapping[str, Any] | None, partitions: Mapping[str, Mapping[int, int]]
) -> str:
    """Spark's startingOffsets: after the last committed batch, or from the earliest.

    partitions: topic → partition → earliest offset that Kafka still has.
    """
    ends = last_commit["offsets"] if last_commit else {}
    offsets = {
        topic: {
            str(partition): max(earliest, ends.get(topic, {}).get(str(partition), 0))
            for partition, earliest in sorted(by_partition.items())
        }
        for topic, by_partition in sorted(partitions.items())
    }
    return json.dumps(offsets)


def _read_manifest(state_dir: Path) -> Manifest | None:
    path = state_dir / _MANIFEST
    if not path.exists():
        return None
    return Manifest(**json.loads(path.read_text()))


def _distrust(state_dir: Path, last: Manifest | None, present: Manifest) -> str:
    if last is None:
        return "no checkpoint yet"
    checkpoint = state_dir / _FOLDER / last.checkpoint
    if not (checkpoint / "metadata").exists():
        return "the checkpoint is gone"
    if not _numbers(checkpoint / "commits"):
        return "the checkpoint has no finished batch"  # so it lacks the state it was begun with
    if last.scorer_groups != present.scorer_groups:
        return "the number of scorer groups was changed"
    is_other = (last.code_version, last.config_version) != (
        present.code_version,
        present.config_version,
    )
    if is_other and unfinished_batch(checkpoint) is not None:
        return "a batch was left unfinished by other code or settings"
    return ""


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
