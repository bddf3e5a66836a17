"""Merges of two neighbours into one bundle, by command or when both are cold.

The owner of the one with more traffic keeps the merged bundle. Where the other has another owner,
it is transferred there first. Part of `balancer`; the state machine is that of `ownership`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.book import (
    ACCEPTED,
    AFTER,
    BUNDLES_WANTED,
    FAILED,
    Outcome,
    RefusedCommandError,
    refuse_if,
)
from lbcore.balancer.brokers import is_external, reason_not_to_take
from lbcore.balancer.bundle_commands import find_record
from lbcore.balancer.ledger import CAUSE_CODE, LIVE, STATE_CODE
from lbcore.balancer.moves import reason_not_to_balance, reason_to_stand_still
from lbcore.balancer.namespaces import CREATING, DELETING, has_namespace
from lbcore.balancer.placement import planning_config
from lbcore.balancer.waiting import MERGE, begin_wait, end_wait, finish_command
from lbcore.config.cluster import ASK
from lbcore.model.names import parse_bundle, tenant_of
from lbcore.ownership.changes import destination_of, joined
from lbcore.ownership.protocol import merge, transfer
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.plan.decision import moves_within_hour, with_moves
from lbcore.signals.averages import SHORT_SAMPLES
from lbcore.wire.kinds.bundle_commands import MergeBundle
from lbcore.wire.messages import Command

ADMIN, COLD = "Admin", "Cold"
PRINCIPAL = "balancer"
"""Principal of automatic merges in rows of `commands`."""
_LOOKED_AT = 10
"""Pairs that are looked at for each merge that a cycle may begin."""


_Pair: TypeAlias = tuple[OwnershipRecord, OwnershipRecord]
"""Two neighbours: the one with more traffic, whose owner keeps what they become, and the other."""


def merge_bundle(work: BatchContext, command: Command, arguments: MergeBundle) -> Outcome:
    """Begin the merge, or the transfer before it."""
    pair = _pair(work, arguments.bundle, arguments.neighbour)
    return _begin(work, pair, command.command_id, ADMIN, {})


def _pair(work: BatchContext, bundle: str, neighbour: str) -> _Pair:
    refuse_if(
        is_external(work),
        f"bundle {bundle} can't be merged here: Pulsar owns this cluster's bundles, and its "
        "brokers only split; give the namespace fewer bundles when it is created anew",
    )
    record = find_record(work, bundle)
    namespace, _, end = parse_bundle(bundle)
    names = (work.ledger.names[row] for row in work.ledger.live_rows(namespace))
    upper = next((name for name in names if parse_bundle(name)[1] == end), "")
    neighbour = neighbour or upper
    refuse_if(
        not neighbour,
        f"bundle {bundle} is the last of its namespace and has no upper neighbour; name the "
        "bundle below it instead",
    )
    refuse_if(
        namespace != neighbour.rpartition("/")[0],
        f"{bundle} and {neighbour} are of different namespaces, and a bundle belongs to one; "
        "name two neighbours of one namespace",
    )
    advice = f"its upper neighbour is {upper}" if upper else "name the bundle below it"
    refuse_if(
        not joined(bundle, neighbour),
        f"{bundle} and {neighbour} are no neighbours, and a bundle is one range of hashes; "
        f"{advice}",
    )
    return _ordered(work, record, find_record(work, neighbour))


def _ordered(work: BatchContext, *both: OwnershipRecord) -> _Pair:
    low, high = sorted(both, key=lambda record: record.bundle)
    rates = work.ledger.short[[work.ledger.index[one.bundle] for one in (low, high)]].sum(axis=1)
    return (high, low) if rates[1] > rates[0] else (low, high)


def _refuse_for_now(work: BatchContext, pair: _Pair, merged: str, command_id: str) -> None:
    """Raise RefusedCommandError if the two can't be merged now."""
    for record in pair:
        bundle, pin = record.bundle, work.rules.pins.get(record.bundle)
        refuse_if(
            record.state is not State.OWNED,
            f"bundle {bundle} is {record.state.value}"
            f" ({record.source or record.destination or 'nobody'}), and only bundles at rest are "
            "merged; ask again when it is Owned",
        )
        if pin is not None:
            raise RefusedCommandError(
                f"bundle {bundle} is pinned to {pin.broker} and would be gone; unpin it first"
            )
    namespace = merged.rpartition("/")[0]
    least = int(work.namespaces[namespace].properties.get(BUNDLES_WANTED, 0))
    count = _count_after_merges(work, namespace, _merges_in_transfer(work, command_id))
    refuse_if(
        count <= max(least, 1),
        f"namespace {namespace} has {count} bundles when its merges have ended, as many as it "
        "was created with; only what splits have added is merged",
    )
    kept, _ = pair
    problem = reason_not_to_take(work, kept.destination)
    refuse_if(problem, f"{merged} would stay with its owner: {problem}")


