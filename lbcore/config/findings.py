"""What a check says of settings: errors that stop a start, warnings that say what can't work.

Decides nothing. Strategies' own checks and `lbcore.validation` make them; `ballast config check`
shows them. Source: ours.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lbcore.config.tree import Config
from lbcore.config.values import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFinding:
    """What doesn't suit. is_error: nothing starts with it. cluster: "" = all."""

    problem: Problem
    is_error: bool
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageGaps:
    """The largest differences between two brokers of the real cluster, as far as known.

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
