"""The strategies by name: each one's rule in a line, when to use it, and its settings.

Decides nothing. `ballast strategies` and the documentation list them. Source: Pulsar 4.0.8's class
names and rules; short names and advice are ours.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from lbcore.config.catalogue import Entry
from lbcore.config.fair_level import FairLevelConfig
from lbcore.config.placement import (
    AVG,
    BALLAST,
    LEAST_LONG_TERM_MESSAGE_RATE,
    LEAST_RESOURCE_USAGE_WITH_WEIGHT,
    ROUND_ROBIN,
)
from lbcore.config.shedding import SheddingConfig
from lbcore.config.strategies import PLACEMENT, SHEDDING, short_name
from lbcore.config.transfer import TransferConfig
from lbcore.config.tree import SETTINGS

SHED, PLACE = "shedding", "placement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One strategy. kind: shedding or placement. settings: keys, "section.name"."""

    kind: str
    name: str
    pulsar_class: str
    rule: str
    use_when: str
    settings: tuple[str, ...]

    def entries(self) -> Iterator[Entry]:
        """The declarations of its settings: default, unit, range, Pulsar's key."""
        return (SETTINGS[key] for key in self.settings)


def _keys(section: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{section}.{name}" for name in names)


_WEIGHTS = _keys(
    "signals",
    "cpu_weight",
    "direct_memory_weight",
    "bandwidth_in_weight",
    "bandwidth_out_weight",
)
_MULTI_HIT = _keys(
    "shedding",
    *(one.name for one in fields(SheddingConfig) if one.name.startswith("multi_hit")),
)
_OVERLOAD_LIMIT = "placement.overloaded_threshold_percent"

STRATEGIES = (
    Strategy(
        kind=SHED,
        name=AVG,
        pulsar_class=SHEDDING[AVG],
        rule="Pairs the hottest broker with the coldest and so on; a pair that differs by a low or "
        "a high threshold for enough cycles evens out its traffic, to the partner.",
        use_when="The default: few moves, no overshoot, works at any load, fills new brokers.",
        settings=(
            *_keys(
                "shedding",
                "avg_low_threshold",
                "avg_high_threshold",
                "avg_low_hits",
                "avg_high_hits",
                "max_unload_fraction",
                "min_unload_rate_msg_per_s",
                "min_unload_throughput_bytes_per_s",
                "keep_destination",
            ),
            *_WEIGHTS,
        ),
    ),
    Strategy(
        kind=SHED,
        name="threshold",
        pulsar_class=SHEDDING["threshold"],
        rule="Every broker whose smoothed usage is a threshold above the average gives up the "
        "excess and five points; with the lower boundary, the hottest one when a broker idles.",
        use_when="Pulsar's default until 2026; many similar brokers. Turn `multi_hit` on, or the "
        "lower boundary when brokers are added.",
        settings=(
            *_keys("shedding", "threshold_percent", "lower_boundary", "min_throughput_mib_per_s"),
            "signals.history_weight",
            *_WEIGHTS,
            *_MULTI_HIT,
        ),
    ),
    Strategy(
        kind=SHED,
        name="overload",
        pulsar_class=SHEDDING["overload"],
        rule="Every broker at or above the overload threshold gives up the excess and five points.",
        use_when="Brokers may be uneven as long as none is full. Harmful when all are full: turn "
        "`multi_hit` on.",
        settings=(
            *_keys("shedding", "overloaded_threshold_percent"),
            *_WEIGHTS,
            *_MULTI_HIT,
        ),
    ),
    Strategy(
        kind=SHED,
        name="uniform",
        pulsar_class=SHEDDING["uniform"],
        rule="The broker with most traffic gives part of its lead over the idlest one, by message "
        "rate, else by bytes; usage does not count.",
        use_when="Traffic is to be even whatever it costs the brokers, e.g. with foreign load.",
        settings=(
            *_keys(
                "shedding",
                "rate_difference_percent",
                "throughput_ratio",
                "max_unload_fraction",
                "max_unload_bundles",
                "min_unload_rate_msg_per_s",
                "min_unload_throughput_bytes_per_s",
            ),
            *_MULTI_HIT,
        ),
    ),
    Strategy(
        kind=SHED,
        name="transfer",
        pulsar_class=SHEDDING["transfer"],
        rule="Moves bundles from the hottest to the coldest brokers until the deviation of the "
        "scores is below a target, swapping where a plain move doesn't fit.",
        use_when="Migrating from the extensible load manager, or a deviation is the goal.",
        settings=_keys("transfer", *(one.name for one in fields(TransferConfig))),
    ),
    Strategy(
        kind=SHED,
        name=BALLAST,
        pulsar_class=SHEDDING[BALLAST],
        rule="Everybody to the fair level: the hottest broker gives to the coldest, within a "
        "budget a round; a bundle that no move can place is divided.",
        use_when="Loads are skewed, hot spots jump, brokers differ in size, or other processes use "
        "the same machines.",
        settings=(*_keys("fair_level", *(one.name for one in fields(FairLevelConfig))), *_WEIGHTS),
    ),
    Strategy(
        kind=PLACE,
        name=AVG,
        pulsar_class=PLACEMENT[AVG],
        rule="The destination that the shedder chose; a bundle without one goes by least "
        "long-term message rate (Pulsar: anywhere).",
        use_when="Always and only with shedding by avg.",
        settings=_keys("placement", "count_planned"),
    ),
    Strategy(
        kind=PLACE,
        name=LEAST_LONG_TERM_MESSAGE_RATE,
        pulsar_class=PLACEMENT[LEAST_LONG_TERM_MESSAGE_RATE],
        rule="The broker with the least long-term message rate that is not overloaded.",
        use_when="Bundles are alike; Pulsar's default until 2026.",
        settings=(
            _OVERLOAD_LIMIT,
            *_keys("placement", "count_planned", "heaviest_first", "planned_rate_floor_msg_per_s"),
        ),
    ),
    Strategy(
        kind=PLACE,
        name=LEAST_RESOURCE_USAGE_WITH_WEIGHT,
        pulsar_class=PLACEMENT[LEAST_RESOURCE_USAGE_WITH_WEIGHT],
        rule="Any broker whose smoothed usage is a difference below the average; without one, any "
        "at all.",
        use_when="Usage matters more than messages and differs between brokers.",
        settings=(
            *_keys("placement", "usage_difference_percent", "smooth_once_per_plan"),
            "placement.count_planned",
            "signals.history_weight",
            *_WEIGHTS,
        ),
    ),
    Strategy(
        kind=PLACE,
        name=BALLAST,
        pulsar_class=PLACEMENT[BALLAST],
        rule="The destination that the shedder chose; a bundle without one goes where it leaves "
        "the least score, by the broker's size.",
        use_when="Always and only with shedding by ballast.",
        settings=_keys("placement", "count_planned", "planned_rate_floor_msg_per_s"),
    ),
    Strategy(
        kind=PLACE,
        name=ROUND_ROBIN,
        pulsar_class=PLACEMENT[ROUND_ROBIN],
        rule="One broker after the other.",
        use_when="Load reports can't be trusted; Pulsar's choice for excluded namespaces.",
        settings=(),
    ),
)


def strategy(kind: str, name: str) -> Strategy:
    """A strategy by our name or Pulsar's class name, with or without its package.

    Raises KeyError for another one.
    """
    short = short_name(name, SHEDDING if kind == SHED else PLACEMENT)
    for one in STRATEGIES:
        if (one.kind, one.name) == (kind, short):
            return one
    raise KeyError(name)
