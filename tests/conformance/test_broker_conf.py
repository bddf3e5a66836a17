"""A whole broker.conf, imported, decides as the file says: as Pulsar's own classes answered.

The cases of tests/conformance/cases are answered with the sections of an imported file instead of
those that a case's keys make alone; and plans are made where brokers say nothing of a load manager.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lbcore.config.placement import FilterConfig, PlacementConfig
from lbcore.config.pulsar_keys import from_pulsar_keys, parse_properties, resolve_changes
from lbcore.config.shedding import SheddingConfig, TransferConfig
from lbcore.config.signals import SignalsConfig
from lbcore.config.splitting import Splitting
from lbcore.config.tree import Config, changed
from lbcore.config.values import ConfigError
from lbcore.plan.decision import Kind, Plan, PlanState
from lbcore.plan.planner import plan
from lbcore.plan.snapshot import Snapshot
from lbcore.validation.check import check_config
from lbcore.validation.pulsar_import import ImportedConfig, import_keys
from tests.conformance import models, place, shed, split, transfer
from tests.conformance.runner import Case, difference, read_cases
from tests.support.values.clusters import cluster_of

FOLDER = Path(__file__).parents[1] / "broker_conf"
CASES = Path(__file__).parent / "cases"
BALANCE = "org.apache.pulsar.broker.loadbalance"
MODULAR = f"{BALANCE}.impl.ModularLoadManagerImpl"
EXTENSIBLE = f"{BALANCE}.extensions.ExtensibleLoadManagerImpl"
AVG = f"{BALANCE}.impl.AvgShedder"
SUPPORTED = "supportedNamespaceBundleSplitAlgorithms"
STRATEGY, PLACING = "loadBalancerLoadSheddingStrategy", "loadBalancerLoadPlacementStrategy"
SECTIONS = {
    SheddingConfig: "shedding",
    SignalsConfig: "signals",
    TransferConfig: "transfer",
    PlacementConfig: "placement",
    Splitting: "splitting",
    FilterConfig: "filters",
}
OLDER, NEWER, NEXT = "broker-4.0.8.conf", "broker-4.2.4.conf", "broker-5.0-83431ece.conf"
FILES = (OLDER, NEWER, NEXT, "defaults-4.2.4.properties", "defaults-5.0.0-M1.properties")
OF_THE_CASES: Mapping[str, Mapping[str, str]] = {
    OLDER: {},
    NEWER: {},
    NEXT: {"maxUnloadPercentage": "0.2", "loadBalancerDistributeBundlesEvenlyEnabled": "true"},
}
"""File → what of it the cases leave to the defaults of 4.0.8, which are others in 5.0.0."""

MANAGERS = (MODULAR, EXTENSIBLE)
SHED = (Kind.TRANSFER, Kind.UNLOAD)


def keys_of(file: str, **others: str) -> dict[str, str]:
    """The keys of a whole file, with others in place of its own."""
    return {**parse_properties((FOLDER / file).read_text(encoding="utf-8")), **others}


def stock(file: str, manager: str, **others: str) -> ImportedConfig:
    """A whole file as it is shipped, under a load manager."""
    return import_keys(keys_of(file, loadManagerClassName=manager, **others))


@pytest.mark.parametrize("manager", MANAGERS)
@pytest.mark.parametrize("file", FILES)
def test_stock_file_is_obeyed_whole_and_suits(file: str, manager: str) -> None:
    found = stock(file, manager)
    assert (found.refused, found.disobeyed) == ((), ())
    findings = [one.problem.key for one in check_config(found.config)]
    is_avg = found.config.shedding.strategy == "avg"  # churns beside isolation policies
    assert findings == ["shedding.is_pulsar_exact"] * is_avg
    assert found.config.filters.load_manager_class == ""
    assert found.config.shedding.rules == ("4.0" if "4.0.8" in file else "4.2")


def test_stock_modular_file_is_pulsars_own_defaults() -> None:
    config = stock("broker-4.0.8.conf", MODULAR).config
    assert config.shedding.strategy == "threshold"
    assert config.placement.strategy == "least_long_term_message_rate"
    assert (config.filters.pipeline, config.splitting.hit_count_threshold) == ("modular", 0)


def test_stock_extensible_file_takes_the_extensible_managers_strategies() -> None:
    found = stock("broker-4.0.8.conf", EXTENSIBLE)
    assert found.config.shedding.strategy == "transfer"
    assert found.config.placement.strategy == "least_resource_usage_with_weight"
    assert (found.config.filters.pipeline, found.config.splitting.averages) == (
        "extensible",
        "short",
    )
    assert {STRATEGY, PLACING} <= {item.key for item in found.notes}


def _answered(case: Case, file: str, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Where the answer differs when the case's keys stand in a whole file, by the file's rules."""
    keys_there = keys_of(file, **OF_THE_CASES[file])
    keys_there.pop("loadManagerClassName")

    def section(kind: type[Any], keys: Mapping[str, Any]) -> Any:
        config, _ = from_pulsar_keys({**keys_there, **keys})
        return getattr(config, SECTIONS[kind])

    for module in (models, place, shed, split, transfer):
        monkeypatch.setattr(module, "section_from_pulsar", section)
    rules = import_keys(keys_there).config.shedding.rules
    return difference({**case, "rules": rules})


