"""A whole broker.conf as a configuration: its settings, and what has no effect.

Refused are keys with which Pulsar would not start, and classes that are not here; keys that have no
effect are named. `ballast config import` writes the outcome. Source: Pulsar 4.0.8, 4.2.4 and
5.0.0-M1, ServiceConfiguration and both load managers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lbcore.config.placement import (
    EXTENSIBLE,
    LOAD_MANAGERS,
    MODULAR,
    PLACEMENT,
    SHEDDING,
    TRANSFER,
    java_class,
    short_name,
)
from lbcore.config.pulsar_keys import (
    WITHOUT_EFFECT,
    WITHOUT_EFFECT_IN_MODULAR,
    from_pulsar_keys,
    is_about_balancing,
    is_blank,
    trim,
)
from lbcore.config.shedding import RULES_4_0, RULES_4_2
from lbcore.config.tree import SETTINGS, Config, changed
from lbcore.config.values import Problem, shown_value
from lbcore.plan.registry import PLACEMENT_STRATEGIES, SHEDDING_STRATEGIES
from lbcore.validation.check import check_config

MANAGER = "loadManagerClassName"
STRATEGY = "loadBalancerLoadSheddingStrategy"
PLACING = "loadBalancerLoadPlacementStrategy"
KEYS_SINCE_5_0 = (
    "defaultNumberOfSystemNamespaceBundles",
    "loadManagerMigrationEnabled",
    "scalableTopicsEnabled",
    "tlsFactoryClassName",
)
"""Keys that no ServiceConfiguration of 4.2 has: a file with one is of 5.0."""

KEYS_SINCE_4_2 = (
    "allowedTopicPropertyKeysForMetrics",
    "exposeCustomTopicMetricLabelsEnabled",
    "loadBalancerOverrideBrokerNics",
    "loadBalancerSheddingExcludedNamespaces",
    *KEYS_SINCE_5_0,
)
"""Keys that no ServiceConfiguration of 4.0 has: a file with one is of 4.2 or later. The first two
stand in the broker.conf that 4.2 ships, which names none of the others."""

_SINCE_5_0: Mapping[str, tuple[str, str]] = {
    STRATEGY: ("ThresholdShedder", "AvgShedder"),
    PLACING: ("LeastLongTermMessageRate", "AvgShedder"),
    "loadBalancerDistributeBundlesEvenlyEnabled": ("true", "false"),
    "maxUnloadPercentage": ("0.2", "0.5"),
}
"""Keys whose default is another one in 5.0.0: that of up to 5.0.0-M1, and that of 5.0.0."""

_EVERY_BROKERS = (
    "advertisedAddress",
    "bindAddress",
    "brokerServicePort",
    "clusterName",
    "configurationMetadataStoreUrl",
    "configurationStoreServers",
    "metadataStoreUrl",
    "webServicePort",
    "zookeeperServers",
)
"""Keys that are not about balancing, one of which every broker.conf has."""

_NOTHING = ("", "[]", "None", "Optional.empty")
"""Spellings of a key without a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedConfig:
    """A broker.conf as a configuration.

    refused: errors; with one there is no such configuration. disobeyed: changed keys without effect
    here. notes: on keys at Pulsar's defaults without effect here and on replaced strategies.
    unrelated: how many keys are not about balancing. ruled_by: the key that shows a release after
    4.0, whose rules apply; "" = none.
    """

    config: Config
    refused: tuple[Problem, ...] = ()
    disobeyed: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    unrelated: int = 0
    ruled_by: str = ""

    @property
    def is_obeyed(self) -> bool:
        """True if the configuration behaves in every respect as the file says."""
        return not self.refused and not self.disobeyed


def import_keys(keys: Mapping[str, str], rules: str = "") -> ImportedConfig:
    """Return the configuration that a file's keys mean.

    rules: release whose rules apply, "" = those of the release that the keys are of. Raises
    ConfigError for a value that can't be used.
    """
    manager = trim(keys.get(MANAGER, "")) or java_class(LOAD_MANAGERS[MODULAR])
    strange = tuple(_no_broker_conf(keys)) or tuple(_unknown_classes({**keys, MANAGER: manager}))
    keys = {**keys, MANAGER: manager}
    if strange:
        return ImportedConfig(config=Config(), refused=strange)
    config, unknown = from_pulsar_keys(keys)
    ruled_by = "" if rules else next((key for key in KEYS_SINCE_4_2 if key in keys), "")
    own_rules = RULES_4_2 if ruled_by else RULES_4_0
    config = changed(config, {"shedding.rules": rules or own_rules})
    refused = [*_unloadable(config), *(i.problem for i in check_config(config) if i.is_error)]
    named = [key for key in unknown if is_about_balancing(key)]
    is_extensible = config.filters.pipeline == EXTENSIBLE
    without = {**WITHOUT_EFFECT, **({} if is_extensible else WITHOUT_EFFECT_IN_MODULAR)}
    ineffective = {
        key: Problem(key=key, detail=f"{keys[key]} has no effect: {without[key].why}")
        for key in sorted(without.keys() & keys.keys())
    }
    differing = {
        key
        for key in ineffective
        if trim(keys[key]) not in _NOTHING
        and trim(keys[key]).lower() != without[key].default.lower()
    }
    return ImportedConfig(
        config=config,
        refused=tuple(refused),
        disobeyed=(
            *(Problem(key=key, detail=f"{keys[key]} is unknown here") for key in named),
            *(problem for key, problem in ineffective.items() if key in differing),
            *_of_either_5_0(keys, config),
        ),
        notes=(
            *(problem for key, problem in ineffective.items() if key not in differing),
            *_replaced(keys, config),
            *_loose_flags(keys),
        ),
        unrelated=len(set(unknown) - set(named) - set(ineffective)),
        ruled_by=ruled_by,
    )


