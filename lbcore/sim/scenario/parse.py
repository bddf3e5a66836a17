"""Parser of a scenario's text and events. Grammar: docs/simulator.md.

`tokens` reads single words, `metrics` expectations; `lbcore.sim.engine.scenario_run` executes the
events. Refused are events and expectations of unknown brokers, times and settings, and words of a
load that its spread has no use for. ScenarioError names the line, what was expected and what to do
next. A text with prose, directives and recorded output below a line of dashes is
CockroachDB's way (pkg/kv/kvserver/asim).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from typing import Any

from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.config.values import ConfigError
from lbcore.model.bundles import HashFunction
from lbcore.model.names import InvalidNameError, parse_bundle
from lbcore.sim.scenario import tokens
from lbcore.sim.scenario.metrics import METRICS, take_expectation
from lbcore.sim.scenario.model import (
    AS_RECORDED,
    BrokerSpec,
    Client,
    Expectation,
    LoadSpec,
    NamespaceSpec,
    Noise,
    OwnerSpec,
    Scenario,
    ScenarioEvent,
)
from lbcore.sim.scenario.tokens import Line, Rate, Readers, format_ms
from lbcore.wire.commands import KINDS, RefusedArguments, parse_arguments

RULE = "----"
COMPARED_RULE = f"{RULE} compared"
"""Below it, after the recorded output: several strategies in one table."""
_PROSE = re.compile(r"(?:^|\s)#")
SPREADS: Mapping[str, str] = {
    "even": "every topic alike",
    "zipf": "1 / (rank + 4 × brokers)",
    "pareto": "a Pareto distribution of this alpha: 1, 4/3 (the default), 2 or 4",
    "topic": "all on the first topic of the first bundle that is meant",
    "hotspot": "all in a window of the hash range, which jumps",
    "replay": "as a recording says",
}
"""Distributions of load over topics."""
ALPHAS = {"1": 1.0, "4/3": 4.0 / 3.0, "2": 2.0, "4": 4.0}
_ONCE = ("title", "seed", "full", "noise", "client", "callbacks", "commit", "preset", "run")
_TIMES = ("from", "to", "for", "every", "grow", "wave", "jump")
_LONGEST_RUN_MS = 366 * 86_400_000
_MOST_TOPICS = 5_000_000
_MOST_SAMPLES = 1_000_000


@dataclass(slots=True)
class _Draft:
    """A scenario while its lines are read.

    said: keyword → the first line that begins with it.
    """

    values: dict[str, Any] = field(default_factory=dict)
    said: dict[str, int] = field(default_factory=dict)
    brokers: dict[str, BrokerSpec] = field(default_factory=dict)
    namespaces: dict[str, NamespaceSpec] = field(default_factory=dict)
    owners: list[OwnerSpec] = field(default_factory=list)
    loads: list[LoadSpec] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    scenario_events: list[ScenarioEvent] = field(default_factory=list)
    expectations: list[Expectation] = field(default_factory=list)


def parse_scenario(content: str) -> Scenario:
    """The scenario that a text describes. Raises ScenarioError."""
    draft, last = _Draft(), 0
    above, recorded, compared = _divided(content)
    for last, text in enumerate(above.splitlines(), start=1):
        line = Line(last, _PROSE.split(text, maxsplit=1)[0])
        if not line.peek():
            continue
        keyword = line.take(tokens.one_of(*_KEYWORDS), "a keyword")
        before = draft.said.setdefault(keyword, line.number)
        if keyword in _ONCE and before != line.number:
            what = f"line {before} says {keyword!r} already"
            raise line.error(what, f"one line `{keyword} ...`", "leave one of them out")
        _KEYWORDS[keyword](draft, line)
        if line.peek():
            raise line.error(f"{line.peek()!r} is too much", "the end of the line")
    _require(draft, Line(last + 1, ""))
    scenario = Scenario(
        **draft.values,
        brokers=tuple(draft.brokers.values()),
        namespaces=tuple(sorted(draft.namespaces.values(), key=lambda space: space.name)),
        owners=tuple(draft.owners),
        loads=tuple(draft.loads),
        settings=tuple(draft.settings),
        scenario_events=tuple(sorted(draft.scenario_events, key=lambda one: one.at_ms)),
        expectations=tuple(draft.expectations),
        expected_output=recorded,
        compared=compared,
    )
    _require_agreement(scenario)
    return scenario


def with_recorded(content: str, output: str) -> str:
    """The scenario's text with this output below its rule; a comparison stays."""
    above, _, compared = _divided(content)
    return _joined(above, output, compared)


