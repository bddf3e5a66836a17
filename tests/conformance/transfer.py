"""Cases of Pulsar's TransferShedder, answered by `lbcore.plan.shed.transfer`."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lbcore.config.shedding import TransferConfig
from lbcore.config.signals import SignalsConfig
from lbcore.plan.shed.common import TransferState
from lbcore.plan.shed.transfer import (
    Reason,
    TopBundle,
    TransferOutcome,
    TransferView,
    find_transfers,
)
from tests.conformance.extensible import NOW_MS, LoadStore
from tests.conformance.reference.pulsar_section import section_from_pulsar
from tests.conformance.runner import Case, Handler
from tests.conformance.view import calls_of, java_hash_order, numbers

EVERY_NAMESPACE = "*"
POLICY_INPUTS = ("allowedBrokers", "filterThrows", "isolationNamespaces", "antiAffinityNamespaces")
THROUGHPUTS = ("msgThroughputIn", "msgThroughputOut")


@dataclass(slots=True, kw_only=True)
class Cluster:
    """What one case's calls have left: load store, reports, ownership; the shedder's lookup."""

    case: Case
    store: LoadStore
    config: TransferConfig
    reports: dict[str, tuple[TopBundle, ...]] = field(default_factory=dict)
    registered: frozenset[str] | None = frozenset()
    owners: Mapping[str, str] | None = None
    recently_unloaded: set[str] = field(default_factory=set)

    def apply(self, call: Case) -> None:
        """Everything a call says before the cycle runs."""
        self.store.apply(call)
        if "topBundles" in call:
            self.reports = {}
        for key in ("topBundles", "updateTopBundles"):
            for broker, top in (call.get(key) or {}).items():
                self.reports[broker] = tuple(map(_top_bundle, top or ()))
        if "availableBrokers" in call:
            self.registered = frozenset(call["availableBrokers"])
        if "owners" in call:
            self.owners = call["owners"]
        if "recentlyUnloadedBundles" in call:
            self.recently_unloaded = set(call["recentlyUnloadedBundles"])

    def view(self, call: Case) -> TransferView:
        """The load store in the case's order."""
        names = list(self.store.records)
        if self.case.get("storeOrder") == "hash":
            names = java_hash_order(names)
        records = [self.store.records[name] for name in names]
        is_failing = call.get("availableBrokersLookupFails", False)
        return TransferView(
            names=tuple(names),
            load=np.array([record.load for record in records]),
            throughput=np.array([record.throughput for record in records]),
            throughput_ema=np.array([record.throughput_ema for record in records]),
            updated_at_ms=np.array([record.updated_at_ms for record in records], dtype=np.int64),
            registered=None if is_failing else self.registered,
            report=self.report,
            admits=self.admits,
        )

    def report(self, broker: str) -> Sequence[TopBundle] | None:
        """The broker's report, with what the channel and earlier calls say of each bundle."""
        reported = self.reports.get(broker)
        return reported and [
            replace(
                top,
                is_own=self.is_owner(top.bundle, broker),
                is_held=top.bundle in self.recently_unloaded or self.is_excluded(top.bundle),
            )
            for top in reported
        ]

    def admits(self, bundle: str, broker: str) -> bool:
        """Whether policies and filters let the broker have the bundle."""
        if self.has_policy(bundle) and not self.config.shed_bundles_with_policies:
            return False
        return broker in (self.candidates(bundle) or ())

    def is_owner(self, bundle: str, broker: str) -> bool:
        """What the channel says; without owners nobody asks it."""
        if self.case.get("channelOwnsNothing"):
            return False
        return self.owners is None or self.owners.get(bundle) == broker

    def is_excluded(self, bundle: str) -> bool:
        """4.0.8 has no such key; later versions do."""
        excluded = self.case.get("config", {}).get("loadBalancerSheddingExcludedNamespaces", ())
        return bundle.rpartition("/")[0] in excluded

    def has_policy(self, bundle: str) -> bool:
        """Whether its namespace, or every one, is listed."""
        namespace = bundle.rpartition("/")[0]
        named = [
            *self.case.get("isolationNamespaces", ()),
            *self.case.get("antiAffinityNamespaces", ()),
        ]
        return namespace in named or EVERY_NAMESPACE in named

    def candidates(self, bundle: str) -> Container[str] | None:
        """Without policies a case has no service context: every broker of the store is one."""
        if not any(key in self.case for key in POLICY_INPUTS):
            return self.store.records
        if self.case.get("filterThrows"):
            return None
        registered = self.registered or frozenset()
        allowed = self.case.get("allowedBrokers", {})
        namespace, _, bundle_range = bundle.rpartition("/")
        for key in (f"{namespace}/{bundle_range.lower()}", namespace):
            if key in allowed:
                return registered.intersection(allowed[key])
        return registered


def _top_bundle(given: Mapping[str, Any]) -> TopBundle:
    throughput_in, throughput_out = numbers(given, THROUGHPUTS).tolist()
    return TopBundle(bundle=given["bundle"], throughput=throughput_in + throughput_out)


def transfer(case: Case) -> dict[str, Any]:
    """One shedder through the calls of a case."""
    keys = case.get("config", {})
    config = section_from_pulsar(TransferConfig, keys)
    signals = section_from_pulsar(SignalsConfig, keys)
    cluster = Cluster(case=case, store=LoadStore(signals=signals), config=config)
    state, counter = TransferState(), Counter[str]()
    answers = []
    for call, is_repetition in calls_of(case):
        if not is_repetition:
            cluster.apply(call)
            state = _with_unloaded(state, call)
        outcome, state = find_transfers(cluster.view(call), state, config, NOW_MS)
        if call.get("applyUnload"):
            cluster.recently_unloaded |= {decision.bundle for decision in outcome.decisions}
        if outcome.reason is not None:
            label = "Failure" if outcome.reason is Reason.UNKNOWN else "Skip"
            counter[f"{label}/{outcome.reason.value}"] += 1
        answers.append({**_answer(outcome, state), "counter": dict(counter)})
    return {"calls": answers}


def _with_unloaded(state: TransferState, call: Case) -> TransferState:
    given = call.get("recentlyUnloadedBrokers")
    if given is None:
        return state
    at_ms = {broker: NOW_MS - about["ageMs"] for broker, about in given.items()}
    return replace(state, unloaded_brokers=at_ms)


def _answer(outcome: TransferOutcome, state: TransferState) -> dict[str, Any]:
    decisions = [
        {
            "source": decision.source,
            "bundle": decision.bundle,
            "destination": decision.destination or None,
            "label": "Success",
            "reason": decision.reason.value,
        }
        for decision in outcome.decisions
    ]
    return {
        "decisions": sorted(decisions, key=lambda made: (made["source"], made["bundle"])),
        "loadAvg": state.load_avg,
        "loadStd": state.load_std,
        "finalStd": outcome.final_std,
        "hits": state.hits,
        "recentlyUnloadedBrokersLeft": sorted(state.unloaded_brokers),
    }


HANDLERS: dict[str, Handler] = {"transfer": transfer}
