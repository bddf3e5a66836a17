"""Constants of the configuration that a test changes, which no settings file may."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lbcore.config.tree import Config


def with_constants(config: Config, values: Mapping[str, Any]) -> Config:
    """The configuration with other constants, "section.name" → value."""
    for key, value in values.items():
        section, name = key.split(".")
        changed = replace(getattr(config, section), **{name: value})
        config = replace(config, **{section: changed})
    return config
