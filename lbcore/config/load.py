"""Configs made from mappings, or the mappings' problems; versions, differences.

Mappings apply in order, each changing only the settings it names: defaults, base, overlays;
`[clusters.NAME.SECTION]` changes one cluster. `jobs.adapters.processes.settings` reads the files.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from lbcore.config.setting import UNSET, Entry
from lbcore.config.tree import (
    CLUSTERS,
    DEFAULT,
    ON_COMMAND_LINE,
    PULSAR_EXACT,
    SECTIONS,
    SETTINGS,
    UNDECIDING_SECTIONS,
    Config,
    changed,
    is_per_cluster,
    value_of,
)
from lbcore.config.values import ConfigError, Problem, as_written, check_value, collect, shown_value
from lbcore.model.names import nearest

_PULSAR_KEYS = {alias: key for key, entry in SETTINGS.items() for alias in entry.setting.pulsar}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDifference:
    """A setting whose value is not that of the base. cluster: "" = all clusters."""

    key: str
    base: Any
    value: Any
    cluster: str = ""

    @property
    def place(self) -> str:
        """The full key; that of one cluster's own value begins with "clusters.NAME."."""
        return f"{CLUSTERS}.{self.cluster}.{self.key}" if self.cluster else self.key


def parse_config(
    mapping: Mapping[str, Any], base: Config | None = None, origin: str = ""
) -> Config:
    """Return the base (None = the defaults) changed by the sections of a mapping.

    origin: who set the mapping's values, see `Config.origins`; "" = do not record it. Raises
    ConfigError with every unknown key, wrong type and value out of range.
    """
    problems: list[Problem] = []
    before = base or Config()
    sections = {name: value for name, value in mapping.items() if name != CLUSTERS}
    values = _checked(_values(sections, "", problems), problems)
    clusters = dict(_tables({CLUSTERS: mapping.get(CLUSTERS, {})}, problems)).get(CLUSTERS, {})
    per_cluster = {name: dict(own) for name, own in before.per_cluster.items()}
    origins = dict(before.origins)
    for name, own in _tables(clusters, problems, f"{CLUSTERS}."):
        prefix = f"{CLUSTERS}.{name}."
        own_values = _values(own, prefix, problems)
        problems += [
            Problem(key=prefix + key, detail=f"is one for all clusters: write it as {key}")
            for key in own_values
            if not is_per_cluster(SETTINGS[key])
        ]
        own_values = _checked(own_values, problems, prefix)
        per_cluster.setdefault(name, {}).update(own_values)
        origins |= {prefix + key: origin for key in own_values if origin}
    if problems:
        raise ConfigError(tuple(problems))
    before = replace(before, per_cluster=per_cluster, origins=origins)
    return changed(before, values, origin)


def parse_assignments(config: Config, assignments: Iterable[str]) -> Config:
    """Apply texts like "shedding.strategy=uniform". Raises ConfigError."""
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, separator, text = assignment.partition("=")
        key = name.strip()
        if not separator:
            problems.append(Problem(key=assignment, detail="write it as section.name=value"))
        elif key in SETTINGS:
            values[key] = as_written(SETTINGS[key].type, text.strip())
        else:
            problems.append(_unknown(key))
    checked = _checked(values, problems)
    if problems:
        raise ConfigError(tuple(problems))
    return changed(config, checked, ON_COMMAND_LINE)


def checked_dynamic(values: Mapping[str, Any]) -> tuple[Mapping[str, Any], Sequence[Problem]]:
    """Return the valid values in their settings' types, and the others' problems.

    Does not check whether the values suit each other and the files. A problem names its key.
    """
    problems = [_unknown(key) for key in values if key not in SETTINGS]
    known = {key: value for key, value in values.items() if key in SETTINGS}
    problems += [
        Problem(key=key, detail="takes effect at a restart only: change it in the overlay's file")
        for key in known
        if not SETTINGS[key].setting.dynamic
    ]
    dynamic = {key: value for key, value in known.items() if SETTINGS[key].setting.dynamic}
    return _checked(dynamic, problems), problems


