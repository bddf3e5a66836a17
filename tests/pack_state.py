"""A small cluster's state as today's code packs it, and what is in it."""

import base64
from collections.abc import Mapping
from typing import Any

from lbcore.config.tree import Config
from tests.support.worlds.world import World

_OF_RECORDS = (
    "bundle", "version_id", "state", "source", "destination", "destination_incarnation",
)  # fmt: skip


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
