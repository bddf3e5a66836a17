"""Parameters of tests: few seeds of many, and changed constants."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from lbcore.config.tree import Config


def few(values: Iterable[Any], count: int) -> list[Any]:
    """The values as parameters, one or a tuple each; those after the first `count` are `long`."""
    return [value if at < count else _long(value) for at, value in enumerate(values)]


def _long(value: Any) -> Any:
    return pytest.param(*value if isinstance(value, tuple) else (value,), marks=pytest.mark.long)


def with_constants(config: Config, values: Mapping[str, Any]) -> Config:
    """The configuration with other constants, "section.name" → value."""
    for key, value in values.items():
        section, name = key.split(".")
        changed = replace(getattr(config, section), **{name: value})
        config = replace(config, **{section: changed})
    return config
