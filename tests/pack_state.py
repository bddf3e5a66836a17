"""Keeps a state as today's code packs it, before STATE_SCHEMA rises: `python -m tests.pack_state`.

Run it with the code of before: what it writes beside test_older_states.py is never made again, and
that test holds that all later code goes on from it.
"""

import base64
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lbcore.balancer.balancer import STATE_SCHEMA
from lbcore.config.tree import Config
from tests.support.worlds.world import World

FOLDER = Path(__file__).parent / "unit" / "machines" / "older_states"
_OF_RECORDS = (
    "bundle", "version_id", "state", "source", "destination", "destination_incarnation",
)  # fmt: skip


def path_of(schema: int) -> Path:
    """The file of a schema."""
    return FOLDER / f"schema_{schema}.json"


def packed_today() -> Mapping[str, Any]:
    """Three brokers of which one was killed, two namespaces, settings; and what is in them."""
    world = World(Config(), 3, seed=7)
    world.run(5_000)
    world.command("create_namespace", namespace="t/crc", bundles=4)
    world.command("create_namespace", namespace="t/murmur", bundles=4, hash="murmur3_32")
    world.command("set_config", settings={"shedding.strategy": "uniform"})
    world.run(30_000)
    world.kill("broker-2:8080")
    world.run(25_000)
    state = world.state
    if state is None:
        raise ValueError("the job must have run, got no state")
    records = [state.ledger.record(name) for name in state.ledger.names]
    job = world.job
    scorers = {group: job.scorers[group].pack(found) for group, found in job.scored.items()}
    return {
        "made_by": f"state schema {STATE_SCHEMA}, a world of three brokers of which one was killed",
        "now_ms": world.now_ms,
        "balancer": _texts(job.balancer.pack(state)),
        "scorers": {str(group): _texts(chunks) for group, chunks in scorers.items()},
        "records": [_row(record) for record in records if record is not None],
        "brokers": sorted(state.brokers),
        "namespaces": sorted(state.namespaces),
        "commands": dict(state.commands),
        "settings": dict(state.settings),
        "config_changes": state.rules.config_changes,
    }


def _row(record: Any) -> dict[str, Any]:
    row = {name: getattr(record, name) for name in _OF_RECORDS}
    return {**row, "state": record.state.value}


def _texts(chunks: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(chunk).decode() for name, chunk in sorted(chunks.items())}


if __name__ == "__main__":
    kept = json.dumps(packed_today(), indent=1, sort_keys=True) + "\n"
    path_of(STATE_SCHEMA).write_text(kept, encoding="utf-8")
    sys.stdout.write(f"{path_of(STATE_SCHEMA)} is written: now raise STATE_SCHEMA\n")
