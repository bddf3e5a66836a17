"""Phase 3: the strategy says which bundles leave which brokers.

Decides who gives what, and with avg and transfer also to whom; the assign phase finds the other
destinations. Brokers that drain take no part: their load is on its way out anyway. Source: Pulsar
4.0.8's strategies behind `shed.registry`.
"""

from dataclasses import replace

import numpy as np

from lbcore.plan.draft import NOBODY, Draft, Moves
from lbcore.plan.shed.common import Selection, Shed, ShedView, owner_index
from lbcore.plan.shed.registry import forget_brokers, modular_shedder
from lbcore.plan.trace import CODE, VERDICTS, Columns, Verdict

PHASE = "shed"


def shed(draft: Draft) -> Draft:
    """The draft with selections and their moves, or the reason for none."""
    refusal = _refusal(draft)
    if refusal:
        return draft.skip(PHASE, refusal)
    name = draft.config.shedding.strategy
    state = forget_brokers(name, draft.state.shed, draft.snapshot.brokers.names)
    answer = modular_shedder(name)(_view(draft), state, draft.config.shedding, draft.config.signals)
    draft = replace(
        draft,
        state=replace(draft.state, shed=answer.state),
        selections=answer.selections,
        sheddings=_moves(answer.selections),
    )
    return _show(draft if answer.selections else draft.skip(PHASE, answer.reason), answer)


def _refusal(draft: Draft) -> str:
    config = draft.config.shedding
    if not draft.scope.sheds:
        return "NotThisCycle"
    if not (config.is_balancing and config.is_shedding):
        return "Disabled"
    return "NoBrokers" if len(draft.snapshot.brokers.names) <= 1 else ""


def _view(draft: Draft) -> ShedView:
    return ShedView(
        snapshot=draft.snapshot,
        usage=draft.usage,
        is_due=draft.is_due,
        owned=owner_index(draft.snapshot),
        keys=draft.snapshot.bundles.names,
    )


def _moves(selections: tuple[Selection, ...]) -> Moves:
    """The selections' moves, most important first: the order of the strategy."""
    rows = [selection.rows for selection in selections]
    counts = [len(found) for found in rows]
    origin = np.repeat(np.arange(len(rows), dtype=np.int64), counts)
    source = np.array([selection.source for selection in selections], dtype=np.int64)
    destination = np.array([selection.destination for selection in selections], dtype=np.int64)
    nothing = np.zeros(0, dtype=np.int64)
    return Moves(
        bundle=np.concatenate(rows) if rows else nothing,
        source=source[origin],
        destination=destination[origin],
        origin=origin,
    )


def _show(draft: Draft, answer: Shed) -> Draft:
    draft = draft.note(PHASE, answer.numbers)
    if not draft.scope.is_traced:
        return draft
    names = draft.snapshot.brokers.names
    verdicts = sorted(set(answer.verdicts.values()))
    brokers = sorted(answer.verdicts)
    sources = Columns(
        phase=PHASE,
        subjects=names,
        verdicts=verdicts,
        subject=np.array(brokers, dtype=np.int64),
        broker=np.array(brokers, dtype=np.int64),
        verdict=np.array(
            [verdicts.index(answer.verdicts[broker]) for broker in brokers], dtype=np.int64
        ),
        number=draft.usage[brokers] if brokers else np.zeros(0),
    )
    taken = [_selection_columns(draft, selection) for selection in answer.selections]
    return draft.show_brokers(PHASE, answer.columns).show(sources, *taken)


def _selection_columns(draft: Draft, selection: Selection) -> Columns:
    """The eligible bundles of one source: taken, or why not. number: their traffic."""
    lost = Verdict.NOT_NEEDED if selection.destination == NOBODY else Verdict.OVER_BUDGET
    verdict = np.where(selection.is_taken, CODE[Verdict.TAKEN], CODE[lost])
    return Columns(
        phase=PHASE,
        subjects=draft.snapshot.bundles.names,
        verdicts=[found.value for found in VERDICTS],
        subject=selection.considered,
        broker=np.full(len(verdict), selection.source, dtype=np.int64),
        verdict=verdict,
        number=selection.traffic,
    )