def with_compared(content: str, comparison: str) -> str:
    """Return the scenario's text with this comparison below the recorded output."""
    above, recorded, _ = _divided(content)
    return _joined(above, recorded, comparison)


def _joined(above: str, recorded: str, compared: str) -> str:
    below = f"{COMPARED_RULE}\n{compared}" if compared else ""
    return f"{above.rstrip()}\n\n{RULE}\n{recorded}{below}"


def _divided(content: str) -> tuple[str, str, str]:
    """Divide a text into the scenario, its recorded output and its comparison."""
    lines = content.splitlines(keepends=True)
    rules = {line.rstrip(): at for at, line in reversed(list(enumerate(lines)))}
    first = rules.get(RULE, len(lines))
    second = max(first, rules.get(COMPARED_RULE, len(lines)))
    parts = lines[:first], lines[first + 1 : second], lines[second + 1 :]
    above, recorded, compared = map("".join, parts)
    return above, recorded, compared


def _require(draft: _Draft, end: Line) -> None:
    if not draft.brokers:
        raise end.error("the scenario has no brokers", "`brokers N`", "say how many there are")
    if not draft.values.get("run_ms"):
        raise end.error("nothing says how long it runs", "`run 30m`", "say it in a line")
    for name in sorted({spec.namespace for spec in draft.owners}):
        owned = {
            number
            for spec in draft.owners
            if spec.namespace == name
            for number in range(spec.first, spec.last + 1)
        }
        free = sorted(set(range(draft.namespaces[name].bundles)) - owned)
        if free:
            what = f"bundle {free[0]} of {name} has no owner at the start, others have"
            raise end.error(what, "an `own` line for every bundle, or for none", "name the owner")


def _run(draft: _Draft, line: Line) -> None:
    run_ms = line.take(tokens.duration_ms, tokens.DURATION_FORM)
    if not 0 < run_ms <= _LONGEST_RUN_MS:
        raise line.error("a run can't be so long", "a time between 1ms and 366d")
    options = line.options({"sample": tokens.positive_ms})
    found = {f"{name}_ms": value for name, value in options.items()}
    draft.values |= {"run_ms": run_ms, **found}
    samples = run_ms // found.get("sample_ms", run_ms)
    if samples > _MOST_SAMPLES:
        raise line.error(f"{samples} samples are too many", f"{_MOST_SAMPLES} at most")


def _full(draft: _Draft, line: Line) -> None:
    """Read `full RATE [offered]`: 100 % of a broker of capacity 1.

    offered: its offered load is reported.
    """
    rate = line.take(tokens.rate, "a rate such as 40000msg/s")
    if rate.unit != "msg/s" or rate.value <= 0:
        raise line.error("a broker's full load is no part of itself", "a rate above 0msg/s")
    draft.values |= {"full_rate": rate.value, "reports_offered": line.take_word("offered")}


def _brokers(draft: _Draft, line: Line) -> None:
    """Read `brokers N [capacity=X] [domains=N]`."""
    many = line.take(tokens.count, "a number of brokers")
    if len(draft.brokers) + many > tokens.BROKERS_MAX:
        raise line.error(f"{many} brokers are too many", f"{tokens.BROKERS_MAX} at most")
    found = line.options({"capacity": tokens.capacity, "domains": tokens.count})
    domains = found.get("domains", 0)
    free = (at for at in count(1) if f"b{at}" not in draft.brokers)
    for at in islice(free, many):
        draft.brokers[f"b{at}"] = BrokerSpec(
            name=f"b{at}",
            capacity=found.get("capacity", 1.0),
            domain=f"domain-{at % domains}" if domains else "",
        )