def _cases() -> Iterator[Any]:
    """(file, case): every case once in each file, with the answer of the file's release."""
    newer = {case["id"]: case for path in CASES.glob("4.2.4/*.jsonl") for case in read_cases(path)}
    for name in ("shed-*", "place", "transfer", "split", "upstream", "seeds"):
        for path in sorted(CASES.glob(f"{name}.jsonl")):
            for case in read_cases(path):
                for file in OF_THE_CASES:
                    answered = case if file == OLDER else newer.get(case["id"], case)
                    yield pytest.param(file, answered, id=f"{file}:{case['id']}")


@pytest.mark.parametrize(("file", "case"), list(_cases()))
def test_case_within_a_whole_file_is_answered_as_its_release_does(
    file: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _answered(case, file, monkeypatch) is None


def _moves(config: Config, cluster: Snapshot, cycles: int = 8) -> set[tuple[str, str]]:
    """(source, destination) of what is shed in these cycles, a minute apart."""
    state, found = PlanState(), set()
    for cycle in range(1, cycles + 1):
        now_ms = cycle * 60_000
        brokers = replace(
            cluster.brokers, updated_at_ms=np.full(len(cluster.brokers.names), now_ms - 1)
        )
        answer, state = plan(replace(cluster, brokers=brokers), state, config, now_ms)
        if isinstance(answer, Plan):
            found |= {(d.source, d.destination) for d in answer.decisions if d.kind in SHED}
    return found


@pytest.mark.parametrize("manager", MANAGERS)
@pytest.mark.parametrize("file", FILES)
def test_stock_file_sheds_from_the_hot_broker_where_brokers_name_no_manager(
    file: str, manager: str
) -> None:
    config = stock(file, manager).config
    loads = {"cold": [1_000.0] * 5, "hot": [1_000.0] * 90, "warm": [1_000.0] * 20}
    usages = np.array([0.05, 0.9, 0.2])
    cluster = cluster_of(loads, weighted_max_ema=usages, throughput_ema=usages * 1e8)
    found = _moves(config, cluster)
    assert found
    assert {source for source, _ in found} == {"hot"}


def test_topic_limit_of_the_stock_file_holds_under_the_modular_pipeline() -> None:
    config = stock("broker-4.0.8.conf", MODULAR).config
    loads = {"full": [10.0], "hot": [1_000.0] * 90, "open": [1_000.0] * 20}
    cluster = cluster_of(loads, topic_count=np.array([60_000, 90, 20]))
    assert {there for _, there in _moves(config, cluster)} == {"open"}


def test_stock_file_of_5_0_0_has_the_avg_shedder_and_its_new_defaults() -> None:
    config = stock(NEXT, MODULAR).config
    assert (config.shedding.strategy, config.placement.strategy) == ("avg", "avg")
    assert (config.shedding.max_unload_fraction, config.filters.distribute_evenly) == (0.5, False)


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ((STRATEGY, PLACING), (STRATEGY, PLACING)),
        ((PLACING,), ()),
        (("maxUnloadPercentage",), ("maxUnloadPercentage",)),
    ],
)
def test_default_that_5_0_0_and_its_milestone_do_not_share_is_named_where_the_file_leaves_it(
    missing: tuple[str, ...], named: tuple[str, ...]
) -> None:
    keys = keys_of(NEXT, **{STRATEGY: f"{BALANCE}.impl.ThresholdShedder"})
    keys = {key: value for key, value in keys.items() if key not in missing}
    assert tuple(item.key for item in import_keys(keys).disobeyed) == named
    assert import_keys({**keys, "loadManagerClassName": EXTENSIBLE}).disobeyed == ()


