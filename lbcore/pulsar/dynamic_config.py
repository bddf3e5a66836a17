"""Settings as Pulsar's dynamic configuration: its keys, units and class names.

Source: Pulsar 4.0.8, BrokersBase, BrokerService.getDynamicConfiguration, ServiceConfiguration.
"""

from collections.abc import Mapping
from typing import Any

from lbcore.config.placement import MODULAR, java_class, needs_extensions
from lbcore.config.pulsar_keys import AT_START, CLASSES, named_by, resolve_changes
from lbcore.config.setting import Entry
from lbcore.config.tree import SETTINGS, SHARED_SECTIONS, Config, changed, value_of
from lbcore.config.values import ConfigError, Problem
from lbcore.plan.registry import find_shedding, placement_strategy
from lbcore.pulsar.names import PRECONDITION_FAILED, PulsarError
from lbcore.validation.check import in_force

_SHEDDING, _PLACEMENT = "shedding.strategy", "placement.strategy"
_PIPELINE = "filters.pipeline"


def dynamic_names() -> list[str]:
    """Return the names that may change while running, sorted.

    Pulsar's in each spelling, and ours.
    """
    dynamic = [entry for entry in SETTINGS.values() if entry.setting.dynamic]
    return sorted({key for entry in dynamic for key in (entry.key, *_pulsar_keys(entry))})


def _pulsar_keys(entry: Entry) -> tuple[str, ...]:
    """Pulsar's keys of a setting that a command may change, the preferred one first."""
    return tuple(key for key in entry.setting.pulsar if key not in AT_START)


def check_dynamic(key: str, verb: str = "update") -> str:
    """The key itself; raises PulsarError 412 when it can't be changed while running.

    verb: what was asked for.
    """
    if key not in dynamic_names():
        raise PulsarError(PRECONDITION_FAILED, f"Can't {verb} non-dynamic configuration")
    return key


def invalid_value(reason: str = "") -> PulsarError:
    """A value that the key can't have, and why; the leading blank is Pulsar's."""
    why = f": {reason}" if reason else ""
    return PulsarError(PRECONDITION_FAILED, f" Invalid dynamic-config value{why}")


def changes_of(key: str, value: str, config: Config) -> Mapping[str, Any]:
    """Return the changes of one key and value, with those that must accompany it.

    config: in force now. A shedding strategy that plans destinations sets its own placement, too.
    One that doesn't resets a placement that only works with such a strategy. Pulsar's path takes
    one key at a time, and half of the change would be refused. Raises ConfigError, also for a class
    that Pulsar's manager of this configuration can't load.
    """
    if named_by(key) not in ((_SHEDDING,), (_PIPELINE,)):
        return {key: value}
    changes = resolve_changes({key: value})
    now = {_SHEDDING: config.shedding.strategy, _PIPELINE: config.filters.pipeline, **changes}
    shedding = find_shedding(changed(config, {_SHEDDING: str(now[_SHEDDING])}))
    is_of_extensions = shedding is not None and needs_extensions(shedding.pulsar_class)
    if shedding is not None and is_of_extensions and now[_PIPELINE] == MODULAR:
        detail = (
            f"{shedding.pulsar_class} is none of the modular manager's, which can't load it: take"
            " another shedder, or filters.pipeline = extensible; set that first"
        )
        raise ConfigError((Problem(key=key, detail=detail),))
    if _SHEDDING not in changes:
        return {key: value}
    placement = placement_strategy(config.placement)
    if (
        shedding is None
        or shedding.name == placement.name
        or not (shedding.plans_destinations or placement.plans_destinations)
    ):
        return {key: value}
    return {key: value, _PLACEMENT: shedding.usual_placement}


def resets_of(key: str, config: Config, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys reset with a key: both of two strategies that need each other.

    config: of the files. settings: as changed by commands.
    """
    names = named_by(key) or (key,)
    left = {name: value for name, value in settings.items() if name not in names}
    pair = {_SHEDDING, _PLACEMENT}
    if not pair & set(names) or not set(in_force(config, left)[1]) & pair:
        return (key,)
    return (key, *sorted(pair - set(names)))


def overrides(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings changed at runtime, by key.

    settings: by "section.name", as commands have set it. The keys are the preferred spelling of
    Pulsar's key, or our own where Pulsar has none that a command may change: each listed name can
    be deleted. Of several settings behind one key, the first in the order of declaration counts.
    """
    found: dict[str, str] = {}
    for entry in SETTINGS.values():
        if entry.key in settings:
            name = next(iter(_pulsar_keys(entry)), entry.key)
            value = settings[entry.key]
            found.setdefault(name, as_pulsar(entry, value) if name != entry.key else _text(value))
    for key in sorted(settings.keys() - SETTINGS.keys()):  # set by a newer version
        found[key] = _text(settings[key])
    return found


def runtime(config: Config, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings in force under Pulsar's keys, and under ours.

    Without SHARED_SECTIONS. config: of the files; settings: what commands have changed.
    """
    now, _ = in_force(config, settings)
    entries = [entry for entry in SETTINGS.values() if entry.section not in SHARED_SECTIONS]
    found: dict[str, str] = {}
    for entry in entries:
        text = as_pulsar(entry, value_of(now, entry))
        for key in entry.setting.pulsar:
            found.setdefault(key, text)
    for entry in entries:
        found[entry.key] = _text(value_of(now, entry))
    return found


def as_pulsar(entry: Entry, value: Any) -> str:
    """A value of ours as Pulsar writes it: in its unit, a strategy as its Java class.

    E.g. shedding.grace_period_ms 1_800_000 is loadBalancerSheddingGracePeriodMinutes "30".
    """
    classes = CLASSES.get(entry.key)
    if classes is not None and isinstance(value, str) and value in classes:
        return java_class(classes[value])
    factor = entry.setting.pulsar_factor
    if factor is not None and type(value) in (int, float):
        return _text(value / factor)
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, tuple | list):
        return ",".join(str(item) for item in value)
    return str(value)
