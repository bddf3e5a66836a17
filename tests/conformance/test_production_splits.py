"""What the job runs instead of Pulsar's split rules, held to the answers that Pulsar gave to them.

`decide_splits` has an order and a memory of its own, so a case's answer is held where both must
agree: which bundles are over a limit, and which limit is named; and, where the modular manager
splits at once, which bundles are split by whom.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lbcore.config.splitting import Splitting
from lbcore.model.names import split_bundle_name
from lbcore.plan.phases.split import decide_splits, find_overloaded
from lbcore.plan.snapshot import BundleTable
from lbcore.plan.split.decision import LIMIT_REASONS, SplitReason, SplitState
from tests.conformance.reference.extensible_split import limit_reason
from tests.conformance.reference.pulsar_section import section_from_pulsar
from tests.conformance.runner import Case, read_cases
from tests.conformance.split import seen_bundle
from tests.support.values.clusters import bundle_table, cluster_of

CASES = [
    case
    for path in sorted((Path(__file__).parent / "cases").glob("*.jsonl"))
    for case in read_cases(path)
    if case["fn"] in {"ext_split", "mod_split"}
]
MODULAR = [case for case in CASES if case["fn"] == "mod_split"]
RATES = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")


def table_of(reported: Mapping[str, Mapping[str, Any]], owner: Mapping[str, int]) -> BundleTable:
    """The bundles at rest; both averages are what was reported."""
    names = sorted(reported)
    rows = [reported[name] for name in names]
    rates = np.array([[float(row.get(rate) or 0) for rate in RATES] for row in rows]).reshape(-1, 4)
    return bundle_table(
        names,
        owner=np.array([owner.get(name, 0) for name in names], dtype=np.int64),
        short=rates,
        long=rates,
        topics=np.array([row.get("topics") or 0 for row in rows], dtype=np.int64),
        sessions=np.array([seen_bundle("", row).sessions for row in rows], dtype=np.int64),
    )


def reports_of(case: Case) -> Iterator[dict[str, Mapping[str, Any]]]:
    """What brokers said of bundles, report after report."""
    for call in case.get("calls", ()):
        yield {each["bundle"]: each["stats"] for each in call.get("bundleStats", ())}
    yield from (broker.get("lastStats") or {} for broker in case.get("brokers", ()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_limits_of_the_job_are_pulsars(case: Case) -> None:
    config = section_from_pulsar(Splitting, case.get("config", {}))
    for reported in filter(None, reports_of(case)):
        bundles = table_of(reported, {})
        over = find_overloaded(bundles, config)
        found = {
            bundles.names[at]: LIMIT_REASONS[reason]
            for at, reason in zip(over.bundle.tolist(), over.reason.tolist(), strict=True)
        }
        wanted = {
            name: limit_reason(seen_bundle(name, stats), config) for name, stats in reported.items()
        }
        assert found == {
            name: reason for name, reason in wanted.items() if reason is not SplitReason.UNKNOWN
        }


def known_to(case: Case) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """Each bundle's long-term rates, its owner, and idle ones up to the namespace's count."""
    known: dict[str, dict[str, Any]] = {}
    owner: dict[str, int] = {}
    for at, broker in enumerate(case["brokers"]):
        for name, stats in (broker.get("lastStats") or {}).items():
            averages = (case.get("bundles") or {}).get(name, {})
            counted = averages.get("long") or averages
            known[name] = {**stats, **{rate: counted.get(rate) for rate in RATES}}
            owner[name] = at
    for namespace, count in (case.get("namespaceBundleCount") or {}).items():
        there = sum(split_bundle_name(name)[0] == namespace for name in known)
        for number in range(count - there):
            lower = 0xF0000000 + 16 * number
            known[f"{namespace}/0x{lower:08x}_0x{lower + 16:08x}"] = {}
    return known, owner


@pytest.mark.parametrize("case", MODULAR, ids=lambda case: str(case["id"]))
def test_job_without_hit_counts_splits_what_the_modular_manager_splits(case: Case) -> None:
    config = section_from_pulsar(Splitting, case.get("config", {}))
    at_once = replace(config, hit_count_threshold=0, max_splits_per_cycle=10_000)
    known, owner = known_to(case)
    names = [broker["name"] for broker in case["brokers"]]
    snapshot = cluster_of({name: [] for name in names})
    bundles = table_of(known, owner)
    decisions, _, _ = decide_splits(
        replace(snapshot, bundles=bundles),
        SplitState(),
        at_once,
        np.zeros(len(bundles.names), dtype=np.bool_),
    )
    assert {each.name: each.broker for each in decisions} == case["expected"]["split"]
