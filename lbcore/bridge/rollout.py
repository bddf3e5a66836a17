"""Rolling restart as a value: its progress, what is seen of the cluster, what is to be done.

Decides the order of the brokers, the form of the file from which a restart resumes, and which
observation is a fault at which stage. A broker that is gone is a fault unless it is the one being
restarted. The next step is `lbcore.bridge.rolling`'s.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from typing import Any, TypeAlias

from lbcore.model.times import duration

NOT_KNOWN = -1.0
_BUNDLES_FOR_ONE, _AT_ONCE_MOST = 20, 16


class RestartStage(str, Enum):
    """Stage of the current broker: what is waited for; the value is in the file.

    EASING: clients have felt the moves; none is begun until they no longer do. DONE: every broker
    is done.
    """

    WAITING = "waiting"
    DRAINING = "draining"
    EASING = "easing"
    EMPTIED = "emptied"
    RESTARTING = "restarting"
    RETURNING = "returning"
    REOPENING = "reopening"
    FILLING = "filling"
    EVENING = "evening"
    DONE = "done"


AWAY = (RestartStage.RESTARTING, RestartStage.RETURNING)
"""The broker in hand may be gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartBounds:
    """Time limits of a rolling restart in ms, and limits of concurrency.

    ready_ms: until all is well before a drain. empty_ms: until Pulsar shows nothing on a drained
    broker. command_ms: of the command. restart_ms: from the command's end until another process is
    seen, or the old one is gone. return_ms: until it is back. settle_ms: it must stay for so long.
    calm_ms: clients must feel nothing for so long. unowned_ms: a bundle may have no owner for so
    long. at_once: bundles in transit, 0 = as `pace_of` says. publish_latency_ms: latency that
    clients may
    feel. room: usage of the others while one is gone, 1.0 = 100 %. even: busiest over mean.
    """

    ready_ms: int = 120_000
    drain_ms: int = 1_800_000
    empty_ms: int = 180_000
    command_ms: int = 600_000
    restart_ms: int = 120_000
    return_ms: int = 300_000
    settle_ms: int = 10_000
    fill_ms: int = 1_800_000
    even_ms: int = 300_000
    calm_ms: int = 15_000
    ease_ms: int = 600_000
    unowned_ms: int = 30_000
    stuck_ms: int = 240_000
    at_once: int = 0
    publish_latency_ms: float = 500.0
    room: float = 0.9
    even: float = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """Progress of a rolling restart. Times in ms since 1970.

    run: its own name, part of the ids of its commands. by: who asked. command: "" = a person
    restarts. order: the brokers to restart; at: the current one; brokers: all that there were.
    settings, imbalance: as it began. turn: counts drains and plans, so that each has an id of its
    own. incarnation: of the process to be restarted; returned, returned_ms: of the one that came,
    and since when. homes: the bundles that the broker had; served: those of them with topics.
    was_drained: its drain has been seen.

    back: the stage after EASING. calm_since_ms: since when nothing is felt, 0 = it is. at_once:
    bundles in transit. tries: of filling. doubts: what is wrong, since when. stopped: why, "" = it
    goes on.
    """

    run: str
    cluster: str
    pulsar_cluster: str
    by: str
    command: str
    began_ms: int
    order: tuple[str, ...]
    brokers: tuple[str, ...]
    at_once: int
    settings: Mapping[str, str] = field(default_factory=dict)
    imbalance: float = NOT_KNOWN
    at: int = 0
    stage: RestartStage = RestartStage.WAITING
    since_ms: int = 0
    turn: int = 0
    incarnation: str = ""
    returned: str = ""
    returned_ms: int = 0
    homes: tuple[str, ...] = ()
    served: tuple[str, ...] = ()
    was_drained: bool = False
    back: RestartStage = RestartStage.DRAINING
    calm_since_ms: int = 0
    tries: int = 0
    left: int = 0
    tried_ms: int = 0
    pid: int = 0
    doubts: Mapping[str, int] = field(default_factory=dict)
    stopped: str = ""

    @property
    def broker(self) -> str:
        """The one in hand; the last when all are done."""
        return self.order[min(self.at, len(self.order) - 1)]

    @property
    def under(self) -> RestartStage:
        """The stage, of EASING the one that it has interrupted."""
        return self.back if self.stage is RestartStage.EASING else self.stage

    def is_other(self, incarnation: str) -> bool:
        """True if the process that answers is not the one that was to be restarted."""
        return bool(incarnation) and incarnation != self.incarnation

    @property
    def plan_prefix(self) -> str:
        """Prefix of the names of its plans."""
        return f"rolling-{self.run}-"

    @property
    def plan(self) -> str:
        """The name of the plan of this turn."""
        return f"{self.plan_prefix}{self.at}-{self.turn}"

    def command_id(self, what: str) -> str:
        """Of a command of this turn: the same after a cut, so that it is carried out once."""
        return f"{self.plan}-{what}"

    def to(self, stage: RestartStage, now_ms: int, **changes: Any) -> "Rollout":
        """The same, at another stage from now on."""
        return replace(self, stage=stage, since_ms=now_ms, **changes)

    def progress_message(self, now_ms: int) -> str:
        """In one line, for a status."""
        place = f"broker {self.at + 1} of {len(self.order)}, {self.broker}"
        since = f"for {duration(max(0, now_ms - self.since_ms))}"
        how = f"stopped: {self.stopped}" if self.stopped else f"{_WORDS[self.stage]} {since}"
        return (
            f"{place}: {how} (by {self.by}, begun {duration(max(0, now_ms - self.began_ms))} ago)"
        )

    def to_json(self) -> dict[str, Any]:
        """As its file has it."""
        return {**asdict(self), "stage": self.stage.value, "back": self.back.value}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> "Rollout":
        """Parse the output of `to_json`.

        Raises KeyError, TypeError or ValueError for anything else.
        """
        known = {one.name for one in fields(Rollout)}
        if not isinstance(found, Mapping):
            raise TypeError(f"it must be an object, got {type(found).__name__}")
        values: dict[str, Any] = {name: value for name, value in found.items() if name in known}
        for name in ("order", "brokers", "homes", "served"):
            values[name] = tuple(map(str, values[name]))
        values |= {"stage": RestartStage(found["stage"]), "back": RestartStage(found["back"])}
        return Rollout(**values)


