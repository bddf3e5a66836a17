"""The modular manager's split rule, to the letter: what the leader splits of all brokers' bundles.

Decides which bundles it would split in one run, without memory. The job runs
`lbcore.plan.phases.split` instead, whose limits are held to this one's. Source: Pulsar 4.0.8,
BundleSplitterTask.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from lbcore.config.splitting import Splitting
from lbcore.model.names import split_bundle_name
from lbcore.plan.split.decision import SplitReason
from tests.conformance.reference.extensible_split import LookupFailedError, SeenBundle, limit_reason


def find_modular_splits(
    brokers: Iterable[tuple[str, Sequence[SeenBundle]]],
    long_term: Mapping[str, tuple[float, float]],
    config: Splitting,
    bundle_count: Callable[[str], int],
) -> dict[str, str]:
    """The bundles to split, each with the broker that reported it, in the order of the input.

    brokers: each with its last report. long_term: bundle -> long-term (msg/s, bytes/s), in and out
    together; 0 where absent: the report's own rates play no part. bundle_count: of a namespace; may
    raise LookupFailedError, and then the bundle is passed over. A namespace gets no more bundles
    than `max_namespace_bundles`, counting those chosen before in this run. There is no hit count
    and no limit a cycle.
    """
    found: dict[str, str] = {}
    chosen: dict[str, int] = {}
    for broker, bundles in brokers:
        for bundle in bundles:
            rate, throughput = long_term.get(bundle.name, (0.0, 0.0))
            averaged = replace(bundle, msg_rate=rate, throughput=throughput)
            if bundle.topics < 2 or limit_reason(averaged, config) is SplitReason.UNKNOWN:
                continue
            namespace = split_bundle_name(bundle.name)[0]
            if _has_room(namespace, chosen, config, bundle_count):
                found[bundle.name] = broker
                chosen[namespace] = chosen.get(namespace, 0) + 1
    return found


def _has_room(
    namespace: str,
    chosen: Mapping[str, int],
    config: Splitting,
    bundle_count: Callable[[str], int],
) -> bool:
    try:
        count = bundle_count(namespace)
    except LookupFailedError:
        return False
    return count + chosen.get(namespace, 0) < config.max_namespace_bundles
