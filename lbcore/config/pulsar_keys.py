"""Pulsar's keys as a configuration: from mappings and from a broker.conf.

A setting's declaration has its Pulsar keys, factor and Pulsar's default; all settings that name a
key take its value. Texts are read as Java does: broker.conf by java.util.Properties in ISO-8859-1,
each value by Pulsar's FieldParser, which trims it and calls Integer.valueOf or its siblings. A test
compares this with a JVM's output (tests/broker_conf/java_parsing.json). `PRESETS` are Pulsar's
releases as overlays, conf/pulsar-*.toml. Source: Pulsar 4.0.8 (defaults equal in 4.2.4, 5.0.0-M1)
and 4.2.4, ServiceConfiguration, PulsarConfigurationLoader and FieldParser; OpenJDK 17.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from lbcore.config.placement import (
    EXTENSIBLE,
    LEAST_RESOURCE_USAGE_WITH_WEIGHT,
    LOAD_MANAGERS,
    MODULAR,
    PLACEMENT,
    SHEDDING,
    TRANSFER,
    short_name,
)
from lbcore.config.setting import UNSET, Entry, pulsar_value
from lbcore.config.shedding import RULES_4_0, RULES_4_2
from lbcore.config.tree import SETTINGS, Config, changed
from lbcore.config.values import (
    ConfigError,
    Problem,
    as_written,
    check_value,
    collect,
    from_text,
    shown_value,
)

BOOLEAN, DOUBLE, INT, LONG = "boolean", "double", "int", "long"
ENCODING = "iso-8859-1"
_BITS = {INT: 32, LONG: 64}
_DIGITS_MAX = 19
_BMP_MAX = "\uffff"
_TRIMMED = "".join(map(chr, range(0x21)))
_BLANK = "\t\n\x0b\f\r\x1c\x1d\x1e\x1f "
_INTEGER = re.compile(r"([+-]?)(\d+)")
_DECIMAL = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def trim(text: str) -> str:
    """Trim as String.trim does: remove characters up to U+0020 at both ends."""
    return text.strip(_TRIMMED)


def is_blank(text: str) -> bool:
    """Return StringUtils.isBlank of a text: FieldParser keeps the default then."""
    return not text.strip(_BLANK)


def parse_integer(text: str, kind: str = INT) -> int | None:
    """Parse a trimmed text as Integer.valueOf (LONG: Long.valueOf); None if refused."""
    found = _INTEGER.fullmatch(trim(text))
    if found is None or max(found[2]) > _BMP_MAX:
        return None
    digits = "".join(str(unicodedata.decimal(one)) for one in found[2]).lstrip("0") or "0"
    if len(digits) > _DIGITS_MAX:
        return None
    value = -int(digits) if found[1] == "-" else int(digits)
    most = 1 << (_BITS[kind] - 1)
    return value if -most <= value < most else None


def parse_double(text: str) -> float | None:
    """Parse a trimmed text as Double.valueOf does; None if that refuses it."""
    trimmed = trim(text)
    if _DECIMAL.fullmatch(trimmed):
        is_number = trimmed[-1] not in "Ny"
        return float(trimmed.rstrip("fFdD") if is_number else trimmed)
    found = _HEXADECIMAL.fullmatch(trimmed)
    if found is None:
        return None
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return float("-inf") if found[1].startswith("-") else float("inf")


def parse_boolean(text: str) -> bool:
    """Parse a trimmed text as Boolean.valueOf: all but "true", in any case, is false."""
    return trim(text).lower() == "true"


def parse_properties(text: str) -> dict[str, str]:
    """Parse a Java properties text, such as broker.conf; the last of equal keys wins.

    Comments (#, !), continued lines, =, : and blanks as separators, and escapes are read as
    java.util.Properties reads them. Raises ValueError for a u-escape without its four digits.
    """
    pairs = (_KEY.fullmatch(line) for line in _logical_lines(text))
    unescape = partial(_ESCAPE.sub, _unescaped)
    return {unescape(pair[1]): unescape(pair[2]) for pair in pairs if pair is not None}


def _logical_lines(text: str) -> Iterator[str]:
    pending: list[str] = []
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not any(pending) and (not line or line[0] in "#!"):
            continue
        # earlier lines don't matter: what is pending ends in an even number of backslashes
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pending.append(line[:-1] if is_continued else line)
        if not is_continued:
            yield "".join(pending)
            pending = []
    if any(pending):
        yield "".join(pending)


def _unescaped(found: re.Match[str]) -> str:
    if found[1]:
        return chr(int(found[1], 16))
    if found[2] == "u":
        raise ValueError("a \\u that no four hexadecimal digits follow: Java refuses the file")
    return _ESCAPES.get(found[2], found[2])


class WithoutEffect(NamedTuple):
    """Entry for a Pulsar key without effect: the reason, and Pulsar's default as text."""

    why: str
    default: str


_ELSEWHERE = "ownership is in Ballast's own topic"
_SIMPLE = "only SimpleLoadManagerImpl reads it, which is not here"
WITHOUT_EFFECT: Mapping[str, WithoutEffect] = {
    "loadManagerServiceUnitStateTableViewClassName": WithoutEffect(
        _ELSEWHERE,
        "org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateTableViewImpl",
    ),
    "loadBalancerServiceUnitTableViewSyncer": WithoutEffect(_ELSEWHERE, "None"),
    "loadBalancerServiceUnitStateMonitorIntervalInSeconds": WithoutEffect(
        "repair runs in every decision cycle", "60"
    ),
    "loadBalancerServiceUnitStateMaxConcurrentOverrides": WithoutEffect(
        "a broker's drain may name how many bundles leave at once", "64"
    ),
    "loadBalancerMultiPhaseBundleUnload": WithoutEffect(
        "the agent closes a bundle before another one opens it", "true"
    ),
    "loadBalancerOverrideBrokerNicSpeedGbps": WithoutEffect("brokers report their own limits", ""),
    "loadBalancerOverrideBrokerNics": WithoutEffect("brokers report their own limits", ""),
    "loadBalancerHostUsageCheckIntervalMinutes": WithoutEffect(
        "brokers decide how often they measure", "1"
    ),
    "loadBalancerResourceQuotaUpdateIntervalMinutes": WithoutEffect(
        "each report of a bundle is a sample of its averages", "15"
    ),
    "defaultNumberOfSystemNamespaceBundles": WithoutEffect(
        "there is no system namespace here, and Pulsar's own is left to Pulsar", "64"
    ),
    "loadManagerMigrationEnabled": WithoutEffect(
        "a manager is chosen at the start of the job", "false"
    ),
    "loadBalancerBrokerComfortLoadLevelPercentage": WithoutEffect(_SIMPLE, "65"),
    "loadBalancerBrokerUnderloadedThresholdPercentage": WithoutEffect(_SIMPLE, "50"),
    "loadBalancerPlacementStrategy": WithoutEffect(_SIMPLE, "leastLoadedServer"),
    "topicBundleAssignmentStrategy": WithoutEffect(
        "the hash is chosen at the namespace's creation",
        "org.apache.pulsar.common.naming.ConsistentHashingTopicBundleAssigner",
    ),
    "metadataStoreOperationTimeoutSeconds": WithoutEffect("there is no metadata store", "30"),
}
"""Pulsar keys of load balancing that have no meaning here."""

WITHOUT_EFFECT_IN_MODULAR: Mapping[str, WithoutEffect] = {
    "statsUpdateFrequencyInSecs": WithoutEffect("brokers decide how often they measure", "60")
}
"""Pulsar keys that have an effect here only under the extensible manager."""

AT_START: Mapping[str, str] = {
    "loadManagerClassName": "chooses filters, shedding and placement together, which is done at the"
    " start: take overlay pulsar-4.0-modular or pulsar-4.0-extensible, or import the broker.conf",
}
"""Pulsar keys that a file may set and a command may not → why."""

_BALANCING = re.compile(r"loadBalance|loadManager|minUnload|maxUnload|[bB]undle|lowerBoundary")
_NO_LIMIT = 2**31 - 1
_BUNDLES_WITH_THE_BROKER = {"signals.bundle_report_interval_ms": 0}
CLASSES = {
    "shedding.strategy": SHEDDING,
    "placement.strategy": PLACEMENT,
    "filters.pipeline": LOAD_MANAGERS,
}
"""Settings whose value is a class in Pulsar → our name of each class."""

_JAVA_RANGES = {INT: "-2147483648 to 2147483647", LONG: "64 bits"}
_DOUBLES = frozenset(
    {
        "loadBalancerBandwidthInResourceWeight",
        "loadBalancerBandwidthOutResourceWeight",
        "loadBalancerBandwithInResourceWeight",
        "loadBalancerBandwithOutResourceWeight",
        "loadBalancerBrokerLoadTargetStd",
        "loadBalancerBundleUnloadMinThroughputThreshold",
        "loadBalancerCPUResourceWeight",
        "loadBalancerDirectMemoryResourceWeight",
        "loadBalancerHistoryResourcePercentage",
        "loadBalancerMemoryResourceWeight",
        "loadBalancerMsgRateDifferenceShedderThreshold",
        "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold",
        "maxUnloadPercentage",
    }
)
_LONGS = frozenset(
    {
        "loadBalanceSheddingDelayInSeconds",
        "loadBalancerBrokerLoadDataTTLInSeconds",
        "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis",
        "loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds",
        "loadBalancerSheddingGracePeriodMinutes",
        "namespaceBundleUnloadingTimeoutMs",
    }
)


def from_pulsar_keys(keys: Mapping[str, Any]) -> tuple[Config, tuple[str, ...]]:
    """Return Pulsar 4.0.8's defaults changed by these values, and the unknown names.

    Values are typed or text. Of several spellings of a key the first present wins; one that has the
    neutral value (1.0 of a bandwidth weight) gives way to another. Raises ConfigError.
    """
    found = _values(SETTINGS, keys)
    values = {key: value for key, value in found.items() if value is not UNSET}
    values |= _implied_by_manager(values)
    known = {alias for entry in SETTINGS.values() for alias in entry.setting.pulsar}
    return changed(Config(), values), tuple(sorted(set(keys) - known))


def _implied_by_manager(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings implied by the load manager that the keys name.

    They override the other keys. The extensible one can load only TransferShedder, and has one
    placement. It reports a broker's bundles apart from its load. The modular one reports both
    together, and splits each bundle at its first hit, any number in a cycle. Source:
    UnloadScheduler, ExtensibleLoadManagerImpl, BundleSplitterTask (4.0.8, 4.2.4).
    """
    manager = values.get("filters.pipeline")
    if manager == EXTENSIBLE:
        return {
            "shedding.strategy": TRANSFER,
            "placement.strategy": LEAST_RESOURCE_USAGE_WITH_WEIGHT,
        }
    if manager == MODULAR:
        return {
            "splitting.hit_count_threshold": 0,
            "splitting.max_splits_per_cycle": _NO_LIMIT,
            **_BUNDLES_WITH_THE_BROKER,
        }
    return _BUNDLES_WITH_THE_BROKER


def settings_of(pulsar_key: str, value: Any) -> Mapping[str, Any]:
    """Return the settings of one Pulsar key, "section.name" → value.

    Empty for a key without meaning. Raises ConfigError for a value that can't be used.
    """
    named = (key for key, entry in SETTINGS.items() if pulsar_key in entry.setting.pulsar)
    return _values(named, {pulsar_key: value})


def resolve_changes(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings that a command asks to change, by "section.name".

    values: by Ballast's keys or Pulsar's, typed or as text. Of a Pulsar key's settings those that
    may change at runtime are taken, all if none may. An unknown key is returned unchanged;
    `validation.check.with_dynamic` refuses it. Raises ConfigError, for a key of AT_START as well.
    """
    changes: dict[str, Any] = {}
    wrong = [Problem(key=key, detail=AT_START[key]) for key in values if key in AT_START]
    texts = {key: value for key, value in values.items() if isinstance(value, str)}
    empty = [key for key, text in texts.items() if is_blank(text) and key not in SETTINGS]
    wrong += [Problem(key=key, detail="it has no value: give one, or reset it") for key in empty]
    if wrong:
        raise ConfigError(tuple(wrong))
    for key, value in values.items():
        if key in SETTINGS:
            is_text = isinstance(value, str)
            changes[key] = as_written(SETTINGS[key].type, value.strip()) if is_text else value
        else:
            found = settings_of(key, value) or {key: value}
            dynamic = [
                name for name in found if name in SETTINGS and SETTINGS[name].setting.dynamic
            ]
            changes |= {name: found[name] for name in dynamic or found}
    return changes


def named_by(key: str) -> tuple[str, ...]:
    """Return the settings that Ballast's or Pulsar's key names; () = it is unknown."""
    if key in SETTINGS:
        return (key,)
    return tuple(name for name, entry in SETTINGS.items() if key in entry.setting.pulsar)


def is_about_balancing(pulsar_key: str) -> bool:
    """Return True if an unknown key's name suggests that it should have an effect."""
    return _BALANCING.search(pulsar_key) is not None and pulsar_key not in WITHOUT_EFFECT


def java_kind(entry: Entry, pulsar_key: str) -> str:
    """Return a key's type in Pulsar's ServiceConfiguration; "" for texts and lists."""
    if entry.type is bool:
        return BOOLEAN
    if entry.type not in (int, float):
        return ""
    if pulsar_key in _DOUBLES:
        return DOUBLE
    return LONG if pulsar_key in _LONGS else INT


def _values(settings: Iterable[str], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings' values under Pulsar. Raises ConfigError with every problem."""
    problems: list[Problem] = []
    values = collect(settings, lambda key: _value(SETTINGS[key], keys), problems)
    if problems:
        raise ConfigError(tuple(problems))
    return values


def _value(entry: Entry, keys: Mapping[str, Any]) -> Any:
    """Return the setting's value under Pulsar: from keys, else its default, or UNSET."""
    given = {
        key: _from_pulsar(entry, key, keys[key])
        for key in entry.setting.pulsar
        if (text := keys.get(key)) is not None and not (isinstance(text, str) and is_blank(text))
    }
    value = pulsar_value(entry.setting, given)
    if value is UNSET:
        return value
    if entry.type is int and isinstance(value, float) and value.is_integer():
        value = int(value)  # 1.5 minutes are 90,000 ms
    return check_value(entry, value, key=next(iter(given), entry.key))


def _from_pulsar(entry: Entry, key: str, value: Any) -> Any:
    """Return a value in the setting's type and Pulsar's unit; a text as Java reads it."""
    if not isinstance(value, str):
        return value
    if entry.key in CLASSES:
        return short_name(trim(value), CLASSES[entry.key])
    kind = java_kind(entry, key)
    if not kind:
        return from_text(entry.type, trim(value))
    if kind == BOOLEAN:
        return parse_boolean(value)
    number = parse_double(value) if kind == DOUBLE else parse_integer(value, kind)
    if number is None:
        wanted = f"whole number of {_JAVA_RANGES[kind]}" if kind != DOUBLE else "number like 0.5"
        detail = f"{shown_value(value)} can't be used here: Java refuses it ({kind}); write a"
        raise ConfigError((Problem(key=key, detail=f"{detail} {wanted}"),))
    return number


_HEAD = "Written from the settings' declarations by `ballast config show --pulsar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One overlay: its comment, whose rules, and the class of load manager."""

    head: str
    rules: str
    manager: str

    def config(self) -> Config:
        """Return the config of this release under a broker.conf without other settings."""
        config, _ = from_pulsar_keys({"loadManagerClassName": self.manager})
        return changed(config, {"shedding.rules": self.rules})


PRESETS: Mapping[str, Preset] = {
    "pulsar-4.0.8": Preset(
        head="Pulsar 4.0.8's rules and defaults, which the conformance cases are run with."
        f" {_HEAD}`.",
        rules=RULES_4_0,
        manager="",
    ),
    **{
        (name := f"pulsar-{rules}-{pipeline}"): Preset(
            head=f"Pulsar {rules} as shipped, under {manager}. {_HEAD} {name}`.",
            rules=rules,
            manager=manager,
        )
        for rules in (RULES_4_0, RULES_4_2)
        for pipeline, manager in LOAD_MANAGERS.items()
    },
}
"""The name of an overlay in conf/ → its content."""
