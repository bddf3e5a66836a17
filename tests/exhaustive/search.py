"""The search: every world that a scenario allows, breadth first, each looked at once.

`python -m tests.exhaustive.search NAME [--worlds N]` prints what it finds as it goes on. A world
that breaks a rule is told with the shortest way to it.
"""

import argparse
import sys
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.exhaustive.scenarios import SCENARIOS, Scenario
from tests.exhaustive.small_worlds import BrokenWorldError, World, Worlds

SETTLED_ONE_IN = 20_011
SETTLING_INSTANTS = 24


@dataclass(slots=True)
class Search:
    """What a search has seen. worlds: different ones; settled: those played to a fair end."""

    scenario: Scenario
    settled_one_in: int = SETTLED_ONE_IN
    worlds: int = 0
    events: int = 0
    settled: int = 0
    depth: int = 0
    is_complete: bool = False
    all: Worlds = field(init=False)
    _parents: "array[int]" = field(default_factory=lambda: array("I", (0,)))
    _turns: "array[int]" = field(default_factory=lambda: array("B", (0,)))

    def __post_init__(self) -> None:
        self.all = Worlds(self.scenario)

    def run(self, most: int) -> Iterator[int]:
        """Look at every world, `most` at the most; yields the count after each depth."""
        first = self.all.first()
        seen, layer, number = {_key(first)}, [(0, first)], 1
        while layer:
            fresh: list[tuple[int, World]] = []
            for parent, world in layer:
                for turn, (_, after) in enumerate(self.all.events(world)):
                    self.events += 1
                    key = _key(after)
                    if key in seen:
                        continue
                    seen.add(key)
                    self._parents.append(parent)
                    self._turns.append(turn)
                    fresh.append((number, after))
                    self._look(number, after)
                    number += 1
                if number >= most:
                    self.worlds = number
                    return
            layer, self.worlds, self.depth = fresh, number, self.depth + 1
            yield number
        self.is_complete = True

    def _look(self, number: int, world: World) -> None:
        try:
            self.all.check(world)
            if number % self.settled_one_in == 0:
                self._settle(world)
        except (BrokenWorldError, AssertionError) as error:
            way = "\n".join(self._way(number))
            raise BrokenWorldError(f"{error}; the way there:\n{way}") from error

    def _settle(self, world: World) -> None:
        self.settled += 1
        for _ in range(SETTLING_INSTANTS):
            world = self.all.peace(world)
        found = self.all.unsettled(world)
        if found:
            raise BrokenWorldError(f"not at rest after {SETTLING_INSTANTS} fair instants: {found}")

    def _way(self, number: int) -> list[str]:
        """The events that lead to a world."""
        turns = []
        while number:
            turns.append(self._turns[number])
            number = self._parents[number]
        world, told = self.all.first(), []
        for turn in reversed(turns):
            what, world = list(self.all.events(world))[turn]
            told.append(what)
        return told


def _key(world: World) -> bytes:
    instant, job, log, inbox, asked, (a, b), spent, turn = world
    return array("I", (instant << 8 | turn, job, log, inbox, asked, a, b, spent)).tobytes()


def main() -> None:
    """Search one scenario aloud."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(SCENARIOS))
    parser.add_argument("--worlds", type=int, default=10**9)
    args = parser.parse_args()
    search, started = Search(SCENARIOS[args.name]), time.process_time()
    for count in search.run(args.worlds):
        cluster = search.all.cluster
        sys.stdout.write(
            f"depth {search.depth}: {count} worlds, {search.events} events, jobs "
            f"{len(cluster.jobs)} ({cluster.batches} batches), processes {len(cluster.processes)} "
            f"({cluster.agent_steps} steps), {search.settled} settled, "
            f"{time.process_time() - started:.0f} s of CPU\n"
        )
        sys.stdout.flush()
    sys.stdout.write(f"{search.worlds} worlds, complete: {search.is_complete}\n")


if __name__ == "__main__":
    main()
