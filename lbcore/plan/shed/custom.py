"""A custom strategy in the shed phase: asked twice, and used only if valid.

A wrong answer, an error or two different answers is a skip with a reason, and the state stays. A
destination that a policy forbids costs that move only.
"""

import json
import math
import traceback
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from lbcore.config.tree import CustomStrategy
from lbcore.plan.decision import PlanState
from lbcore.plan.filter.index import FilterVerdict, candidate_index
from lbcore.plan.shed.common import Selection, Shed, ShedView, TriggerStatus, no_partners
from lbcore.plan.snapshot import NOBODY, Proposal, ProposedMove, throughput
from lbcore.plan.strategy import Destinations, Run, ShedCycle, Shedding

MISSING = "StrategyMissing"
FAILED = "StrategyFailed"
WRONG = "StrategyAnswer"
UNSTEADY = "StrategyUnsteady"
FAULTS = (MISSING, FAILED, WRONG, UNSTEADY)
"""Reasons of a skip that are faults of the strategy; each is an alarm."""

REASON = "Proposed"
STATE_BYTES_MAX = 1_000_000


class _WrongAnswerError(ValueError):
    """Error in an answer of the strategy, described in one sentence."""


_Checked: TypeAlias = tuple[Proposal, list[int], list[int], str]
"""Valid answer: rows and destinations of its moves, -1 = placement decides, and the state."""


def custom_shedding(own: CustomStrategy) -> Shedding:
    """Return the record of a custom strategy."""
    return Shedding(
        name=own.name,
        rule=f"Your own: {own.code}." if own.origin else "Your own, which is not there.",
        use_when="You know better than the strategies that are there.",
        caveats="it is yours to test: `ballast simulate --strategy` runs it in virtual time",
        run=_run(own),
        trigger=lambda cycle, _shed: TriggerStatus(  # it has its own criteria
            measure="",
            number=np.full(len(cycle.view.usage), np.nan),
            partner=no_partners(len(cycle.view.usage)),
            levels=(),
        ),
        destinations=lambda _config: Destinations.KEPT,
        code=own.code if own.origin else "",
    )


def _run(own: CustomStrategy) -> Run:
    decide = own.decide

    def run(cycle: ShedCycle) -> tuple[Shed, PlanState]:
        if decide is None:
            return _refused(cycle, MISSING, own.problem)
        try:
            snapshot, own_state = _read_only(cycle.view.snapshot), json.dumps(cycle.state.own)
            first, second = (
                _checked(
                    decide(snapshot, json.loads(own_state), cycle.config, cycle.now_ms), cycle.view
                )
                for _ in range(2)
            )
        except MemoryError:
            raise
        except _WrongAnswerError as error:
            return _refused(cycle, WRONG, f"{own.code}: {error}")
        except Exception as error:  # noqa: BLE001 whatever the user's code raises: told, the job goes on
            last = traceback.extract_tb(error.__traceback__)[-1]  # equal at each repetition
            raised = f"raised {type(error).__name__} in {last.name}, line {last.lineno}"
            return _refused(cycle, FAILED, f"{own.code}: {raised}")
        if first != second:
            return _refused(cycle, UNSTEADY, f"{own.code}: asked twice, it answered differently")
        *_, after = first
        return _answer(cycle, first), replace(cycle.state, own=json.loads(after))

    return run


def _refused(cycle: ShedCycle, reason: str, detail: str) -> tuple[Shed, PlanState]:
    return Shed(selections=(), state=cycle.state.shed, reason=reason, detail=detail), cycle.state


def _read_only(value: Any) -> Any:
    """Return the same tables with read-only arrays."""
    if isinstance(value, np.ndarray):
        view = value.view()
        view.setflags(write=False)
        return view
    if not is_dataclass(value) or isinstance(value, type):
        return value
    parts = {one.name: getattr(value, one.name) for one in fields(value)}
    return replace(value, **{name: _read_only(part) for name, part in parts.items()})


