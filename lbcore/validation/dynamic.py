"""Selection of dynamic settings compatible with the present files.

The others are set aside. Files and code may change under settings that were valid when they were
made. Examples: a key that this version doesn't know, a value outside a narrower range, or two
settings that no longer suit each other or the files. As few as can be found are set aside, the same
on every call.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from lbcore.config.load import checked_dynamic
from lbcore.config.tree import BY_COMMAND, Config, changed
from lbcore.config.values import ConfigError
from lbcore.validation.check import require_suitable

_SEARCHED_MAX = 32
"""Of more settings no pairs are tried: then each is kept that suits those kept before it."""

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
    suit, O(values^2) when not.
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
    """As many of the values as can be found that suit each other and the files."""
    for gone in _ways(sorted(values), [name for name in sorted(values) if name in known]):
        fewer = {name: value for name, value in values.items() if name not in gone}
        if _refusal(config, fewer) is None:
            return fewer
    return _one_by_one(config, values)


def _ways(names: Sequence[str], known: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the sets of names to leave out, in the order of trial.

    Known ones first, then one name, then two.
    """
    yield from combinations(known, 1)
    yield from combinations(known, 2)
    yield tuple(known)
    yield from combinations(names, 1)
    if len(names) <= _SEARCHED_MAX:
        yield from combinations(names, 2)


def _one_by_one(config: Config, values: Values) -> Values:
    """Each value that suits the files and those before it, in name order."""
    kept: dict[str, Any] = {}
    for name in sorted(values):
        if _refusal(config, {**kept, name: values[name]}) is None:
            kept[name] = values[name]
    return kept


def _refusal(config: Config, values: Values) -> ConfigError | None:
    """Return the error of applying the values to the files' configuration, if any."""
    try:
        require_suitable(changed(config, values))
    except ConfigError as error:
        return error
    return None