def canonical(config: Config) -> Mapping[str, Any]:
    """Return the tree as values that JSON and TOML can hold, per_cluster included."""
    sections = {
        section: {
            entry.name: plain_value(entry, value_of(config, entry))
            for entry in SETTINGS.values()
            if entry.section == section
        }
        for section in SECTIONS
    }
    own = {name: canonical(config.for_cluster(name)) for name in sorted(config.per_cluster)}
    return {**sections, CLUSTERS: own} if own else sections


def digest(config: Config) -> str:
    """Return the configuration's version: sha256 (hex) of all that affects decisions.

    Those are its sections, except UNDECIDING_SECTIONS, and the code of custom strategies.
    """
    tree = _deciding(canonical(config))
    if config.own:
        tree = {**tree, "own": {name: own.code for name, own in config.own.items()}}
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def differences(config: Config, base: Config | None = None) -> tuple[SettingDifference, ...]:
    """Return the differences from the base, in the order of declaration.

    base: None = the defaults.
    """
    found = list(_differing(config, base or Config(), ""))
    for cluster in sorted(config.per_cluster):
        found += _differing(config.for_cluster(cluster), config, cluster)
    return tuple(found)


def _differing(config: Config, base: Config, cluster: str) -> Iterator[SettingDifference]:
    for key, entry in SETTINGS.items():
        value, before = value_of(config, entry), value_of(base, entry)
        if value != before:
            yield SettingDifference(key=key, base=before, value=value, cluster=cluster)