def test_file_without_a_load_manager_is_modular_as_it_is_in_pulsar() -> None:
    keys = {"maxUnloadPercentage": "0.3"}
    named = import_keys({**keys, "loadManagerClassName": MODULAR})
    for without in (keys, {**keys, "loadManagerClassName": ""}):
        assert import_keys(without).config == named.config


@pytest.mark.parametrize("file", FILES)
def test_reports_have_the_cadences_of_the_manager(file: str) -> None:
    """Modular: broker and bundles together, by weight. Extensible: bundles with each statistics."""
    modular, extensible = (stock(file, manager).config.signals for manager in MANAGERS)
    checked = (modular.report_check_ms, modular.report_max_interval_ms)
    assert checked == (5_000, 900_000)
    assert (modular.report_by_weight, modular.bundle_report_interval_ms) == (True, 0)
    assert (extensible.report_by_weight, extensible.bundle_report_interval_ms) == (False, 60_000)


def test_statistics_at_another_interval_are_the_bundles_interval_or_named() -> None:
    often = {"statsUpdateFrequencyInSecs": "15"}
    found = stock(OLDER, EXTENSIBLE, **often)
    assert (found.is_obeyed, found.config.signals.bundle_report_interval_ms) == (True, 15_000)
    assert [item.key for item in stock(OLDER, MODULAR, **often).disobeyed] == list(often)


def test_half_an_avg_shedder_is_refused_and_a_whole_one_taken() -> None:
    for half in ({STRATEGY: AVG}, {PLACING: AVG}):
        assert stock("broker-4.0.8.conf", MODULAR, **half).refused
    whole = stock("broker-4.0.8.conf", MODULAR, **{STRATEGY: AVG, PLACING: AVG})
    assert whole.is_obeyed
    assert (whole.config.shedding.strategy, whole.config.placement.strategy) == ("avg", "avg")


@pytest.mark.parametrize(
    ("others", "key"),
    [
        ({"loadManagerClassName": f"{BALANCE}.impl.SimpleLoadManagerImpl"}, "loadManagerClassName"),
        ({STRATEGY: "com.example.MyShedder"}, STRATEGY),
        ({PLACING: "com.example.MyPlacement"}, PLACING),
        ({STRATEGY: f"{BALANCE}.extensions.scheduler.TransferShedder"}, STRATEGY),
    ],
)
def test_class_that_the_manager_can_not_load_is_refused(
    others: Mapping[str, str], key: str
) -> None:
    found = import_keys(keys_of("broker-4.0.8.conf", **others))
    assert [item.key for item in found.refused] == [key]


@pytest.mark.parametrize(
    ("others", "setting"),
    [
        ({SUPPORTED: "topic_count_equally_divide"}, "splitting.algorithm"),
        ({SUPPORTED: "range_equally_divide,by_chance"}, "splitting.supported_algorithms"),
    ],
)
def test_split_algorithms_that_pulsar_does_not_start_with_are_refused(
    others: Mapping[str, str], setting: str
) -> None:
    found = stock(NEWER, EXTENSIBLE, **others)
    assert [item.key for item in found.refused] == [setting]


@pytest.mark.parametrize(
    "others", [{"loadBalancerMultiPhaseBundleUnload": "false"}, {"loadBalancerMagic": "1"}]
)
def test_key_that_would_not_be_obeyed_is_named(others: Mapping[str, str]) -> None:
    found = import_keys(keys_of("broker-4.0.8.conf", **others))
    assert [item.key for item in found.disobeyed] == list(others)


def test_load_manager_can_not_be_changed_by_a_command() -> None:
    with pytest.raises(ConfigError, match=r"pulsar-4\.0-extensible"):
        resolve_changes({"loadManagerClassName": EXTENSIBLE})


def test_debug_mode_on_and_off_again_changes_no_decision() -> None:
    for start in (Config(), stock("broker-4.0.8.conf", EXTENSIBLE).config):
        config = start
        for value in ("true", "false"):
            config = changed(config, resolve_changes({"loadBalancerDebugModeEnabled": value}))
            assert replace(config, telemetry=start.telemetry) == start