def _of_either_5_0(keys: Mapping[str, str], config: Config) -> Iterator[Problem]:
    """Yield the keys left to a default that differs between 5.0.0-M1 and 5.0.0.

    For a file of 5.0 with the modular manager.
    """
    is_of_5_0 = any(key in keys for key in KEYS_SINCE_5_0)
    if config.filters.pipeline == EXTENSIBLE or not is_of_5_0:
        return
    left_open = [key for key in _SINCE_5_0 if is_blank(keys.get(key, ""))]
    if STRATEGY not in left_open:
        left_open = [key for key in left_open if key != PLACING]
    for key in left_open:
        before, since = _SINCE_5_0[key]
        detail = f"not set: {before} up to 5.0.0-M1, which is taken, and {since} in 5.0.0"
        yield Problem(key=key, detail=f"{detail}; write which is meant")


def _unknown_classes(keys: Mapping[str, str]) -> Iterator[Problem]:
    """Classes that are named and not here; a value that is empty is Pulsar's default."""
    for key, classes, known in (
        (MANAGER, LOAD_MANAGERS, LOAD_MANAGERS),
        (STRATEGY, SHEDDING, SHEDDING_STRATEGIES),
        (PLACING, PLACEMENT, PLACEMENT_STRATEGIES),
    ):
        name = trim(keys.get(key, ""))
        short = short_name(name, classes)
        if not name or (short in known and "." in name):
            continue
        there = ", ".join(sorted(map(java_class, classes.values())))
        shown = shown_value(name)
        if "," in name:
            why = f"{shown} is one class name for Pulsar, which has none such"
        elif "." in name:
            why = f"{shown} is no class of Pulsar's, and what it does is not known here"
        else:
            why = f"there is no {shown} here: Pulsar's own classes count by their full names"
        yield Problem(key=key, detail=f"{why}; take one of {there}")


def _no_broker_conf(keys: Mapping[str, str]) -> Iterator[Problem]:
    """Refuse a file without any broker setting, which would change nothing."""
    known = {*_EVERY_BROKERS, *WITHOUT_EFFECT, *WITHOUT_EFFECT_IN_MODULAR, *KEYS_SINCE_4_2}
    known |= {alias for entry in SETTINGS.values() for alias in entry.setting.pulsar}
    if known.isdisjoint(keys):
        yield Problem(
            key="file",
            detail=f"it has none of Pulsar's keys among its {len(keys)}; name a broker.conf",
        )


def _loose_flags(keys: Mapping[str, str]) -> Iterator[Problem]:
    """Flags that are neither true nor false: Java reads them as false."""
    flags = {alias for one in SETTINGS.values() if one.type is bool for alias in one.setting.pulsar}
    for key in sorted(flags & keys.keys()):
        text = trim(keys[key])
        if not is_blank(text) and text.lower() not in ("true", "false"):
            yield Problem(
                key=key, detail=f"{shown_value(text)} counts as false: Java reads all but true so"
            )


def _unloadable(config: Config) -> Iterator[Problem]:
    if config.filters.pipeline != EXTENSIBLE and config.shedding.strategy == TRANSFER:
        yield Problem(
            key=STRATEGY,
            detail="TransferShedder is none of the modular manager's, which can't load it: take"
            f" ExtensibleLoadManagerImpl as {MANAGER}, or another shedder",
        )


def _replaced(keys: Mapping[str, str], config: Config) -> Iterator[Problem]:
    """Report strategies of the file that the extensible manager replaces."""
    if config.filters.pipeline != EXTENSIBLE:
        return
    shedding = short_name(trim(keys.get(STRATEGY, "")), SHEDDING)
    if shedding and shedding != TRANSFER:
        yield Problem(
            key=STRATEGY, detail="the extensible manager can't load it and takes TransferShedder"
        )
    placement = short_name(trim(keys.get(PLACING, "")), PLACEMENT)
    if placement and placement != config.placement.strategy:
        yield Problem(
            key=PLACING, detail="the extensible manager always takes LeastResourceUsageWithWeight"
        )
