"""Trace of a planning cycle: candidates, verdicts and the deciding numbers.

Phases add to it. It is kept as arrays: a full trace of 100,000 bundles is too large to turn into
rows in every cycle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lbcore.plan.shed.common import TriggerStatus
from lbcore.plan.snapshot import Floats, Ints


class CandidateVerdict(str, Enum):
    """Reason that a candidate was taken or not.

    The filters and the split phase have verdicts of their own beside these.
    """

    TAKEN = "taken"
    RUNNER_UP = "runner_up"
    NOT_NEEDED = "not_needed"
    OVER_BUDGET = "over_budget"
    CYCLE_LIMIT = "cycle_limit"
    BROKER_LIMIT = "broker_limit"
    IN_FLIGHT_LIMIT = "in_flight_limit"
    HOUR_LIMIT = "hour_limit"
    TENANT_LIMIT = "tenant_limit"
    ROLE_COOL_DOWN = "role_cool_down"
    TOO_FEW_HITS = "too_few_hits"
    BELOW_THRESHOLD = "below_threshold"


VERDICTS = tuple(CandidateVerdict)
CODE = {verdict: code for code, verdict in enumerate(VERDICTS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Candidates of one phase as arrays of length k.

    subject: index into `subjects`. broker: index into the trace's brokers, -1 = none. verdict:
    index into `verdicts`. number: what decided, NaN = no number. hits: in a row, None = nothing is
    counted here; needed: how many it takes. reason: index into `reasons`, None = there are none.
    """

    phase: str
    subjects: Sequence[str]
    verdicts: Sequence[str]
    subject: Ints
    broker: Ints
    verdict: Ints
    number: Floats
    hits: Ints | None = None
    needed: int = 0
    reason: Ints | None = None
    reasons: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRows:
    """Reasons for the placement of k bundles.

    subject: int64[k], index into `subjects`; others: the same of bundles that were also placed, and
    of which nothing more is kept. chosen, runner_up: int64[k], broker index, -1 = none; number,
    runner_up_number: float64[k], the deciding number. verdicts: int8[k, n], each broker's, index
    into `labels`; 0 = it was a candidate.
    """

    phase: str
    subjects: Sequence[str]
    subject: Ints
    chosen: Ints
    number: Floats
    runner_up: Ints
    runner_up_number: Floats
    verdicts: NDArray[np.int8]
    labels: Sequence[str]
    others: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRows:
    """Distance of each broker from giving bundles.

    verdicts: one per broker, "" = not judged. movable: int64[n], its bundles that may move. takers:
    int64[n], other brokers that filters admit for any of these. refusals: a filter's label, the
    reason the broker that it is compared with may take none of them. "" = it may take some, or
    there is no such broker.
    """

    phase: str
    trigger: TriggerStatus
    verdicts: Sequence[str]
    movable: Ints
    takers: Ints
    refusals: Sequence[str]


Part: TypeAlias = Columns | PlacementRows | TriggerRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Records of the phases, in order.

    numbers: "phase.name" → number of the whole cycle.
    """

    brokers: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()

    def counts(self) -> dict[str, int]:
        """Return the number of bundles per verdict, by "phase.verdict".

        Placements are not counted.
        """
        found: dict[str, int] = {}
        for part in self.parts:
            if not isinstance(part, Columns):
                continue
            sums = np.bincount(part.verdict, minlength=len(part.verdicts)).tolist()
            for verdict, count in zip(part.verdicts, sums, strict=True):
                if count:
                    key = f"{part.phase}.{verdict}"
                    found[key] = found.get(key, 0) + count
        return found