_WORDS: Mapping[RestartStage, str] = {
    RestartStage.WAITING: "waiting until all is well",
    RestartStage.DRAINING: "being drained",
    RestartStage.EASING: "left alone because clients felt the moves",
    RestartStage.EMPTIED: "drained, until Pulsar shows nothing on it",
    RestartStage.RESTARTING: "being restarted",
    RestartStage.RETURNING: "expected back",
    RestartStage.REOPENING: "back, about to be opened",
    RestartStage.FILLING: "being filled again",
    RestartStage.EVENING: "filled, until brokers are even",
    RestartStage.DONE: "done",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainState:
    """A drain as the tables have it."""

    left: int
    is_done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The command that restarts. code: None while it runs; said: its last words."""

    code: int | None
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """Problem of a rolling restart.

    key: the same as long as the problem is the same. patience_ms: it may last so long.
    """

    key: str
    why: str
    next_step: str
    patience_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutObservation:
    """Observation of the cluster at one moment.

    listed: the brokers that Pulsar lists. owners: bundle → broker, of bundles at rest. freed:
    bundle → since when it has no owner, of those that had one. moving: bundles in transit;
    oldest_move_ms: for how long the oldest is. plans: name → station of our open plans.
    incarnation: of the current broker, "" = it does not answer. loaded: its bundles with topics
    before it is drained; held: once it is; None = not asked. command: None = none of ours. refused:
    why the last command was, "" = it was not.

    others_usage: usage that the others would have without it. imbalance: busiest over mean.
    publish_latency_ms: time to publish, load_ms: time to load a topic, on the recent mean at the
    slowest broker. None = not known.
    """

    now_ms: int
    listed: frozenset[str]
    owners: Mapping[str, str]
    freed: Mapping[str, int] = field(default_factory=dict)
    moving: frozenset[str] = frozenset()
    oldest_move_ms: int = 0
    drains: Mapping[str, DrainState] = field(default_factory=dict)
    plans: Mapping[str, str] = field(default_factory=dict)
    incarnation: str = ""
    held: tuple[str, ...] | None = None
    loaded: frozenset[str] | None = None
    command: CommandResult | None = None
    refused: str = ""
    complaints: tuple[Complaint, ...] = ()
    others_usage: float | None = None
    imbalance: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    publish_latency_ms: float | None = None
    load_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainIt:
    """Drain the broker in hand."""

    at_once: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReopenIt:
    """Cancel the drain of the broker in hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartIt:
    """Run the command for the broker in hand, or tell the person whose turn it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FillIt:
    """Propose moves to the broker in hand, bundle → broker, and approve them, as `Rollout.plan`."""

    moves: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproveIt:
    """Approve a plan of ours that was left waiting."""

    plan: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropIt:
    """Let the rest of a plan of ours be."""

    plan: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Say it."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """It has stopped by itself: what happened, why, and what to do next."""

    what: str
    why: str
    next_step: str


Deed: TypeAlias = DrainIt | ReopenIt | RestartIt | FillIt | ApproveIt | DropIt | Announce | GiveUp


def pace_of(bundles: int) -> int:
    """Return how many bundles may be in transit at once.

    bundles: number of those that have an owner. A moved topic keeps its clients waiting for about
    one second in four. With one in twenty in transit, 99 of 100 messages don't wait for half
    a second.
    """
    return min(max(1, bundles // _BUNDLES_FOR_ONE), _AT_ONCE_MOST)


def in_order(brokers: Iterable[str], rates: Mapping[str, float], asked: str) -> tuple[str, ...]:
    """The least loaded first, so that a bad command hurts least; the one that is asked last.

    rates: of messages; one that is not known counts as the least. asked: whom questions go to.
    """
    return tuple(sorted(brokers, key=lambda one: (one == asked, rates.get(one, 0.0), one)))


GO_ON = "then give the same command again: it goes on where it was"
_CONFIRM_MS = 5_000
_OURS = frozenset({"cluster.observe_only"})
"""Settings that the bridge itself changes when it stops or begins to act."""
_SHOWN = 3


def complaints(
    rollout: Rollout, anomaly: RolloutObservation, bounds: RestartBounds
) -> tuple[Complaint, ...]:
    """All that is wrong now, in a fixed order."""
    return (
        *_gone(rollout, anomaly),
        *_settings(rollout, anomaly),
        *_unowned(rollout, anomaly, bounds),
        *_drains(rollout, anomaly),
        *_no_room(rollout, anomaly, bounds),
        *(one for one in anomaly.complaints if not _is_of_the_restart(rollout, one)),
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


def _gone(rollout: Rollout, anomaly: RolloutObservation) -> Iterable[Complaint]:
    for broker in rollout.brokers:
        if broker in anomaly.listed or (broker == rollout.broker and rollout.stage in AWAY):
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


def _settings(rollout: Rollout, anomaly: RolloutObservation) -> Iterable[Complaint]:
    changed = _changed(rollout.settings, anomaly.settings)
    if anomaly.settings and changed:
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


def _unowned(
    rollout: Rollout, anomaly: RolloutObservation, bounds: RestartBounds
) -> Iterable[Complaint]:
    """Of what was moved for this; of all else with clients the guardian tells."""
    for bundle in sorted(anomaly.freed.keys() & set(rollout.served)):
        age_ms = anomaly.now_ms - anomaly.freed[bundle]
        if age_ms >= bounds.unowned_ms:
            yield Complaint(
                key=f"unowned {bundle}",
                why=f"nobody has had {bundle} for {duration(age_ms)}",
                next_step="look one of its topics up, read `ballast status` and the brokers' logs,"
                f" {GO_ON}",
            )
            return
    if anomaly.oldest_move_ms >= bounds.stuck_ms:
        yield Complaint(
            key="stuck",
            why=f"a bundle has been on its way for {duration(anomaly.oldest_move_ms)}",
            next_step=f"`ballast status` names it: see the log of its broker, {GO_ON}",
        )


def _drains(rollout: Rollout, anomaly: RolloutObservation) -> Iterable[Complaint]:
    for broker in sorted(anomaly.drains.keys() - {rollout.broker}):
        yield Complaint(
            key=f"drain {broker}",
            why=f"{broker} is being drained, too, or was and is still closed",
            next_step=f"`ballast broker cancel-drain {broker}` opens it, {GO_ON}",
            patience_ms=_CONFIRM_MS,
        )


def _no_room(
    rollout: Rollout, anomaly: RolloutObservation, bounds: RestartBounds
) -> Iterable[Complaint]:
    if len(rollout.brokers) == 1:
        yield Complaint(
            key="alone",
            why=f"{rollout.broker} is the only broker: nobody could take its bundles",
            next_step="start another broker first",
        )
    publish_latency_ms = anomaly.publish_latency_ms or 0.0
    if rollout.stage is RestartStage.WAITING and publish_latency_ms > bounds.publish_latency_ms:
        yield Complaint(
            key="felt",
            why=f"clients wait {publish_latency_ms:.0f} ms though nothing is moved yet",
            next_step=f"see what hurts them, or allow more with --felt-ms, {GO_ON}",
        )
    usage = anomaly.others_usage
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
