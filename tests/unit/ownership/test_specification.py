"""The TLA+ text of the bundle channel: what it allows, read from the text itself."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from types import CodeType
from typing import Any

import pytest

from lbcore.ownership.records import State
from lbcore.ownership.specification import EFFECTS, tla_text
from lbcore.ownership.states import METADATA_STORE, TRANSITIONS
from tests.exhaustive.scenarios import SCENARIOS
from tests.exhaustive.search import Search

Facts = Mapping[str, Any]
_VARIABLES = ("state", "version", "source", "destination", "forced", "open")
_PYTHON = (
    (r"\\notin", " not in "),
    (r"\\in\b", " in "),
    (r"\\subseteq", " <= "),
    (r"\\union", " | "),
    (r"/\\", " and "),
    (r"\\/", " or "),
    (r" \\ ", " - "),
    (r"(?<![<>=])=(?!=)", "=="),
    (r"#", "!="),
    (r"\{\}", "frozenset()"),
    (r"\bTRUE\b", "True"),
    (r"\bFALSE\b", "False"),
    (r"(\w+)'", r"next_\1"),
)
_CONSTANTS = {"Nobody": "", "MaxVersion": 6, "Brokers": frozenset("ab"), "Cardinality": len}


@cache
def _compiled(text: str) -> CodeType:
    for pattern, word in _PYTHON:
        text = re.sub(pattern, word, text)
    return compile(f"({text})", "<TLA+>", "eval")


class Module:
    """As much of TLA+ as the text uses: conjunctions, disjunctions and one quantifier."""

    def __init__(self, text: str) -> None:
        block = r"(?ms)^(\w+)(?:\(b\))? ==[ \n](.*?)(?=\n\n|\n\w+ ==|\Z)"
        blocks = re.findall(block, text)
        self.definitions = dict(blocks)
        self.actions = [line.strip()[3:] for line in self.definitions["Next"].splitlines()]

    def first(self) -> Facts:
        """The state that Init describes."""
        lines = self.definitions["Init"].splitlines()
        return {
            line.split()[1]: self.value(line.split("=", 1)[1], {}) for line in lines if line.strip()
        }

    def value(self, text: str, facts: Facts) -> Any:
        """The value of an expression."""
        if found := re.fullmatch(r"\s*IF (.*?) THEN (.*?)\s+ELSE (.*)", text, re.DOTALL):
            condition, then, other = found.groups()
            return self.value(then if self.value(condition, facts) else other, facts)
        names = {**_CONSTANTS, **facts}
        if re.search(r"\bHolder\b", text):
            names["Holder"] = self.value(self.definitions["Holder"], facts)
        return eval(_compiled(text), {}, names)  # noqa: S307 (our own text)

    def steps(self, facts: Facts) -> Iterator[tuple[str, Facts]]:
        """Everything that Next allows."""
        for action in self.actions:
            found = re.fullmatch(r"\\E b \\in (.*): (\w+)\(b\)", action)
            brokers = (
                sorted(self.value(found[1].replace("{Nobody}", '{""}'), {})) if found else [""]
            )
            for broker in brokers:
                after = self._step(self.definitions[found[2] if found else action], facts, broker)
                if after is not None:
                    yield action, after

    def _step(self, definition: str, facts: Facts, broker: str) -> Facts | None:
        after, known = dict(facts), {**facts, "b": broker}
        for line in definition.splitlines():
            part = line.strip().removeprefix("/\\ ")
            if part.startswith("UNCHANGED"):
                continue
            name, _, expression = part.partition("' = ")
            if name in _VARIABLES:
                after[name] = self.value(expression, known)
            elif not self.value(part, known):
                return None
        return after

    def accepts(self, before: Facts, after: Facts) -> bool:
        """True if Accepted holds of a step."""
        primed = {f"next_{name}": value for name, value in after.items()}
        lines = self.definitions["Accepted"].splitlines()
        clauses = [line.strip().removeprefix("\\/ ") for line in lines]
        return any(self.value(clause, {**before, **primed}) for clause in clauses)


def _reachable(module: Module) -> Iterator[tuple[str, Facts, Facts]]:
    """Each step from each state that can be reached, each state looked at once."""
    first = module.first()
    seen, waiting = {tuple(first.values())}, [first]
    while waiting:
        facts = waiting.pop()
        for action, after in module.steps(facts):
            yield action, facts, after
            if tuple(after.values()) not in seen:
                seen.add(tuple(after.values()))
                waiting.append(after)


def test_every_move_has_its_effects_on_brokers() -> None:
    """A new move in the table needs a line in EFFECTS."""
    assert set(EFFECTS) == set(TRANSITIONS)


def test_text_is_checked_to_the_end_and_breaks_no_property() -> None:
    """Every reachable state keeps the invariants, every step is one that the resolver accepts."""
    module, taken = Module(tla_text()), set()
    invariants = ("OneServes", "ServesByRecord", "OwnedHasOwner", "ReleasedHasSource")
    for action, before, after in _reachable(module):
        taken.add(action)
        for name in invariants:
            assert module.value(module.definitions[name], after), (name, action, before, after)
        assert after["version"] - before["version"] in (0, 1)
        assert module.accepts(before, after), (action, before, after)
    assert taken == set(module.actions)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("source \\notin open /\\ destination # Nobody", "destination # Nobody"),
        ("Holder \\notin open", "version = version"),
        ("UNCHANGED open", 'open\' = {"a", "b"}'),
    ],
)
def test_a_weakened_text_breaks_a_property(wrong: str, right: str) -> None:
    """The search finds two brokers that serve one bundle."""
    module = Module(tla_text().replace(wrong, right))
    assert any(len(after["open"]) > 1 for _, _, after in _reachable(module))


def test_rules_of_the_metadata_store_accept_fewer_records() -> None:
    """The text follows the rules that are asked for."""
    few, many = (
        Module(text).definitions["Accepted"] for text in (tla_text(METADATA_STORE), tla_text())
    )
    assert 'state = "Init" /\\ state\' = "Owned"' in many
    assert 'state = "Init" /\\ state\' = "Owned"' not in few


@pytest.mark.parametrize("name", ["moves-token", "split-token", "crash-token"])
def test_records_of_the_exhaustive_search_follow_the_text(name: str) -> None:
    """Each record that the real balancer writes after another is a step of the text."""
    search = Search(SCENARIOS[name])
    for _ in search.run(4_000):
        pass
    module, found = Module(tla_text()), set()
    records = search.all.cluster.records
    for log in (search.all.cluster.lists[n] for n in range(len(search.all.cluster.lists))):
        found |= _pairs([records[n] for n in log if n < len(records)])
    assert found
    for before, after in found:
        assert _is_step(module, dict(before), dict(after)), (before, after)


def _pairs(records: list[Any]) -> set[tuple[Any, Any]]:
    """Two records of one bundle, one after the other."""
    by_bundle: dict[str, list[Any]] = {}
    for record in records:
        by_bundle.setdefault(record.bundle, []).append(record)
    return {
        (_facts(before), _facts(after))
        for found in by_bundle.values()
        for before, after in pairwise(found)
        if after.version_id == before.version_id + 1
    }


def _facts(record: Any) -> tuple[tuple[str, Any], ...]:
    short = {"a:1": "a", "b:1": "b", "": ""}
    return (
        ("state", record.state.value),
        ("source", short[record.source]),
        ("destination", short[record.destination]),
        ("forced", record.is_forced),
    )


def _is_step(module: Module, before: Facts, after: Facts) -> bool:
    """True if some set of serving brokers lets the one record follow the other."""
    return any(
        all(made[name] == value for name, value in after.items())
        for serving in ((), ("a",), ("b",))
        for _, made in module.steps({**before, "version": 1, "open": frozenset(serving)})
    )


def test_states_have_one_name_each_in_the_text() -> None:
    """No state of the channel is missing."""
    assert all(f'"{state.value}"' in tla_text() for state in State)
