"""Common fields of a strategy's record, for shedding and placement.

The records are in `plan.shed.registry` and `plan.place.registry`. Code that lists, checks, draws or
runs strategies reads them there.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from lbcore.config.findings import StrategyCheck
from lbcore.config.setting import Entry
from lbcore.config.tree import SETTINGS
from lbcore.model.resources import RESOURCES


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One strategy, as far as it is told.

    pulsar_class: "" = ours. caveats: what it is bad at. settings: keys, "section.name". is_whole:
    it plans destinations while it sheds, so it is set for both halves or for neither. checks: made
    when it is the one in force. seen_in: examples, links into tests/. code: of one that is not
    Ballast's, where it is and its digest.
    """

    name: str
    pulsar_class: str = ""
    rule: str
    use_when: str
    caveats: str
    settings: tuple[str, ...] = ()
    is_whole: bool = False
    checks: tuple[StrategyCheck, ...] = ()
    seen_in: str = ""
    code: str = ""

    def entries(self) -> Iterator[Entry]:
        """The declarations of its settings: default, unit, range, Pulsar's key."""
        return (SETTINGS[key] for key in self.settings)


def keys(section: str, *names: str) -> tuple[str, ...]:
    """Settings of one section, "section.name"."""
    return tuple(f"{section}.{name}" for name in names)


WEIGHTS = keys("signals", *(one.weight for one in RESOURCES if one.is_local and one.weight))
"""The settings behind the weighted usage of a broker, which has no heap, as in Pulsar 4.0.8."""

SCORE_WEIGHTS = keys("signals", *(one.weight for one in RESOURCES if one.weight))
"""The settings behind the extensible score, which has."""