def _broker(draft: _Draft, line: Line) -> None:
    """Read `broker NAMES [capacity=X] [domain=NAME] [foreign=PT] [absent]`."""
    names = line.take(tokens.broker_names, "brokers such as b1 or b1-b4")
    found = line.options(
        {"capacity": tokens.capacity, "domain": str, "foreign": tokens.points, "absent": str}
    )
    if found.pop("absent", None) is not None:
        found["is_absent"] = True
    for name in names if names != ("all",) else tuple(draft.brokers):
        draft.brokers[name] = replace(draft.brokers.get(name, BrokerSpec(name=name)), **found)


def _namespace(draft: _Draft, line: Line) -> None:
    """Read `namespace NAME bundles=N [topics=N] [hash=crc32|murmur3_32] [hashed]`."""
    name = line.take(str, "a namespace such as t/n")
    try:
        parse_bundle(f"{name}/0x00000000_0xffffffff")
    except InvalidNameError:
        raise line.error(f"{name!r} is no namespace", "tenant/namespace") from None
    hashes = tokens.one_of(*(one.value for one in HashFunction))
    readers = {"bundles": tokens.count, "topics": tokens.count, "hash": hashes}
    found = line.options({**readers, "hashed": str})
    if name in draft.namespaces:
        raise line.error(f"{name} is there already", "another name")
    bundles, topics = found.get("bundles", 4), found.get("topics", 5)
    if bundles * topics > _MOST_TOPICS:
        raise line.error(f"{bundles * topics} topics are too many", f"{_MOST_TOPICS} at most")
    draft.namespaces[name] = NamespaceSpec(
        name=name,
        bundles=bundles,
        topics=topics,
        hash=HashFunction(found.get("hash", HashFunction.CRC32.value)),
        is_hashed="hashed" in found,
    )


def _own(draft: _Draft, line: Line) -> None:
    """Read `own NAMESPACE (FIRST-LAST | all) BROKERS`."""
    space = _known_namespace(draft, line)
    first, last = 0, space.bundles - 1
    if not line.take_word("all"):
        first, last = line.take(tokens.span, "numbers of bundles such as 0-49, or all")
    if last >= space.bundles:
        raise line.error(f"{space.name} has no bundle {last}", f"bundles 0-{space.bundles - 1}")
    names = line.take(tokens.broker_names, "brokers such as b1 or b1-b4")
    there = [name for name, spec in draft.brokers.items() if not spec.is_absent]
    names = tuple(there) if names == ("all",) else names
    absent = [name for name in names if name not in there]
    if absent:
        raise line.error(f"{absent[0]} is not there at the start", f"one of {_some(there)}")
    draft.owners.append(OwnerSpec(namespace=space.name, first=first, last=last, brokers=names))


def _load(draft: _Draft, line: Line) -> None:
    """Read `load NAMESPACE SPREAD RATE [each] [bundles=A-B] [when and how]`."""
    space = _known_namespace(draft, line)
    spread = line.take(tokens.one_of(*SPREADS), "how it is spread: " + ", ".join(SPREADS))
    is_replay = spread == "replay"
    if is_replay and line.take_word(AS_RECORDED):
        rate = Rate(value=1.0, unit=AS_RECORDED)
    else:
        rate = line.take(tokens.rate, "a load such as 45%, 30pt or 12000msg/s")
    rate = replace(rate, is_each=line.take_word("each"))
    readers: dict[str, Callable[[str], object]] = {
        "bundles": tokens.span,
        "from": tokens.duration_ms,
        "to": tokens.duration_ms,
        "for": tokens.duration_ms,
        "every": tokens.duration_ms,
        "grow": tokens.duration_ms,
        "wave": tokens.duration_ms,
        "depth": tokens.share,
        "width": tokens.positive_share,
        "jump": tokens.positive_ms,
        "alpha": tokens.one_of(*ALPHAS),
        "seed": tokens.whole,
    }
    if is_replay:
        for name in ("bundles", "width", "jump", "alpha", "seed"):
            readers.pop(name)
        readers |= dict.fromkeys(("file", "of", "cluster"), str)
    found = line.options(readers)
    line.require_order(found)
    _require_form(line, spread, found)
    if is_replay and "file" not in found:
        raise line.error("nothing says what to replay", "file=TABLES or file=NAME.csv")
    first, last = found.pop("bundles", (0, space.bundles - 1))
    if last >= space.bundles:
        raise line.error(f"{space.name} has no bundle {last}", f"bundles 0-{space.bundles - 1}")
    times = {key: "length_ms" if key == "for" else f"{key}_ms" for key in _TIMES}
    found["alpha"] = ALPHAS[found.get("alpha", "4/3")]
    values = {times.get(key, key): value for key, value in found.items()}
    draft.loads.append(
        LoadSpec(
            namespace=space.name,
            spread=spread,
            rate=rate,
            first=first,
            last=last,
            line=line.number,
            **values,
        )
    )