def _checked(answer: Any, view: ShedView) -> _Checked:
    """Return the answer if it is valid; raises _WrongAnswerError."""
    if not (isinstance(answer, tuple) and len(answer) == 2):  # noqa: PLR2004 a pair
        raise _WrongAnswerError(f"must return (Proposal, state), got {type(answer).__name__}")
    proposal, state = answer
    if not isinstance(proposal, Proposal):
        raise _WrongAnswerError(f"must return a Proposal first, got {type(proposal).__name__}")
    if not all(isinstance(move, ProposedMove) for move in proposal.moves):
        raise _WrongAnswerError("moves must be ProposedMoves")
    _check_numbers(proposal.numbers)
    rows = _rows(proposal, view)
    brokers = {name: at for at, name in enumerate(view.snapshot.brokers.names)}
    for move, row in zip(proposal.moves, rows, strict=True):
        owner = int(view.snapshot.bundles.owner[row])
        if owner < 0:
            raise _WrongAnswerError(f"{move.bundle} is on no broker that takes part")
        if move.destination and move.destination not in brokers:
            raise _WrongAnswerError(f"there is no broker {move.destination!r} that takes part")
        if move.destination and brokers[move.destination] == owner:
            raise _WrongAnswerError(f"{move.bundle} is on {move.destination} already")
        _check_numbers(move.numbers)
    destinations = [brokers.get(move.destination, NOBODY) for move in proposal.moves]
    moves = tuple(proposal.moves)
    return replace(proposal, moves=moves), rows, destinations, _state_text(state)


def _rows(proposal: Proposal, view: ShedView) -> list[int]:
    wanted = {move.bundle for move in proposal.moves}
    if len(wanted) < len(proposal.moves):
        raise _WrongAnswerError("must move a bundle once, some are named twice")
    found = view.snapshot.bundles.rows_of(wanted)
    unknown = sorted(wanted - found.keys(), key=str)
    if unknown:
        raise _WrongAnswerError(f"there is no bundle {unknown[0]!r}")
    return [found[move.bundle] for move in proposal.moves]


def _check_numbers(numbers: Mapping[str, Any]) -> None:
    for name, value in numbers.items():
        is_number = isinstance(value, int | float | np.integer | np.floating)
        if not (is_number and math.isfinite(value)):
            raise _WrongAnswerError(f"the number {name} must be finite, got {value!r}")


def _state_text(state: Any) -> str:
    """The state as JSON with sorted keys."""
    if not isinstance(state, Mapping):
        raise _WrongAnswerError(f"the state must be a dict, got {type(state).__name__}")
    try:
        text = json.dumps(state, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError):
        raise _WrongAnswerError("the state must be plain JSON without NaN") from None
    if len(text) > STATE_BYTES_MAX:
        raise _WrongAnswerError(f"the state must have {STATE_BYTES_MAX} bytes at most")
    return text


def _answer(cycle: ShedCycle, checked: _Checked) -> Shed:
    """Return the answer as selections, one per move, in its order."""
    view, (proposal, moved, destinations, _) = cycle.view, checked
    selections, forbidden, kept = [], 0, 0
    has_any = any(at != NOBODY for at in destinations)
    index = candidate_index(view.snapshot) if has_any else None
    for move, row, destination in zip(proposal.moves, moved, destinations, strict=True):
        if not view.snapshot.bundles.can_move[row]:
            kept += 1
        elif (
            destination != NOBODY
            and index is not None
            and index.verdicts[index.row[row], destination] != FilterVerdict.OK
        ):
            forbidden += 1
        else:
            rows = np.array([row], dtype=np.int64)
            chosen = Selection(
                source=int(view.snapshot.bundles.owner[row]),
                destination=destination,
                candidates=rows,
                traffic=throughput(view.snapshot.bundles.short[rows]),
                is_taken=np.ones(1, dtype=np.bool_),
                reason=REASON,
                numbers={name: float(value) for name, value in move.numbers.items()},
            )
            selections.append(chosen)
    numbers = {name: float(value) for name, value in proposal.numbers.items()}
    left_out = {"left_out_kept": kept, "left_out_forbidden": forbidden}
    numbers |= {name: float(count) for name, count in left_out.items() if count}
    reason = "NoOverloadedBroker"
    if proposal.moves:
        reason = "NoDestination" if forbidden else "NoBundles"
    return Shed(
        selections=tuple(selections),
        state=cycle.state.shed,
        reason="" if selections else reason,
        numbers=numbers,
    )
