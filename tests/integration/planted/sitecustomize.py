"""Plants faults in the streaming job: in its driver and in each of Spark's Python workers.

Python runs this at its start, before the job is loaded. Each fault is there while a file of its
name is in the folder that BALLAST_TEST_PLANTED names. All of them change what they can, then raise.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jobs.adapters.delta import tables
from lbcore.balancer import balancer, commands
from lbcore.scorer import scorer

MESSAGE, COMMAND, ROW, PHASE = "message", "command", "row", "run_cycle"
POISON = "poison"
"""Who sends the message and the command, and about whom the row is."""


class PlantedError(Exception):
    """A bug of ours, planted."""


def _is_planted(name: str) -> bool:
    return (Path(os.environ["BALLAST_TEST_PLANTED"]) / name).exists()


def _spoil_command(original: Callable[..., Any]) -> Callable[..., Any]:
    def handler(work: Any, command: Any, arguments: Any) -> Any:
        outcome = original(work, command, arguments)
        if _is_planted(COMMAND) and command.principal == POISON:
            work.namespaces.clear()
            raise PlantedError(f"at {object()}")
        return outcome

    return handler


def _spoil_message(take: Callable[..., Any]) -> Callable[..., Any]:
    def taken(self: Any, batch: Any, event: Any) -> None:
        take(self, batch, event)
        is_poison = event.position.topic == "audit" and f'"{POISON}"'.encode() in event.value
        if is_poison and _is_planted(MESSAGE):
            raise PlantedError

    return taken


def _spoil_phase(do: Callable[..., Any]) -> Callable[..., Any]:
    def done(work: Any) -> None:
        do(work)
        if _is_planted(PHASE):
            raise PlantedError

    return done


def _spoil_row(unpack: Callable[..., Any]) -> Callable[..., Any]:
    def unpacked(kind: str, blob: bytes) -> Mapping[str, Any]:
        columns: Mapping[str, Any] = unpack(kind, blob)
        if kind != "audit" or not _is_planted(ROW):
            return columns
        who = zip(columns["principal"], columns["reason"], strict=True)
        reasons = ["\ud800" if name == f"row of {POISON}" else reason for name, reason in who]
        return {**columns, "reason": reasons}

    return unpacked


if "BALLAST_TEST_PLANTED" in os.environ:
    for kind in commands.HANDLERS:
        commands.HANDLERS[kind] = _spoil_command(commands.HANDLERS[kind])  # type: ignore[index]
    scorer.BrokerScorer._take = _spoil_message(scorer.BrokerScorer._take)  # type: ignore[method-assign] # noqa: SLF001 what the scorer calls
    cycle = balancer.PHASES[PHASE]
    balancer.PHASES[PHASE] = balancer.BatchPhase(do=_spoil_phase(cycle.do))  # type: ignore[index]
    tables.unpack_columns = _spoil_row(tables.unpack_columns)  # type: ignore[attr-defined]
