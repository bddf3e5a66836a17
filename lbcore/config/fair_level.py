"""Settings of the strategy `ballast`: when brokers differ too much, and how much moves at once.

Decides nothing. Read by `lbcore.plan.shed.ballast`. Source: ours; the tolerance is Dicer's default,
the budget is Slicer's idea (9 % of the keys a round there; here five brokers' load reaches ten in
four rounds).
"""

from dataclasses import dataclass

from lbcore.config.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class FairLevelConfig:
    """When a broker is too far from the fair level, and what is done about it."""

    tolerance_percent: float = setting(
        8.0,
        doc="A broker that is this much above or below the fair level, in percent of that level, "
        "counts a low hit.",
        unit="percent of the level",
        minimum=1,
        dynamic=True,
    )
    tolerance_points: float = setting(
        1.0,
        doc="No smaller difference from the fair level counts, however low the level is.",
        unit="points",
        minimum=0,
        dynamic=True,
    )
    high_points: float = setting(
        8.0,
        doc="A broker that is this far from the fair level counts a high hit, too.",
        unit="points",
        minimum=0,
        dynamic=True,
    )
    low_hits: int = setting(
        3,
        doc="Low hits in a row, each on a fresh report, until bundles move.",
        unit="hits",
        minimum=1,
        dynamic=True,
    )
    high_hits: int = setting(
        2,
        doc="High hits in a row until bundles move.",
        unit="hits",
        minimum=1,
        dynamic=True,
    )
    churn_budget: float = setting(
        0.15,
        doc="Part of all load that one round may move; what one broker is too hot by, and one "
        "bundle, always may.",
        unit="part",
        minimum=0.001,
        maximum=1,
        dynamic=True,
    )
    split_share: float = setting(
        0.5,
        doc="On a broker that is too hot and can't give: a bundle that alone makes more than this "
        "part of a broker's fair level is divided; one above the whole level is divided first.",
        unit="part of the level",
        minimum=0.05,
        maximum=1,
        dynamic=True,
    )
    rounds_in_vain: int = setting(
        3,
        doc="After so many rounds in a row in which a broker's usage rose although its traffic "
        "fell it is left alone, and told, until its traffic rises or it is hot no more.",
        unit="rounds",
        minimum=1,
        dynamic=True,
    )
