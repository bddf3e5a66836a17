"""Settings that a job tells, a row each, and the use of the rows by others.

Decides which settings are told: those that decisions depend on, from which the configuration's
version is made. Access to Kafka, permissions and agents' behaviour belong to each process and are
not told. So no path of a secret and no user's name gets into a table.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from lbcore.config.load import plain_value
from lbcore.config.setting import UNSET
from lbcore.config.tree import DEFAULT, SETTINGS, UNDECIDING_SECTIONS, Config, changed, value_of
from lbcore.config.values import ConfigError, check_value

Row = Mapping[str, Any]

REPORTED = tuple(key for key, entry in SETTINGS.items() if entry.section not in UNDECIDING_SECTIONS)
"""The settings that are told, in the order of their declaration."""

_COMPARED = ("setting", "value", "origin", "started", "config_version")


def reported_rows(started: Config, present: Config, config_version: str) -> list[dict[str, Any]]:
    """Return a row a setting.

    started: as files and command line say; present: with what commands changed. Both of one
    cluster. config_version: of `present`.
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
    """By which it is known whether the same was told before; "" of no rows."""
    told = sorted([str(row[name]) for name in _COMPARED] for row in rows)
    return hashlib.sha256(json.dumps(told).encode()).hexdigest() if told else ""


def newest_reported(rows: Iterable[Row]) -> list[Row]:
    """Of one cluster's rows those that were told last, all at once."""
    found = list(rows)
    last_ms = max((int(row["at_ms"]) for row in found), default=0)
    return [row for row in found if row["at_ms"] == last_ms]


def as_started(config: Config, rows: Iterable[Row], kept: Collection[str] = ()) -> Config:
    """Return the configuration that the job was started with; itself if unknown.

    config: of the cluster, as the files of whoever asks say. rows: all of its cluster; the newest
    count. kept: keys whose values stay. A value that this version doesn't take, of a job of another
    version, stays as it is.
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
    """The value, or UNSET for one that can't be used here."""
    try:
        return check_value(SETTINGS[key], json.loads(text))
    except (ConfigError, KeyError, ValueError, RecursionError):
        return UNSET


def _json(key: str, config: Config) -> str:
    value = plain_value(SETTINGS[key], value_of(config, SETTINGS[key]))
    return json.dumps(value, ensure_ascii=False)
