"""Pulsar's own keys as a configuration: from mappings and from the text of a broker.conf.

Decides what a Pulsar key means here; a setting's declaration has its names, factor and Pulsar's
default. One key may be mirrored by settings of several sections; all of them take it.
Source: Pulsar 4.0.8, ServiceConfiguration and conf/broker.conf (java.util.Properties).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lbcore.config.catalogue import Entry
from lbcore.config.setting import UNSET, pulsar_value
from lbcore.config.strategies import PLACEMENT, SHEDDING, short_name
from lbcore.config.tree import SETTINGS, Config, changed
from lbcore.config.values import ConfigError, Problem, check_value, from_text

WITHOUT_EFFECT: Mapping[str, str] = {
    "loadManagerServiceUnitStateTableViewClassName": "ownership is in Ballast's own topic",
    "loadBalancerServiceUnitTableViewSyncer": "ownership is in Ballast's own topic",
    "loadBalancerServiceUnitStateMonitorIntervalInSeconds": "repair runs in every decision cycle",
    "loadBalancerMultiPhaseBundleUnload": "the agent closes a bundle before another one opens it",
    "loadBalancerOverrideBrokerNicSpeedGbps": "brokers report their own limits",
    "topicBundleAssignmentStrategy": "the hash is chosen at the namespace's creation",
    "statsUpdateFrequencyInSecs": "brokers decide how often they measure",
    "metadataStoreOperationTimeoutSeconds": "there is no metadata store",
}
"""Pulsar keys of load balancing that have no meaning here, and why."""

_BALANCING = re.compile(r"loadBalance|loadManager|minUnload|maxUnload|[bB]undle|lowerBoundary")
_STRATEGIES = {"shedding.strategy": SHEDDING, "placement.strategy": PLACEMENT}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def from_pulsar_keys(keys: Mapping[str, Any]) -> tuple[Config, tuple[str, ...]]:
    """Pulsar 4.0.8's defaults changed by values under Pulsar's names, and the unknown names.

    Values are typed or text. Of several spellings the first present wins, unless it has the neutral
    value (1.0 of a bandwidth weight) and another one says otherwise. Raises ConfigError.
    """
    problems: list[Problem] = []
    values = {
        entry.key: value
        for entry in SETTINGS.values()
        if (value := _value(entry, keys, problems)) is not UNSET
    }
    if problems:
        raise ConfigError(tuple(problems))
    known = {alias for entry in SETTINGS.values() for alias in entry.about.pulsar}
    return changed(Config(), values), tuple(sorted(set(keys) - known))


def settings_of(pulsar_key: str, value: Any) -> Mapping[str, Any]:
    """What one Pulsar key sets here: "section.name" → value, empty for a key without meaning.

    Raises ConfigError for a value that can't be used.
    """
    problems: list[Problem] = []
    keys = {pulsar_key: value}
    values = {
        entry.key: _value(entry, keys, problems)
        for entry in SETTINGS.values()
        if pulsar_key in entry.about.pulsar
    }
    if problems:
        raise ConfigError(tuple(problems))
    return values


def resolve_changes(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a command asks to change, by "section.name".

    values: by our keys or Pulsar's, typed or as text. Of a Pulsar key's settings those that may
    change while running are taken, all when none may. A key that nobody knows stays as it is;
    `config.load.with_dynamic` refuses it. Raises ConfigError.
    """
    changes: dict[str, Any] = {}
    for key, value in values.items():
        if key in SETTINGS:
            is_text = isinstance(value, str)
            changes[key] = from_text(SETTINGS[key].type, value.strip()) if is_text else value
        else:
            found = settings_of(key, value) or {key: value}
            dynamic = [name for name in found if name in SETTINGS and SETTINGS[name].about.dynamic]
            changes |= {name: found[name] for name in dynamic or found}
    return changes


def named_by(key: str) -> tuple[str, ...]:
    """The settings that a key of ours or of Pulsar's means, as "section.name"; none = unknown."""
    if key in SETTINGS:
        return (key,)
    return tuple(name for name, entry in SETTINGS.items() if key in entry.about.pulsar)


def is_about_balancing(pulsar_key: str) -> bool:
    """Whether an unknown key looks as if it should have had an effect."""
    return _BALANCING.search(pulsar_key) is not None and pulsar_key not in WITHOUT_EFFECT


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of a Java properties text, e.g. broker.conf; the last of equals wins.

    Comments (#, !), continued lines, =, : and blanks as separators, and escapes are read as
    java.util.Properties reads them.
    """
    pairs = (_KEY.fullmatch(line) for line in _logical_lines(text))
    return {_unescape(pair[1]): _unescape(pair[2]).strip() for pair in pairs if pair is not None}


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        line = pending + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = line[:-1]
            continue
        pending = ""
        yield line
    if pending:
        yield pending


def _unescape(text: str) -> str:
    return _ESCAPE.sub(
        lambda found: chr(int(found[1], 16)) if found[1] else _ESCAPES.get(found[2], found[2]),
        text,
    )


def _value(entry: Entry, keys: Mapping[str, Any], problems: list[Problem]) -> Any:
    """The setting's value under Pulsar: what its keys say, or Pulsar's default, or UNSET."""
    given = {
        key: _from_pulsar(entry, keys[key])
        for key in entry.about.pulsar
        if key in keys and keys[key] not in ("", None)
    }
    value = pulsar_value(entry.about, given)
    if value is UNSET:
        return value
    name = next(iter(given), entry.key)
    try:
        return check_value(entry, _whole(entry, value), key=name)
    except ConfigError as error:
        problems.extend(error.problems)
        return UNSET


def _from_pulsar(entry: Entry, value: Any) -> Any:
    """The value in our type, in Pulsar's unit still."""
    if entry.key in _STRATEGIES and isinstance(value, str):
        return short_name(value.strip(), _STRATEGIES[entry.key])
    if not isinstance(value, str):
        return value
    is_number = entry.about.pulsar_factor is not None or entry.type in (int, float)
    read = from_text(entry.type, value.strip())
    return from_text(float, value.strip()) if is_number and isinstance(read, str) else read


def _whole(entry: Entry, value: Any) -> Any:
    """A whole number for a setting that wants one; 1.5 minutes are 90,000 ms."""
    if entry.type is int and isinstance(value, float) and value.is_integer():
        return int(value)
    return value