def _begin(
    work: BatchContext, pair: _Pair, command_id: str, reason: str, inputs: Mapping[str, Any]
) -> Outcome:
    """Begin the merge, or with two owners the transfer of the less busy bundle.

    A command whose transfer has ended begins no other.
    """
    kept, other = pair
    merged = joined(kept.bundle, other.bundle)
    _refuse_for_now(work, pair, merged, command_id)
    target = destination_of(kept)
    is_together = target == destination_of(other)
    waiting = work.waiting.get(command_id)
    is_second = waiting is not None and AFTER in waiting.result
    refuse_if(is_second and not is_together, "their owners differ again")
    origin = work.origin(Cause.MERGE, work.next_decision(), command_id)
    refused = work.apply(
        merge(kept, other, origin) if is_together else transfer(other, target, origin)
    )
    refuse_if(refused, f"{merged} can't be made now: {refused}; ask again")
    parents = sorted([kept.bundle, other.bundle])
    result: dict[str, Any] = {"merged": merged, "parents": parents}
    work.write_decision(
        decision_id=origin.decision_id,
        kind="merge",
        reason=reason,
        inputs={"command_id": command_id, **inputs, **result},
        bundle=kept.bundle if is_together else other.bundle,
        source=other.destination,
        destination="" if is_together else kept.destination,
    )
    if not is_together:
        result[AFTER] = "transfer"
    moving = dict.fromkeys(parents if is_together else [other.bundle], other.destination)
    return Outcome(status=ACCEPTED, result=result, moving=moving)


def continue_merges(work: BatchContext, command_ids: Sequence[str]) -> None:
    """Merge what the transfers of these commands have brought together."""
    for command_id in command_ids:
        waiting = work.waiting[command_id]
        if waiting.failed:
            result = {name: value for name, value in waiting.result.items() if name != AFTER}
            work.waiting[command_id] = replace(waiting, result=result)
            end_wait(work, command_id)
            continue
        try:
            pair = _pair(work, *waiting.result["parents"])
            reason = COLD if waiting.command.principal == PRINCIPAL else ADMIN
            begun = _begin(work, pair, command_id, reason, {})
            begin_wait(work, waiting.command, begun, waiting.deadline_ms)
        except RefusedCommandError as error:
            reason = f"it was given up after the transfer: {error}"
            finish_command(work, command_id, Outcome(status=FAILED, reason=reason))


def merge_cold(work: BatchContext) -> None:
    """Begin merges in a cycle that decides splits, the least loaded first. O(bundles)."""
    config, cluster = work.config.splitting, work.config.cluster
    is_due = config.merge_enabled and work.times.split_ms == work.now_ms
    may_not_begin = cluster.observe_only or cluster.approval == ASK
    if not is_due or may_not_begin or is_external(work) or work.is_catching_up:
        return
    if reason_to_stand_still(work)[0] or reason_not_to_balance(work)[0]:
        return
    most, begun = config.max_merges_per_cycle, 0
    taken: set[str] = set()
    for (kept, other), load in _cold_pairs(work, most * _LOOKED_AT):
        names = {kept.bundle, other.bundle}
        tenant = tenant_of(kept.bundle)
        is_apart = kept.destination != other.destination
        if names & taken or begun >= most or (is_apart and _is_hour_full(work, tenant)):
            continue
        bundle, neighbour = sorted(names)
        command = Command(
            cluster=work.cluster,
            command_id=work.next_decision(),
            kind=MERGE,
            arguments={"bundle": bundle, "neighbour": neighbour},
            principal=PRINCIPAL,
        )
        inputs = {"load_of_split_limit": round(load, 4)}
        with suppress(RefusedCommandError):
            outcome = _begin(work, (kept, other), command.command_id, COLD, inputs)
            taken |= names
            begun += 1
            begin_wait(work, command, outcome, 0)
            moved = with_moves(work.plan.hourly, [tenant] * is_apart, work.now_ms)
            work.plan = replace(work.plan, hourly=moved)


