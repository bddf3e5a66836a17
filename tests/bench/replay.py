"""Holds a job's commits against its batches run again: the digests of their effects must agree.

python -m tests.bench pipeline --scale small --steps steady,replay --folder RUN
python -m tests.bench.replay RUN

The second says whether this code, which may be another than what made the run, comes to the very
effects that were committed. What can't be compared is refused, not counted as different: batches of
other settings, and runs whose first batch or state is gone.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from jobs.adapters.delta.table_log import METADATA_KEY
from jobs.adapters.delta.tables import open_table
from jobs.adapters.processes.settings import load_settings
from jobs.adapters.spark.batch_sink import EVENTS, effects_digest
from jobs.adapters.spark.checkpoint import query_id
from jobs.console import CommandError
from lbcore.config.load import digest
from lbcore.config.tree import Config
from tests.replay import KEEP_BATCHES, replay
from tests.support.processes.kafka_cluster import KafkaNode


@dataclass(slots=True)
class Replayed:
    """What came of it: batches run again, those with a digest to compare, ids that differ."""

    batches: int = 0
    compared: int = 0
    messages: int = 0
    different: list[int] = field(default_factory=list)


def compare_digests(bootstrap: str, checkpoint: Path, tables: Path, config: Config) -> Replayed:
    """Run every batch of the checkpoint again, and compare it with what its commit says of it.

    Raises NoBeginningError, and AssertionError where nothing was committed under these settings.
    """
    digests = _committed(checkpoint, tables, config)
    found = Replayed()
    for batch in replay(bootstrap, checkpoint, config):
        found.batches += 1
        found.messages += batch.messages
        if batch.number in digests:
            found.compared += 1
            if digests[batch.number] != effects_digest(batch.effects):
                found.different.append(batch.number)
    return found


def _committed(checkpoint: Path, tables: Path, config: Config) -> Mapping[int, str]:
    """Batch → digest of its effects, of the batches of this checkpoint that have events."""
    commits = open_table(tables, EVENTS).history()
    every = [json.loads(commit[METADATA_KEY]) for commit in commits if METADATA_KEY in commit]
    query = query_id(checkpoint)
    own: list[dict[str, Any]] = [about for about in every if about["query_id"] == query]
    assert own, f"no commit of {EVENTS} in {tables} is of the query of {checkpoint}"
    other = sorted(about["batch_id"] for about in own if about["config_version"] != digest(config))
    assert not other, f"batch {other[:1]} was decided under other settings: give every --set"
    return {about["batch_id"]: about["effects_sha256"] for about in own}


def main(argv: Sequence[str] | None = None) -> int:
    """Replay a folder of the bench `pipeline`; 1 when a batch came to other effects."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help=f"of a run with `--spark {KEEP_BATCHES}`")
    parser.add_argument("--set", action="append", default=[], help="the job's setting, key=value")
    args = parser.parse_args(argv)
    (checkpoint,) = (args.folder / "job" / "checkpoints").iterdir()
    try:
        with KafkaNode(args.folder / "kafka") as kafka:
            found = compare_digests(
                kafka.bootstrap, checkpoint, args.folder / "tables", load_settings([], args.set)
            )
    except (CommandError, AssertionError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(asdict(found)) + "\n")
    return int(bool(found.different))


if __name__ == "__main__":
    sys.exit(main())
