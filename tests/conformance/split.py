"""Cases of splitting: the range set, the algorithms, and the decisions of both managers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lbcore.config.splitting import Splitting
from lbcore.model.bundles import (
    BundleRange,
    InvalidRangeError,
    crc32,
)
from lbcore.model.names import format_bundle
from lbcore.plan.split.algorithms import (
    MissingPositionsError,
    SplitAlgorithm,
    TopicLoads,
    flow_or_qps_boundaries,
    forced_boundaries,
    range_boundaries,
    resolve_algorithm,
    specified_boundaries,
    topic_count_boundaries,
)
from tests.conformance.bundles import hex_text, java_bundle, java_bundles, java_long, java_range
from tests.conformance.reference.bundle_sets import FULL_RANGE
from tests.conformance.reference.bundle_split import UnknownBundleError, split_bundles
from tests.conformance.reference.extensible_split import (
    BrokerView,
    ExtensibleSplit,
    ExtensibleState,
    LookupFailedError,
    SeenBundle,
    decide_extensible_splits,
)
from tests.conformance.reference.modular_split import find_modular_splits
from tests.conformance.reference.pulsar_section import section_from_pulsar
from tests.conformance.runner import Case, Handler, JavaError
from tests.conformance.view import calls_of

STORED_VERSION = 7


def split_range(case: Case) -> dict[str, Any]:
    """NamespaceBundleFactory.splitBundles."""
    source = java_bundles(case.get("namespace", "tenant/ns"), case["source"], STORED_VERSION)
    target = java_range(case["target"])
    at = [java_long(boundary) for boundary in case.get("splitBoundaries") or ()]
    try:
        split = split_bundles(source, target, at=at, parts=case["numBundles"])
    except UnknownBundleError:
        return {"children": None}
    except InvalidRangeError as error:
        raise JavaError(_refusal(target, at, case["numBundles"])) from error
    return {
        "totalBundles": len(split.bundles),
        "boundaries": [hex_text(boundary) for boundary in split.bundles.boundaries],
        "version": split.bundles.version,
        "children": [child.text for child in split.children],
    }


def _refusal(target: BundleRange, at: list[int], parts: int) -> str:
    """Java divides by the number of parts before anything else can object to it."""
    if parts == 0 and not at and target.can_split:
        return "ArithmeticException"
    return "IllegalArgumentException"


def split_algo(case: Case) -> dict[str, Any]:
    """NamespaceBundleSplitAlgorithm.getSplitBoundary of the algorithm of this name."""
    if case.get("nullOption"):
        raise JavaError("NullPointerException")
    config = section_from_pulsar(Splitting, case.get("config", {}))
    try:
        boundaries = _boundaries(case, config)
    except MissingPositionsError as error:
        raise JavaError("IllegalArgumentException") from error
    return {"boundaries": None if boundaries is None else list(boundaries)}


def _boundaries(case: Case, config: Splitting) -> tuple[int, ...] | None:
    algorithm = resolve_algorithm(case.get("algorithm"), config.algorithm)
    target = BundleRange(**case["bundle"]) if case.get("bundle") else FULL_RANGE
    topics = case.get("ownedTopics")
    if algorithm is SplitAlgorithm.RANGE:
        return range_boundaries(target)
    if algorithm is SplitAlgorithm.SPECIFIED_POSITIONS:
        return specified_boundaries(target, case.get("positions"), len(topics or ()))
    if algorithm is SplitAlgorithm.SPECIFIED_POSITIONS_FORCED:
        return forced_boundaries(target, case.get("positions"))
    loads = _topic_loads(case, topics)
    if algorithm is SplitAlgorithm.TOPIC_COUNT:
        return topic_count_boundaries(None if loads is None else loads.hashes.tolist())
    return flow_or_qps_boundaries(loads, config)


def _topic_loads(case: Case, topics: list[str] | None) -> TopicLoads | None:
    if topics is None:
        return None
    hashes, stats = case.get("hashes") or {}, case.get("topicStats") or {}
    return TopicLoads(
        hashes=np.array([hashes.get(topic, crc32(topic)) for topic in topics], dtype=np.int64),
        msg_rate=np.array([_total(stats.get(topic), "msgRate") for topic in topics]),
        throughput=np.array([_total(stats.get(topic), "msgThroughput") for topic in topics]),
    )


def _total(stats: Mapping[str, Any] | None, kind: str) -> float:
    """In and out together; missing numbers are 0."""
    given = stats or {}
    return float(given.get(f"{kind}In") or 0) + float(given.get(f"{kind}Out") or 0)


def seen_bundle(name: str, stats: Mapping[str, Any]) -> SeenBundle:
    """A bundle with what was reported of it; missing numbers are 0."""
    return SeenBundle(
        name=name,
        topics=stats.get("topics") or 0,
        sessions=(stats.get("consumerCount") or 0) + (stats.get("producerCount") or 0),
        msg_rate=_total(stats, "msgRate"),
        throughput=_total(stats, "msgThroughput"),
    )


def _bundle_count(given: Any, namespace: str) -> int:
    """`namespaceBundleCount`: a number, one for each namespace, or a text = the look-up throws."""
    count = given.get(namespace, 0) if isinstance(given, Mapping) else given
    if isinstance(count, str):
        raise LookupFailedError(count)
    return int(count or 0)


def ext_split(case: Case) -> dict[str, Any]:
    """DefaultNamespaceBundleSplitStrategyImpl.findBundlesToSplit, call after call."""
    config = section_from_pulsar(Splitting, case.get("config", {}))
    state = ExtensibleState()
    cycles: list[dict[str, Any]] = []
    bundles: list[SeenBundle] = []
    for call, _is_repetition in calls_of(case):
        if "bundleStats" in call:
            bundles = [seen_bundle(each["bundle"], each["stats"]) for each in call["bundleStats"]]
        decisions, state = decide_extensible_splits(
            bundles, state, config, _view(call, case["owner"])
        )
        answers = [_decision(each) for each in sorted(decisions, key=lambda each: each.bundle)]
        cycles.append({"decisions": answers, "hits": state.hits, "counter": state.counter})
    return {"cycles": cycles}


def _view(call: Mapping[str, Any], owner: str) -> BrokerView:
    not_owned = set(call.get("notOwned") or ())
    answers = {
        java_bundle(name).name: answer for name, answer in (call.get("splitBoundary") or {}).items()
    }
    counts = call.get("namespaceBundleCount")

    def boundaries_of(namespace: str, target: BundleRange) -> list[int] | None:
        name = format_bundle(namespace, target.lower, target.upper)
        if name not in answers:
            return list(range_boundaries(target))
        answer = answers[name]
        if answer is None:
            return None
        return [java_long(each) for each in (answer if isinstance(answer, list) else [answer])]

    return BrokerView(
        broker=owner,
        is_owner=lambda name: call.get("isOwner", True) and name not in not_owned,
        bundle_count=lambda namespace: _bundle_count(counts, namespace),
        boundaries_of=boundaries_of,
        splitting=call.get("splittingBundles") or (),
    )


def _decision(split: ExtensibleSplit) -> dict[str, Any]:
    return {
        "bundle": split.bundle,
        "sourceBroker": split.broker,
        "label": "Success",
        "reason": split.reason.value,
        "children": sorted(child.text for child in split.children),
    }


def mod_split(case: Case) -> dict[str, Any]:
    """BundleSplitterTask.findBundlesToSplit."""
    config = section_from_pulsar(Splitting, case.get("config", {}))
    long_term = {}
    for name, averages in (case.get("bundles") or {}).items():
        counted = averages.get("long") or averages
        long_term[name] = (_total(counted, "msgRate"), _total(counted, "msgThroughput"))
    brokers = [
        (
            broker["name"],
            [seen_bundle(name, stats) for name, stats in (broker.get("lastStats") or {}).items()],
        )
        for broker in case["brokers"]
    ]
    counts = case.get("namespaceBundleCount")
    found = find_modular_splits(
        brokers, long_term, config, lambda namespace: _bundle_count(counts, namespace)
    )
    return {"split": found}


HANDLERS: dict[str, Handler] = {
    "split_range": split_range,
    "split_algo": split_algo,
    "ext_split": ext_split,
    "mod_split": mod_split,
}