def _known_namespace(draft: _Draft, line: Line) -> NamespaceSpec:
    name = line.take(str, "a namespace")
    if name not in draft.namespaces:
        known = _some(list(draft.namespaces)) or "none so far"
        advice = f"write `namespace {name} bundles=N` above this line"
        raise line.error(f"there is no namespace {name!r}", f"one of {known}", advice)
    return draft.namespaces[name]


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")  # noqa: PLR2004 enough to see


def _noise(draft: _Draft, line: Line) -> None:
    found = line.options(
        {"cpu": tokens.points, "traffic": tokens.share, "every": tokens.positive_ms}
    )
    values = {("step_ms" if key == "every" else key): value for key, value in found.items()}
    draft.values["noise"] = Noise(**values)


def _client(draft: _Draft, line: Line) -> None:
    times = ("base", "lookup", "connect", "retry")
    counts = ("accept", "publishers", "consumers")
    found = line.options(
        {**dict.fromkeys(times, tokens.duration_ms), **dict.fromkeys(counts, tokens.whole)}
    )
    values = {f"{name}_ms" if name in times else name: v for name, v in found.items()}
    draft.values["client"] = Client(**values)


def _callbacks(draft: _Draft, line: Line) -> None:
    """Read `callbacks SHORTEST LONGEST`."""
    shortest = line.take(tokens.duration_ms, tokens.DURATION_FORM)
    longest = line.take(tokens.duration_ms, tokens.DURATION_FORM)
    if longest < shortest:
        raise line.error("the longest time is below the shortest", "the shortest time first")
    draft.values["callback_ms"] = (shortest, longest)


def _set(draft: _Draft, line: Line) -> None:
    for word in line.rest():
        _require_setting(line, word)
        draft.settings.append(word)


_OF_SPREADS: Mapping[str, tuple[str, ...]] = {
    "width": ("hotspot",),
    "jump": ("hotspot",),
    "alpha": ("pareto",),
}
_BESIDE = {"depth": "wave", "every": "for"}
"""Words of a load that say nothing alone → the word that they need."""


def _require_form(line: Line, spread: str, given: Iterable[str]) -> None:
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


def _require_setting(line: Line, word: str) -> None:
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


def _require_agreement(scenario: Scenario) -> None:
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
            _require_setting(line, word)
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


_KEYWORDS: Mapping[str, Callable[[_Draft, Line], None]] = {
    "title": lambda draft, line: draft.values.update(title=" ".join(line.rest())),
    "seed": lambda draft, line: draft.values.update(seed=line.take(tokens.whole, "a number")),
    "full": _full,
    "brokers": _brokers,
    "broker": _broker,
    "namespace": _namespace,
    "own": _own,
    "load": _load,
    "noise": _noise,
    "client": _client,
    "callbacks": _callbacks,
    "commit": lambda draft, line: draft.values.update(
        commit_ms=line.take(tokens.duration_ms, tokens.DURATION_FORM)
    ),
    "preset": lambda draft, line: draft.values.update(
        is_pulsar=bool(line.take(tokens.one_of("pulsar"), "the word pulsar"))
    ),
    "set": _set,
    "at": lambda draft, line: draft.scenario_events.append(parse_event(line)),
    "run": _run,
    "expect": lambda draft, line: draft.expectations.append(take_expectation(line)),
}
