"""Findings of a check of settings: errors prevent a start, warnings do not.

Warnings name what can't work. Strategies' own checks and `lbcore.validation` make findings;
`ballast config check` shows them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lbcore.config.tree import Config
from lbcore.config.values import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFinding:
    """Fault in the settings. is_error: it prevents a start. cluster: "" = all."""

    problem: Problem
    is_error: bool
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageGaps:
    """Largest known differences between two brokers of the real cluster.

    message_rate_per_s: in + out. throughput_bytes_per_s: in + out. usage_points: 100 = 100 %.
    """

    message_rate_per_s: float | None = None
    throughput_bytes_per_s: float | None = None
    usage_points: float | None = None


StrategyCheck = Callable[[Config, UsageGaps], Iterator[ConfigFinding]]
"""A strategy's own check, made when the configuration names it."""


def error(key: str, detail: str) -> ConfigFinding:
    """A finding with which nothing starts."""
    return ConfigFinding(problem=Problem(key=key, detail=detail), is_error=True)


def warning(key: str, detail: str) -> ConfigFinding:
    """A finding that is told."""
    return ConfigFinding(problem=Problem(key=key, detail=detail), is_error=False)
