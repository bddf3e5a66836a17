"""The table of kept backtests: a row a strategy and run, the recorded run's own among them.

Decides nothing; `tables` lists it with the others. Not the job but `ballast backtest --keep` adds
to it. Source: ours.
"""

from lbcore.model.table import Column, Table, column

RUNS_KEPT = 20
"""So many runs of each cluster stay, the newest; upkeep lets the others go."""


def _figure(name: str, doc: str) -> Column:
    return column(name, "double", f"{doc}; null: not known", is_nullable=True)


BACKTESTS = Table(
    name="backtests",
    doc="What `ballast backtest --keep` found: a row a strategy, the newest 20 runs of a cluster.",
    columns=(
        column("cluster", "string", "cluster whose recorded load it was"),
        column("run_id", "string", "the run that its rows share"),
        column("strategy", "string", "who competed; as-set: its own settings; recorded: no try"),
        column(
            "shedding", "string", "shedding.strategy it had, 'none': sheds nothing; '' = recorded"
        ),
        column("from_ms", "long", "start of the recorded time, ms since 1970"),
        column("until_ms", "long", "its end"),
        column("brokers", "int", "brokers that there were"),
        column("bundles", "int", "bundles at the start"),
        column("seed", "long", "of the simulator's noise"),
        column("settings", "string", "JSON list: what --set had for all, section.name=value"),
        column("bar", "double", "imbalance above which a cluster is not even, of above_ms"),
        _figure("cost", "points, as `ballast tune` weighs imbalance and moves; less is better"),
        _figure("imbalance_mean", "highest over mean, the mean over time"),
        _figure("imbalance_p50", "and its median"),
        _figure("imbalance_p95", "and what it was at most for 95 % of the time"),
        _figure("floor_adjusted_mean", "what of it moves could mend, the mean over time"),
        _figure("floor_adjusted_p50", "and its median"),
        _figure("floor_adjusted_p95", "and what it was at most for 95 % of the time"),
        _figure("bound_mean", "the least imbalance that whole bundles could have had, the mean"),
        _figure("over_bound_mean", "the imbalance over the least possible, the mean, from 1"),
        _figure("above_ms", "how long the imbalance was above the bar"),
        _figure("nobody_ms", "of that, how long nobody could have been below"),
        _figure("balanced_ms", "time until it stayed below the bar; null: never, or recorded"),
        _figure("moves", "bundles moved"),
        _figure("thrash", "share of moves back to an owner left less than an hour before"),
        _figure("splits", "bundles split"),
        _figure("unserved_ms", "time without service, summed over topics"),
        column("at_ms", "long", "when it was kept, ms since 1970"),
    ),
)
