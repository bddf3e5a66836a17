"""The pictures of the ownership state machine in docs/ownership.md, drawn from its tables.

`python -m tests.support.values.ownership_diagram` draws them anew in the document; a test fails
until it was run. The text of the state diagram is Mermaid's, which code hosts show as a drawing.
"""

import re
from pathlib import Path

from lbcore.ownership.records import State
from lbcore.ownership.specification import mermaid_text
from lbcore.ownership.states import ACTIVE, BALLAST, IN_FLIGHT, METADATA_STORE, SYSTEM_TOPIC

DOCUMENT = Path(__file__).parents[3] / "docs" / "ownership.md"
_ORDER = tuple(State)


def redraw(text: str) -> str:
    """The document's text with the diagram and the table of rules drawn anew."""
    with_moves = re.sub(
        r"```mermaid\nstateDiagram.*?\n```",
        f"```mermaid\n{mermaid_text()}\n```",
        text,
        flags=re.DOTALL,
    )
    return re.sub(r"\| from \|.*?\n(?=\n)", f"{draw_rules()}\n", with_moves, flags=re.DOTALL)


def draw_rules() -> str:
    """Which state may follow which here and in Pulsar's two storages, as a Markdown table."""
    lines = [
        "| from | Ballast | system topic | metadata store | in flight | active |",
        "|---|---|---|---|---|---|",
    ]
    each = (BALLAST, SYSTEM_TOPIC, METADATA_STORE)
    for state in _ORDER:
        targets = [_list(rules.targets[state]) for rules in each]
        marks = ["yes" if state in group else "" for group in (IN_FLIGHT, ACTIVE)]
        lines.append("| " + " | ".join([state.value, *targets, *marks]) + " |")
    return "\n".join(lines)


def _list(states: frozenset[State]) -> str:
    return ", ".join(state.value for state in _ORDER if state in states)


if __name__ == "__main__":
    DOCUMENT.write_text(redraw(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
