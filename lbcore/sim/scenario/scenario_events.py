"""Events of a scenario (`at T VERB ...`), and consistency checks of its lines.

The checks refuse events and expectations of unknown brokers, times and settings, and words of a
load that its spread has no use for. `lbcore.sim.engine.events` executes the events.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from typing import Any

from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.config.values import ConfigError
from lbcore.sim.scenario import tokens
from lbcore.sim.scenario.metrics import METRICS
from lbcore.sim.scenario.model import Scenario, ScenarioEvent
from lbcore.sim.scenario.tokens import Line, Readers, format_ms
from lbcore.wire.commands import KINDS, RefusedArguments, parse_arguments

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
    """Raise ScenarioError unless the word is section.name=value of a known setting."""
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
    """Raise ScenarioError for brokers or times that the scenario does not have."""
    known = _brokers_of(scenario)
    for event in scenario.scenario_events:
        unknown = [name for name in event.brokers if name not in known]
        if unknown:
            what = f"there is no {unknown[0]} to {event.verb}"
            raise Line(event.line, "").error(what, "a broker of this scenario")
        _require_time(scenario, event.line, event.at_ms)
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


FOR: Readers = {"for": tokens.duration_ms}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Syntax of the words after a verb.

    readers: of the options, by name. defaults: values of the options that are left out.
    """

    doc: str
    has_brokers: bool = False
    readers: Readers = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    needed: tuple[str, ...] = ()


EVENT_FORMS: Mapping[str, Form] = {
    "crash": Form(doc="the brokers are gone without a word", has_brokers=True),
    "start": Form(doc="the brokers start, or start anew", has_brokers=True),
    "stop": Form(doc="the brokers ask to be emptied, and end (scale in)", has_brokers=True),
    "add": Form(
        doc="that many new brokers start (scale out)",
        readers={
            "brokers": tokens.broker_count,
            "capacity": tokens.capacity,
            "domain": str,
        },
        defaults={"capacity": 1.0, "domain": ""},
        needed=("brokers",),
    ),
    "restart": Form(
        doc="one broker after the other stops, and starts `down` later; `crash`: without a word;"
        " every: time between two, otherwise one waits for the other",
        has_brokers=True,
        readers={"down": tokens.duration_ms, "every": tokens.duration_ms, "crash": str},
        defaults={"down": 10_000, "every": 0, "crash": ""},
    ),
    "pause": Form(doc="the brokers' processes stand still", has_brokers=True, readers=FOR,
                  needed=("for",)),
    "cut-off": Form(doc="the brokers can't reach Kafka; what they say comes late",
                    has_brokers=True, readers=FOR, needed=("for",)),
    "messages": Form(
        doc="the brokers' messages are lost, repeated, late",
        has_brokers=True,
        readers={
            "lost": tokens.share,
            "repeated": tokens.share,
            "delay": tokens.duration_ms,
            **FOR,
        },
        defaults={"lost": 0.0, "repeated": 0.0, "delay": 0},
        needed=("for",),
    ),
    "stale": Form(doc="the brokers' load reports say what was true so long ago",
                  has_brokers=True, readers={"by": tokens.duration_ms, **FOR},
                  needed=("by", "for")),
    "gauge": Form(doc="the brokers' cpu falls to the true value only in this time",
                  has_brokers=True, readers={"keep": tokens.duration_ms, **FOR},
                  needed=("keep", "for")),
    "acks-lost": Form(doc="no ack of the brokers arrives", has_brokers=True, readers=FOR,
                      needed=("for",)),
    "records-lost": Form(doc="the brokers don't get ownership records", has_brokers=True,
                         readers=FOR, needed=("for",)),
    "callbacks-fail": Form(doc="this part of the brokers' callbacks fails", has_brokers=True,
                           readers={"part": tokens.share, **FOR}, defaults={"part": 1.0},
                           needed=("for",)),
    "conflict": Form(doc="the job's commits are refused; it repeats its batch", readers=FOR,
                     needed=("for",)),
    "ticks-lost": Form(doc="the driver's ticks are away", readers=FOR, needed=("for",)),
    "job-away": Form(doc="the job is down, and comes back from its checkpoint", readers=FOR,
                     needed=("for",)),
    "job-restart": Form(doc="the job comes back from its checkpoint at once"),
    "job-rebuild": Form(doc="the job comes back without a checkpoint, from the tables"),
    "drain": Form(doc="the command drain_broker", has_brokers=True),
    "cancel-drain": Form(doc="the command cancel_drain", has_brokers=True),
}  # fmt: skip
"""Every verb but `set` and `command`, which take what the wire's commands take."""

_VERBS = (*EVENT_FORMS, "set", "command")


def parse_event(line: Line) -> ScenarioEvent:
    """Parse the rest of a line, T VERB ...; raises ScenarioError."""
    at_ms = line.take(tokens.duration_ms, tokens.DURATION_FORM)
    verb = line.take(tokens.one_of(*_VERBS), "what happens: " + ", ".join(_VERBS))
    if verb in ("set", "command"):
        return ScenarioEvent(at_ms=at_ms, verb=verb, options=_command(line, verb), line=line.number)
    form = EVENT_FORMS[verb]
    brokers: tuple[str, ...] = ()
    if form.has_brokers:
        brokers = line.take(tokens.broker_names, "brokers such as b1, b1-b4, or all")
    found = {**form.defaults, **line.options(form.readers)}
    absent = [name for name in form.needed if name not in found]
    if absent:
        name = absent[0]
        wanted = "for T" if name == "for" else f"{name}=..."
        raise line.error(f"{verb} needs to know {name!r}", wanted)
    return ScenarioEvent(at_ms=at_ms, verb=verb, brokers=brokers, options=found, line=line.number)


def _command(line: Line, verb: str) -> Mapping[str, Any]:
    """Kind and arguments of a command; `set a.b=1` is set_config."""
    kind = "set_config" if verb == "set" else line.take(tokens.one_of(*KINDS), "a command's kind")
    given: dict[str, Any] = {}
    for word in line.rest():
        if verb == "set":
            require_setting(line, word)
        name, equals, value = word.partition("=")
        if not equals:
            raise line.error(f"{word!r} gives nothing a value", "name=value")
        given[name] = _typed(value)
    arguments = {"values": given} if verb == "set" else given
    refused = parse_arguments(kind, arguments)
    if isinstance(refused, RefusedArguments):
        raise line.error(f"{kind} can't be given like this", refused.detail)
    return {"kind": kind, "arguments": arguments}


def _typed(value: str) -> Any:
    """Return a word's value: true, false, a number, several with commas, or text."""
    if value in ("true", "false"):
        return value == "true"
    if "," in value:
        return [_typed(part) for part in value.split(",") if part]
    for read in (partial(int, base=0), float):
        with suppress(ValueError):
            return read(value)
    return value
