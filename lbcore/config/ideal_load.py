"""Settings of the strategy `ballast`: tolerated difference, and moves at once.

Read by `lbcore.plan.shed.ballast`. The tolerance is Dicer's default, the budget is Slicer's idea (9
% of the keys a round there; here five brokers' load reaches ten in four rounds).
"""

from dataclasses import dataclass

from lbcore.config.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class IdealLoadConfig:
    """Tolerances around the ideal load, and the moves beyond them."""

    tolerance_percent: float = 8.0  # of the level: a smaller difference counts no low hit
    tolerance_points: float = 1.0  # no smaller difference counts, however low the level is
    high_points: float = 8.0  # a broker that is this far from the level counts a high hit, too
    # low hits in a row, each on a fresh report, until bundles move: noise rarely lasts so long
    low_hits: int = 3
    # high hits in a row until bundles move: one report may err
    high_hits: int = 2
    churn_budget: float = setting(
        0.15,
        doc="Part of all load that one round may move; what one broker is too hot by, and one "
        "bundle, always may.",
        unit="part",
        minimum=0.001,
        maximum=1,
        dynamic=True,
    )
    # a bundle above this part of a level is divided on a hot broker that can't give
    split_share: float = 0.5
    max_ineffective_rounds: int = (
        3  # after so many rounds without relief a broker is left alone, and told
    )