def _deciding(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tree without UNDECIDING_SECTIONS, in each cluster's own tree as well."""
    kept = {name: section for name, section in tree.items() if name not in UNDECIDING_SECTIONS}
    own = kept.pop(CLUSTERS, {})
    return {**kept, CLUSTERS: {name: _deciding(section) for name, section in own.items()}}


def plain_value(entry: Entry, value: Any) -> Any:
    """Return the value in a type that JSON and TOML can hold."""
    if isinstance(value, tuple):
        return list(value)
    return float(value) if entry.type is float else value


def _checked(
    values: Mapping[str, Any], problems: list[Problem], prefix: str = ""
) -> dict[str, Any]:
    """Return the values in their settings' types; add a problem for each unusable one."""
    return collect(
        values, lambda key: check_value(SETTINGS[key], values[key], key=prefix + key), problems
    )


def _values(sections: Mapping[str, Any], prefix: str, problems: list[Problem]) -> dict[str, Any]:
    """Return the values of known keys, by "section.name"; add problems for the others."""
    values: dict[str, Any] = {}
    for section, table in _tables(sections, problems, prefix):
        if section not in SECTIONS:
            near = nearest(section, tuple(SECTIONS))
            advice = f"did you mean [{near}]?" if near else f"there are {', '.join(SECTIONS)}"
            problems.append(
                Problem(key=prefix + section, detail=f"there is no such section; {advice}")
            )
            continue
        for name, value in table.items():
            key = f"{section}.{name}"
            if key in SETTINGS:
                values[key] = value
            else:
                problems.append(_unknown(key, prefix))
    return values


def _tables(
    mapping: Mapping[str, Any], problems: list[Problem], prefix: str = ""
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the names and values that are tables; add a problem for the others."""
    for name, table in mapping.items():
        if isinstance(table, Mapping):
            yield name, table
        else:
            problems.append(
                Problem(
                    key=f"{prefix}{name}",
                    detail=f"{shown_value(table)} stands outside of a section:"
                    " write it as section.name",
                )
            )


def _unknown(key: str, prefix: str = "") -> Problem:
    """Return the problem of a key that is no setting, with the key probably meant."""
    section, _, name = key.rpartition(".")
    follows = _constant(section, name)
    if follows:
        return Problem(
            key=prefix + key, detail=f"is no setting any more: {follows}; delete the line"
        )
    if name in _PULSAR_KEYS:
        advice = f"that is Pulsar's name, here it is {_PULSAR_KEYS[name]}"
    else:
        same = [known for known in SETTINGS if known.rpartition(".")[2] == name]
        near = same[0] if same else nearest(key, tuple(SETTINGS))
        advice = f"did you mean {near}?" if near else "`ballast config show` lists all"
    return Problem(key=prefix + key, detail=f"there is no such setting; {advice}")


def _constant(section: str, name: str) -> str:
    """Return what decides a constant that is no setting; "" = no such constant."""
    of_section = fields(SECTIONS[section]) if section in SECTIONS else ()
    for one in of_section:
        if one.name == name and "derived" in one.metadata:
            return f"it follows {' and '.join(one.metadata['derived'][0])}"
        if one.name == name and "correction" in one.metadata:
            return f"it is {one.default}, and Pulsar's value under {PULSAR_EXACT}"
        if one.name == name and "setting" not in one.metadata:
            return f"it is always {one.default}"
    return ""


Row = Mapping[str, Any]

REPORTED = tuple(key for key, entry in SETTINGS.items() if entry.section not in UNDECIDING_SECTIONS)
"""The settings in `settings_in_force`, in the order of their declaration."""

_COMPARED = ("setting", "value", "origin", "started", "config_version")


def reported_rows(started: Config, present: Config, config_version: str) -> list[dict[str, Any]]:
    """Return a row of `settings_in_force` for each setting that decisions depend on.

    Access to Kafka, permissions and agents' behaviour belong to each process and are left out, so
    no path of a secret and no user's name gets into a table. started: the settings from files and
    command line; present: those with the changes by commands. Both of one cluster.
    config_version: of `present`.
    """
    return [
        {
            "setting": key,
            "value": _json(key, present),
            "origin": present.origins.get(key, DEFAULT),
            "started": _json(key, started),
            "config_version": config_version,
        }
        for key in REPORTED
    ]


def reported_digest(rows: Iterable[Row]) -> str:
    """Return a digest of reported rows, to find changes; "" of no rows."""
    compared = sorted([str(row[name]) for name in _COMPARED] for row in rows)
    return hashlib.sha256(json.dumps(compared).encode()).hexdigest() if compared else ""


def newest_reported(rows: Iterable[Row]) -> list[Row]:
    """Return one cluster's newest rows, which one batch wrote together."""
    found = list(rows)
    last_ms = max((int(row["at_ms"]) for row in found), default=0)
    return [row for row in found if row["at_ms"] == last_ms]


def as_started(config: Config, rows: Iterable[Row], kept: Collection[str] = ()) -> Config:
    """Return the configuration that the job was started with; itself if unknown.

    config: the cluster's, from the files of the calling process. rows: all that the cluster has;
    only the newest count. kept: keys that keep their value in `config`, as do those whose reported
    value, of a job of another version, can't be used here.
    """
    newest = newest_reported(rows)
    if not newest:
        return config
    values: dict[str, Any] = {}
    origins = dict(config.origins)
    for row in newest:
        key = str(row["setting"])
        value = UNSET if key in kept else _readable(key, row["started"])
        if value is not UNSET:
            values[key] = value
            origins[key] = str(row["origin"])
    known = {key: origin for key, origin in origins.items() if origin != DEFAULT}
    return replace(changed(config, values), origins=known)


def _readable(key: str, text: str) -> Any:
    """Return the value in a row's text; UNSET for one that can't be used here."""
    try:
        return check_value(SETTINGS[key], json.loads(text))
    except (ConfigError, KeyError, ValueError, RecursionError):
        return UNSET


def _json(key: str, config: Config) -> str:
    value = plain_value(SETTINGS[key], value_of(config, SETTINGS[key]))
    return json.dumps(value, ensure_ascii=False)