def _is_hour_full(work: BatchContext, tenant: str) -> bool:
    """True if cycles have moved as many bundles within an hour as they may."""
    shedding, moved = work.config.shedding, moves_within_hour(work.plan.hourly, work.now_ms)
    return (
        0 <= shedding.max_moves_per_hour <= moved.total()
        or 0 <= shedding.max_moves_per_hour_of_tenant <= moved[tenant]
    )


def _cold_pairs(work: BatchContext, most: int) -> Iterator[tuple[_Pair, float]]:
    """Yield pairs that have long been at rest and cold, with their share of a limit.

    Pairs of one owner come first, then those with the least load. most: pairs at most.
    """
    ledger = work.ledger
    rows, load = _loads_of_neighbours(work)
    chosen = np.flatnonzero(load <= 1 / _HYSTERESIS)
    owners = ledger.destination[rows]
    is_apart = owners[chosen] != owners[chosen + 1]
    rooms = dict.fromkeys(planning_config(work).shedding.excluded_namespaces, 0)
    in_transfer = _merges_in_transfer(work)
    for at in chosen[np.lexsort((load[chosen], is_apart))].tolist():
        low, high = int(rows[at]), int(rows[at + 1])
        namespace = ledger.names[low].rpartition("/")[0]
        if namespace not in rooms:
            rooms[namespace] = _room(work, namespace, in_transfer)
        if rooms[namespace] > 0 and most > 0:
            rooms[namespace] -= 1
            most -= 1
            pair = _ordered(work, ledger.record_at(low), ledger.record_at(high))
            yield pair, float(load[at])


_HYSTERESIS = 2.0
"""Ratio of each split limit to the most load that a bundle may have right after a merge."""


def _loads_of_neighbours(work: BatchContext) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return live rows, and for each the load of it and the next one.

    The load is a share of the nearest split limit, and infinite where the two can't be merged. Both
    averages of traffic count, the short one too: a bundle that has just become hot is not cold.
    """
    ledger, config = work.ledger, work.config.splitting
    rows = ledger.rows_in(*LIVE)
    if len(rows) < 2:  # noqa: PLR2004 two are merged
        return rows, np.zeros(0)
    is_calm = (
        (ledger.state[rows] == STATE_CODE[State.OWNED])
        & (ledger.cause[rows] != CAUSE_CODE[Cause.MERGE])  # MERGE at rest: its last merge failed
        & (ledger.at_ms[rows] <= work.now_ms - config.merge_after_ms)
        & (ledger.long_count[rows] >= SHORT_SAMPLES)
    )
    traffic = np.maximum(ledger.short[rows], ledger.long[rows])
    sessions = config.max_sessions if config.max_sessions > 0 else np.inf
    parts = (
        ledger.topics[rows] / max(config.max_topics, 1),
        ledger.sessions[rows] / sessions,
        traffic[:, :2].sum(axis=1) / max(config.max_msg_rate_per_s, 1),
        traffic[:, 2:].sum(axis=1) / max(config.max_throughput_bytes_per_s, 1),
    )
    load = np.max([part[:-1] + part[1:] for part in parts], axis=0)
    _, namespaces = ledger.namespaces()
    is_pair = is_calm[:-1] & is_calm[1:] & (namespaces[rows[:-1]] == namespaces[rows[1:]])
    return rows, np.where(is_pair, load, np.inf)


def _merges_in_transfer(work: BatchContext, command_id: str = "") -> Counter[str]:
    """Return namespace → merges that wait for their transfer, without this command's."""
    return Counter(
        str(waiting.result["parents"][0]).rpartition("/")[0]
        for one, waiting in work.waiting.items()
        if one != command_id and waiting.command.kind == MERGE and AFTER in waiting.result
    )


def _count_after_merges(work: BatchContext, namespace: str, in_transfer: Counter[str]) -> int:
    """Return the number of bundles when the merges under way have ended."""
    rows = work.ledger.live_rows(namespace)
    merging = int((work.ledger.state[rows] == STATE_CODE[State.MERGING]).sum()) // 2
    return len(rows) - merging - in_transfer[namespace]


def _room(work: BatchContext, namespace: str, in_transfer: Counter[str]) -> int:
    """Return how many bundles the namespace may lose, beside merges under way."""
    is_at_rest = has_namespace(work, namespace) and {CREATING, DELETING}.isdisjoint(
        work.namespaces[namespace].properties
    )
    if not is_at_rest or namespace in work.rules.paused:
        return 0
    least = int(work.namespaces[namespace].properties.get(BUNDLES_WANTED, 0))
    return _count_after_merges(work, namespace, in_transfer) - least if least else 0
