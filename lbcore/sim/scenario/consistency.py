"""Consistency checks between the lines of a scenario.

They refuse what could never come true or be noticed. Decides that events and expectations concern
existing brokers, times and settings, and which words of a load belong to which spread. Used by
`parse` and `scenario_events`, which read the lines.
"""

from collections.abc import Iterable, Mapping
from itertools import count, islice

from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.config.values import ConfigError
from lbcore.sim.scenario.metrics import METRICS
from lbcore.sim.scenario.model import Scenario
from lbcore.sim.scenario.tokens import Line, format_ms

_OF_SPREADS: Mapping[str, tuple[str, ...]] = {
    "width": ("hotspot",),
    "jump": ("hotspot",),
    "alpha": ("pareto",),
}
_BESIDE = {"depth": "wave", "every": "for"}
"""Words of a load that say nothing alone → the word that they need."""


def require_form(line: Line, spread: str, given: Iterable[str]) -> None:
    """Check that each word of a load line has an effect. Raises ScenarioError.

    given: the words' names.
    """
    words = set(given)
    for word in sorted(words):
        wanted = _OF_SPREADS.get(word, (spread,))
        if spread not in wanted:
            raise line.error(f"{word!r} says nothing about {spread!r}", f"it with {wanted[0]}")
        beside = _BESIDE.get(word, word)
        if beside not in words:
            raise line.error(f"{word!r} says nothing without {beside!r}", f"{beside} T as well")


def require_setting(line: Line, word: str) -> None:
    """The word section.name=value sets a setting that there is. Raises ScenarioError."""
    if "=" not in word:
        raise line.error(f"{word!r} sets nothing", "section.name=value")
    if word == "ownership.fencing=lease":
        raise line.error("leases are not modelled", "ownership.fencing=token")
    try:
        parse_assignments(Config(), [word])
    except ConfigError as error:
        detail = "; ".join(one.detail for one in error.problems)
        raise line.error(f"{word!r} can't be set", detail) from None


def require_agreement(scenario: Scenario) -> None:
    """Brokers and times are those of the scenario. Raises ScenarioError."""
    known = _brokers_of(scenario)
    for happening in scenario.scenario_events:
        unknown = [name for name in happening.brokers if name not in known]
        if unknown:
            what = f"there is no {unknown[0]} to {happening.verb}"
            raise Line(happening.line, "").error(what, "a broker of this scenario")
        _require_time(scenario, happening.line, happening.at_ms)
    for expectation in scenario.expectations:
        name, broker = expectation.metric.partition(".")[0], expectation.argument
        if METRICS[name].argument == "broker" and broker and broker not in known:
            what = f"there is no {broker} to expect anything of"
            raise Line(expectation.line, "").error(what, "a broker of this scenario")
        _require_time(scenario, expectation.line, expectation.from_ms)
    for load in scenario.loads:
        _require_time(scenario, load.line, load.from_ms)


def _require_time(scenario: Scenario, line: int, at_ms: int) -> None:
    if at_ms >= scenario.run_ms:
        ends = format_ms(scenario.run_ms)
        what = f"the run ends at {ends}, before {format_ms(at_ms)}"
        raise Line(line, "").error(what, f"a time before {ends}", "let it run longer")


def _brokers_of(scenario: Scenario) -> set[str]:
    """Those that the cluster lines name, those that are added, and the word all."""
    known, free = {one.name for one in scenario.brokers}, (f"b{at}" for at in count(1))
    for one in scenario.scenario_events:
        new = one.options["brokers"] if one.verb == "add" else 0
        known |= set(islice((name for name in free if name not in known), new))
    return {*known, "all"}
