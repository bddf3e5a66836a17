"""AvgShedder's selection: the broker that the shedder planned, else any.

Decides the broker of a bundle when shedding is `avg`. The destinations are the shedder's own
state. Source: Pulsar 4.0.8 AvgShedder.selectBroker; the hash in place of a random number is ours.
"""

from collections.abc import Mapping, Sequence

from lbcore.plan.place.choice import choose


def select_planned(
    candidates: Sequence[str], planned: Mapping[str, str], bundle: str, version: int, seed: int
) -> tuple[str | None, dict[str, str]]:
    """The planned broker if it is a candidate, else one by hash, which becomes the plan.

    candidates: any order. planned: bundle → broker. None, and the plan as it was, without
    candidates (Pulsar divides by zero there). A filter that takes the planned broker away therefore
    overwrites the plan, as in Pulsar.
    """
    known = planned.get(bundle)
    if known is not None and known in candidates:
        return known, dict(planned)
    if not candidates:
        return None, dict(planned)
    ordered = sorted(candidates)
    chosen = ordered[choose(len(ordered), bundle, version, seed)]
    return chosen, {**planned, bundle: chosen}
