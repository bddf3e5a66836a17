"""The sequence diagrams of docs/ownership.md: each step names what carries it, and that exists."""

import re
from pathlib import Path

import pytest

from lbcore.model.tables import TABLES
from lbcore.ownership.holding import Callback
from lbcore.wire.messages import Topic

PAGE = Path(__file__).parents[3] / "docs" / "ownership.md"
KNOWN = {
    "topic": {topic.value for topic in Topic},
    "table": {table.name for table in TABLES},
    "callback": {kind.value for kind in Callback},
    "request": {"lookup"},
}


def diagrams() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"```mermaid\nsequenceDiagram\n(.*?)\n```", text, re.DOTALL)


def test_page_walks_through_assignment_split_merge_and_transfer() -> None:
    titles = re.findall(r"^### (.*)\n\n```mermaid\nsequence", PAGE.read_text(), re.MULTILINE)
    assert titles == ["Lookup and assign", "Split", "Merge", "Unload and transfer"]


@pytest.mark.parametrize("drawn", diagrams(), ids=["assign", "split", "merge", "transfer"])
def test_step_of_a_walk_names_a_topic_table_request_or_callback(drawn: str) -> None:
    steps = [line.strip() for line in drawn.splitlines() if ">>" in line]
    assert len(steps) > 8
    for step in steps:
        found = re.fullmatch(r"\w+--?>>\w+: (topic|table|callback|request)s? ([^:]+): .+", step)
        assert found, step
        kind, names = found.groups()
        assert set(names.split(", ")) <= KNOWN[kind], step


@pytest.mark.parametrize("drawn", diagrams(), ids=["assign", "split", "merge", "transfer"])
def test_walk_is_drawn_between_its_participants(drawn: str) -> None:
    participants = set(re.findall(r"participant (\w) as", drawn))
    ends = re.findall(r"^\s+(\w)--?>>(\w):", drawn, re.MULTILINE)
    assert {name for pair in ends for name in pair} == participants
    assert ";" not in drawn, "Mermaid ends a statement there"
    assert drawn.count("    alt ") == drawn.count("\n    end")
