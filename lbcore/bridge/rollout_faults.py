"""Faults of a rolling restart, by what is seen of the cluster.

Decides which sight is a fault at which stage, and how long it may last before the whole restart
stops. A broker that is gone is a fault unless it is the one being restarted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lbcore.bridge.rollout import (
    AWAY,
    Complaint,
    RestartBounds,
    RestartSight,
    RestartStage,
    Rollout,
)
from lbcore.model.times import duration

GO_ON = "then give the same command again: it goes on where it was"
_CONFIRM_MS = 5_000
_OURS = frozenset({"cluster.observe_only"})
"""Settings that the bridge itself changes when it stops or begins to act."""
_SHOWN = 3


def complaints(
    rollout: Rollout, sight: RestartSight, bounds: RestartBounds
) -> tuple[Complaint, ...]:
    """All that is wrong now, in a fixed order."""
    return (
        *_gone(rollout, sight),
        *_settings(rollout, sight),
        *_unowned(rollout, sight, bounds),
        *_drains(rollout, sight),
        *_no_room(rollout, sight, bounds),
        *(one for one in sight.complaints if not _is_of_the_restart(rollout, one)),
    )


def with_doubts(rollout: Rollout, wrong: Iterable[Complaint], now_ms: int) -> Rollout:
    """Return the rollout with its present problems and the start of each."""
    return replace(rollout, doubts={one.key: rollout.doubts.get(one.key, now_ms) for one in wrong})


def overdue(
    rollout: Rollout, wrong: Iterable[Complaint], now_ms: int, bounds: RestartBounds
) -> Complaint | None:
    """The first that lasts too long; before a drain there is more time."""
    for one in wrong:
        patience_ms = one.patience_ms
        if rollout.stage is RestartStage.WAITING:
            patience_ms = max(patience_ms, bounds.ready_ms)
        if now_ms - rollout.doubts.get(one.key, now_ms) >= patience_ms:
            return one
    return None


def _gone(rollout: Rollout, sight: RestartSight) -> Iterable[Complaint]:
    for broker in rollout.brokers:
        if broker in sight.listed or (broker == rollout.broker and rollout.stage in AWAY):
            continue
        is_other = broker != rollout.broker
        why = f"{broker} is gone from Pulsar's list of active brokers"
        why += "" if is_other else ", and it was not being restarted"
        yield Complaint(
            key=f"gone {broker}",
            why=why,
            next_step=f"see why it ended and start it, {GO_ON}",
            patience_ms=_CONFIRM_MS,
        )


def _settings(rollout: Rollout, sight: RestartSight) -> Iterable[Complaint]:
    changed = _changed(rollout.settings, sight.settings)
    if sight.settings and changed:
        yield Complaint(
            key="settings",
            why=f"settings have changed since it began: {', '.join(changed[:_SHOWN])}",
            next_step="see who changed them and whether that is meant, then give the same command"
            " again: it goes on under the new ones",
        )


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    names = sorted((before.keys() | now.keys()) - _OURS)
    return [
        f"{name} {before.get(name, 'unset')} → {now.get(name, 'unset')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _unowned(rollout: Rollout, sight: RestartSight, bounds: RestartBounds) -> Iterable[Complaint]:
    """Of what was moved for this; of all else with clients the guardian tells."""
    for bundle in sorted(sight.freed.keys() & set(rollout.served)):
        age_ms = sight.now_ms - sight.freed[bundle]
        if age_ms >= bounds.unowned_ms:
            yield Complaint(
                key=f"unowned {bundle}",
                why=f"nobody has had {bundle} for {duration(age_ms)}",
                next_step="look one of its topics up, read `ballast status` and the brokers' logs,"
                f" {GO_ON}",
            )
            return
    if sight.oldest_move_ms >= bounds.stuck_ms:
        yield Complaint(
            key="stuck",
            why=f"a bundle has been on its way for {duration(sight.oldest_move_ms)}",
            next_step=f"`ballast status` names it: see the log of its broker, {GO_ON}",
        )


def _drains(rollout: Rollout, sight: RestartSight) -> Iterable[Complaint]:
    for broker in sorted(sight.drains.keys() - {rollout.broker}):
        yield Complaint(
            key=f"drain {broker}",
            why=f"{broker} is being drained, too, or was and is still closed",
            next_step=f"`ballast broker cancel-drain {broker}` opens it, {GO_ON}",
            patience_ms=_CONFIRM_MS,
        )


def _no_room(rollout: Rollout, sight: RestartSight, bounds: RestartBounds) -> Iterable[Complaint]:
    if len(rollout.brokers) == 1:
        yield Complaint(
            key="alone",
            why=f"{rollout.broker} is the only broker: nobody could take its bundles",
            next_step="start another broker first",
        )
    felt_ms = sight.felt_ms or 0.0
    if rollout.stage is RestartStage.WAITING and felt_ms > bounds.felt_ms:
        yield Complaint(
            key="felt",
            why=f"clients wait {felt_ms:.0f} ms though nothing is moved yet",
            next_step=f"see what hurts them, or allow more with --felt-ms, {GO_ON}",
        )
    usage = sight.others_usage
    if rollout.stage is RestartStage.WAITING and usage is not None and usage > bounds.room:
        yield Complaint(
            key="room",
            why=f"without {rollout.broker} the others would be at {usage:.0%}, which is more than"
            f" {bounds.room:.0%}",
            next_step="wait for a quieter hour, add a broker, or allow more with --room",
        )


def _is_of_the_restart(rollout: Rollout, one: Complaint) -> bool:
    """True if it concerns the current broker while that is away, as it must be."""
    return rollout.stage in AWAY and one.key.endswith(f" {rollout.broker}")
