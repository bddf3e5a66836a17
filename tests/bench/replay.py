"""Holds a job's commits against its batches run again: the digests of their effects must agree.

Source: ours.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from jobs.adapters.delta.commits import METADATA_KEY
from jobs.adapters.delta.tables import open_table
from jobs.adapters.spark.batch_sink import EVENTS, effects_digest
from lbcore.config.tree import Config
from tests.replay import replay


@dataclass(slots=True)
class Replayed:
    """What came of it: batches run again, those with a digest to compare, ids that differ."""

    batches: int = 0
    compared: int = 0
    messages: int = 0
    different: list[int] = field(default_factory=list)


def compare_digests(bootstrap: str, checkpoint: Path, tables: Path, config: Config) -> Replayed:
    """Run every batch of the checkpoint again, and compare it with what its commit says of it."""
    commits = open_table(tables, EVENTS).history()
    said = [json.loads(commit[METADATA_KEY]) for commit in commits if METADATA_KEY in commit]
    digests = {about["batch_id"]: about["effects_sha256"] for about in said}
    found = Replayed()
    for batch in replay(bootstrap, checkpoint, config):
        found.batches += 1
        found.messages += batch.messages
        if batch.number in digests:
            found.compared += 1
            if digests[batch.number] != effects_digest(batch.effects):
                found.different.append(batch.number)
    return found
