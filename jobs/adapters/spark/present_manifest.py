"""Manifest and commit metadata that a job starting now would write.

`checkpoint` compares it with the last one.
"""

import hashlib
import json
from collections.abc import Mapping
from uuid import uuid4

from jobs.adapters.kafka.place import KafkaPlace
from jobs.adapters.spark.batch_sink import CommitIdentity
from jobs.adapters.spark.checkpoint import LAYOUT, Manifest, code_version
from lbcore.balancer import balancer
from lbcore.config.load import digest
from lbcore.config.tree import Config
from lbcore.scorer import tracks

STATE_SCHEMA = balancer.STATE_SCHEMA + tracks.STATE_SCHEMA
"""The newest schema of the state that this version reads, and the one that it writes."""


def present_manifest(
    config: Config, place: KafkaPlace, epoch: int, partitions: int = 0
) -> Manifest:
    """Under what this start works. epoch: the one that it is about to claim."""
    return Manifest(
        code_version=code_version(),
        config_version=digest(config),
        scorer_groups=config.pipeline.scorer_groups,
        state_schema=STATE_SCHEMA,
        layout=LAYOUT,
        partitions=partitions,
        clusters=tuple(config.pipeline.clusters),
        kafka_cluster=place.cluster_id,
        topics=place.topics,
        epoch=epoch,
        claim=uuid4().hex,
        origins=_digest(config.origins),
        own={name: own.code for name, own in config.own.items()},
    )


def identity_of(present: Manifest) -> CommitIdentity:
    """Return the identity for the job's commits; the query's id is known later."""
    return CommitIdentity(
        query_id="",
        code_version=present.code_version,
        config_version=present.config_version,
        topics=present.topics,
    )


def _digest(origins: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(origins.items())).encode()).hexdigest()
