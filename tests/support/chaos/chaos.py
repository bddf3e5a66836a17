"""Chaos: a random cluster that random things happen to, as a scenario's text.

Decides what a seed stands for: brokers, namespaces, load, and the faults of the first minutes. All
trouble is over at QUIET_MS; then the load stands still and the cluster has until RUN_MS to settle.
That it is text makes a round something to read, to keep and to replay with `ballast simulate`.
Rounds by seed with random clusters are Dicer's (AlgorithmChaosSuite: 6 to 8 pods, 0 to 120 % of
their load, a hot key with half of it), the faults are the simulator's own.
"""

from collections.abc import Sequence
from typing import TypeVar

from lbcore.sim.load.load import RandomStream

T = TypeVar("T")

QUIET_MS = 6 * 60_000
RUN_MS = 13 * 60_000
_TROUBLE_BEGINS_S, _TROUBLE_ENDS_S = 20, 270
_LONGEST_FAULT_S = 80
_BROKERS_MIN, _BROKERS_MAX = 3, 8
_RUNNING_MIN = 2
_MIXED = 0.2
_HOT_TOPIC_MAX = 60  # percent of a broker
_BUNDLES_MIN, _BUNDLES_MAX = 8, 24
_CAPACITIES = ("0.5", "1", "1", "1", "1", "2")
_SHORT = "shedding.grace_period_ms=60000 signals.report_max_interval_ms=10000"
"""A round is short: what rests for half an hour of every day rests for a minute."""
_STEADY = ("even", "even", "zipf", "pareto")


def chaos_text(seed: int) -> str:
    """The scenario of this round; the same text for the same seed, everywhere."""
    return "\n".join(
        [f"title chaos {seed}", f"seed {seed}", *_Round(RandomStream(seed)).lines(), ""]
    )


class _Round:
    """One round while it is drawn. spare: brokers that may go for ever."""

    def __init__(self, dice: RandomStream) -> None:
        self._dice = dice
        self._brokers = dice.between(_BROKERS_MIN, _BROKERS_MAX)
        self._bundles: dict[str, int] = {}
        self._spare = self._brokers - _RUNNING_MIN

    def lines(self) -> list[str]:
        return [
            *self._cluster_lines(),
            *self._load_lines(),
            *self._fault_lines(),
            f"run {RUN_MS // 60_000}m",
        ]

    def _one_of(self, choices: Sequence[T]) -> T:
        return choices[self._dice.between(0, len(choices) - 1)]

    def _cluster_lines(self) -> list[str]:
        lines = [f"brokers {self._brokers}", f"set {_SHORT}", f"set {self._trigger()}"]
        if self._dice.happens(_MIXED):
            lines += [
                f"broker b{at} capacity={self._one_of(_CAPACITIES)}"
                for at in range(1, self._brokers + 1)
            ]
        namespaces = self._dice.between(1, 3)
        per_broker = self._dice.between(_BUNDLES_MIN, _BUNDLES_MAX)
        for number in range(1, namespaces + 1):
            name = f"chaos/n{number}"
            self._bundles[name] = max(4, self._brokers * per_broker // namespaces)
            topics = self._dice.between(1, 4)
            hashed = " hashed" if self._dice.happens(0.3) else ""
            lines.append(f"namespace {name} bundles={self._bundles[name]} topics={topics}{hashed}")
            lines += self._own_lines(name)
        return lines

    def _trigger(self) -> str:
        return f"pipeline.trigger_ms={self._one_of((1_000, 2_000, 2_000, 5_000))}"

    def _own_lines(self, name: str) -> list[str]:
        """PositionedMessage by the balancer, spread evenly, or all on the first broker."""
        there = self._one_of(("", "all", "all", "b1"))
        return [f"own {name} all {there}"] if there else []

    def _load_lines(self) -> list[str]:
        """Up to 120 % of the cluster, half of it perhaps moving in time; perhaps a hot topic."""
        total = self._dice.between(5, 120)
        names = sorted(self._bundles)
        lines = []
        for name in names:
            rate = max(1, total // len(names))
            if self._dice.happens(0.15):
                lines.append(f"load {name} topic {self._dice.between(5, _HOT_TOPIC_MAX)}pt")
            if rate and self._dice.happens(0.4):
                lines.append(f"load {name} {self._moving_form(max(1, rate // 2))}")
                rate -= rate // 2
            lines.append(f"load {name} {self._one_of(_STEADY)} {max(1, rate)}%")
        return lines

    def _moving_form(self, rate: int) -> str:
        quiet = f"to {QUIET_MS // 60_000}m"
        return self._one_of(
            (
                f"hotspot {rate}% width=20% jump=2m {quiet}",
                f"even {rate}% wave=5m {quiet}",
                f"zipf {rate}% grow=4m",
                f"even {rate}% from 2m for 45s every 90s {quiet}",
            )
        )

    def _fault_lines(self) -> list[str]:
        count = self._dice.between(1, 6)
        lines = [line for _ in range(count) for line in self._fault()]
        return lines if self._dice.happens(0.5) else ["noise traffic=10% every 20s", *lines]

    def _fault(self) -> list[str]:
        at = self._dice.between(_TROUBLE_BEGINS_S, _TROUBLE_ENDS_S)
        lasts = f"for {self._dice.between(1, _LONGEST_FAULT_S)}s"
        one = f"b{self._dice.between(1, self._brokers)}"
        some = self._one_of((one, one, "all"))
        draw = self._dice.between(0, 15)
        if draw <= 3:
            return self._going(at, one)
        return [f"at {at}s {self._lasting_fault(draw, one, some, lasts)}"]

    def _lasting_fault(self, draw: int, one: str, some: str, lasts: str) -> str:
        faults = (
            f"pause {one} {lasts}",
            f"cut-off {one} {lasts}",
            f"messages {some} lost=20% {lasts}",
            f"messages {some} repeated=50% delay=5s {lasts}",
            f"stale {some} by=45s {lasts}",
            f"gauge {one} keep=2m {lasts}",
            f"acks-lost {some} {lasts}",
            f"records-lost {one} {lasts}",
            f"callbacks-fail {some} part=30% {lasts}",
            f"conflict {lasts}",
            f"job-away {lasts}",
            self._one_of(("job-restart", "job-rebuild", f"ticks-lost {lasts}")),
        )
        return faults[draw - 4]

    def _going(self, at: int, one: str) -> list[str]:
        """A broker crashes or stops and comes back, or all restart, or some are new."""
        back = at + self._dice.between(5, _LONGEST_FAULT_S)
        kind = self._dice.between(0, 4)
        if kind == 0:
            return [f"at {at}s add brokers={self._dice.between(1, 2)}"]
        if kind == 1:
            crash = " crash" if self._dice.happens(0.5) else ""
            return [f"at {at}s restart all down=3s every 15s{crash}"]
        if kind == 2 and self._spare > 0:
            self._spare -= 1
            return [f"at {at}s {self._one_of(('crash', 'stop', 'drain'))} {one}"]
        return [f"at {at}s {self._one_of(('crash', 'stop'))} {one}", f"at {back}s start {one}"]
