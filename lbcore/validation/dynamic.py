"""Selection of dynamic settings compatible with the present files.

The others are set aside. Files and code may change under settings that were valid when they were
made. Examples: a key that this version doesn't know, a value outside a narrower range, or two
settings that no longer suit each other or the files. The same are set aside on every call.
"""

from collections.abc import Collection, Mapping
from typing import Any

from lbcore.config.load import checked_dynamic
from lbcore.config.tree import BY_COMMAND, Config, changed
from lbcore.config.values import ConfigError
from lbcore.validation.check import require_suitable

Values = Mapping[str, Any]


def with_dynamic(config: Config, values: Mapping[str, Any]) -> Config:
    """The configuration changed by a command, as "section.name" → value.

    config: of one cluster, see `Config.for_cluster`. Raises ConfigError for unknown keys, wrong
    values, settings that need a restart, and settings that don't suit each other afterwards.
    """
    checked, problems = checked_dynamic(values)
    if problems:
        raise ConfigError(tuple(problems))
    return require_suitable(changed(config, checked))


def in_force(
    config: Config, values: Values, known: Collection[str] = ()
) -> tuple[Config, Mapping[str, str]]:
    """Return the configuration with suitable values, and key → fault of the others.

    config: of one cluster, as its files say. values: by "section.name". known: those that are set
    aside until now; they stay so rather than others. One check of the whole configuration when all
    suit, at most one more for each value that is set aside.
    """
    if not values:
        return config, {}
    usable, problems = checked_dynamic(values)
    aside = {problem.key: problem.detail for problem in problems}
    error = _refusal(config, usable)
    kept = usable if error is None else _kept(config, usable, known)
    why = f"with the files and the other changed settings: {error}"
    aside |= dict.fromkeys(usable.keys() - kept.keys(), why)
    return changed(config, kept, BY_COMMAND), {key: aside[key] for key in sorted(aside)}


def _kept(config: Config, values: Values, known: Collection[str]) -> Values:
    """The values that suit each other and the files, without the known ones.

    Of those that a refusal names the first goes, then it is checked again.
    """
    kept = {name: values[name] for name in sorted(values) if name not in known}
    while kept and (error := _refusal(config, kept)) is not None:
        named = sorted({problem.key for problem in error.problems} & kept.keys())
        del kept[named[0] if named else min(kept)]
    return kept


def _refusal(config: Config, values: Values) -> ConfigError | None:
    """Return the error of applying the values to the files' configuration, if any."""
    try:
        require_suitable(changed(config, values))
    except ConfigError as error:
        return error
    return None
