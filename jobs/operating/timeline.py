"""Events of a cluster in order: moves, splits, crashes, plans and commands.

Changes of settings, too. Decides what counts as an event and how it is named; the tables hold the
data.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.adapters.delta.table_reader import TableReader
from lbcore.balancer.intake.brokers import SILENCE
from lbcore.explain.noticed import moved_words, silence_words

KINDS: Mapping[str, tuple[str, ...]] = {
    "move": ("transfer", "unload", "drain"),
    "split": ("split",),
    "crash": ("failover", SILENCE),
    "placement": ("assign",),
    "plan": ("plan",),
    "command": (),
    "setting": (),
}
"""What can be asked for → the kinds of its decisions; () = from a table of its own."""

EVENTS_MAX = 500
_OF_DECISIONS = (
    "at_ms",
    "decision_id",
    "kind",
    "bundle",
    "source",
    "destination",
    "reason",
    "strategy",
    "inputs",
)
_LOADS = ("source_before", "source_after", "destination_before", "destination_after")
_OF_EFFECTS = ("decision_id", "bundle", "destination", "outcome", *_LOADS)
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineQuestion:
    """Question for a timeline. Times in ms since 1970.

    kinds: of KINDS. about: only events that name it, case-insensitive; "" = all.
    """

    from_ms: int
    until_ms: int
    kinds: tuple[str, ...] = tuple(KINDS)
    about: str = ""


def read_timeline(reader: TableReader, question: TimelineQuestion) -> dict[str, Any]:
    """The newest EVENTS_MAX events, newest first, and how many more there are.

    Loads (1.0 = 100 %) of both brokers before and after are there once a move's effect is known.
    """
    found = [*_decided(reader, question), *_commands(reader, question), *_set(reader, question)]
    about = question.about.lower()
    if about:
        found = [event for event in found if about in json.dumps(event).lower()]
    found.sort(key=lambda event: (-event["at_ms"], event["kind"], event["id"]))
    return {"events": found[:EVENTS_MAX], "left_out": max(0, len(found) - EVENTS_MAX)}


def _within(question: TimelineQuestion) -> str:
    return f"at_ms >= {question.from_ms} AND at_ms <= {question.until_ms}"


def _decided(reader: TableReader, question: TimelineQuestion) -> Iterator[dict[str, Any]]:
    kind_of = {one: kind for kind in question.kinds for one in KINDS[kind]}
    if not kind_of:
        return
    named = ", ".join(f"'{kind}'" for kind in sorted(kind_of))
    condition = f"{_within(question)} AND kind IN ({named})"
    rows = reader.rows("decisions", _OF_DECISIONS, condition)
    effects = {
        (row["decision_id"], row["bundle"]): row
        for row in reader.rows("decision_effects", _OF_EFFECTS, f"at_ms >= {question.from_ms}")
    }
    for row in rows:
        effect = effects.get((row["decision_id"], row["bundle"]))
        yield {
            **_event(row, kind_of[row["kind"]], row["decision_id"], row["kind"]),
            **{name: row[name] for name in ("bundle", "source")},
            "reason": _reason(row),
            "destination": row["destination"] or (effect["destination"] if effect else ""),
            "by": row["strategy"],
            "outcome": "" if effect is None else effect["outcome"],
            "loads": None if effect is None else _loads(effect),
        }


def _reason(row: Mapping[str, Any]) -> str:
    """Return the reason, in words if a broker fell silent or died."""
    if row["kind"] == SILENCE:
        return silence_words(row, row["at_ms"])
    if row["kind"] == "failover":
        return f"{row['reason']}: {moved_words([json.loads(row['inputs'])])}"
    return str(row["reason"])


def _loads(effect: Mapping[str, Any]) -> dict[str, float | None]:
    """None: no report has said it yet."""
    return {name: None if math.isnan(effect[name]) else effect[name] for name in _LOADS}


def _commands(reader: TableReader, question: TimelineQuestion) -> Iterator[dict[str, Any]]:
    if "command" not in question.kinds:
        return
    rows = reader.rows("commands", condition=_within(question))
    rows.sort(key=lambda row: (row["status"] != "accepted", row["at_ms"]))
    for row in {row["command_id"]: row for row in rows}.values():  # one that has ended, by its end
        given = json.loads(row["arguments"] or "{}")
        yield {
            **_event(row, "command", row["command_id"], row["kind"]),
            "bundle": str(given.get("bundle", "")),
            "source": str(given.get("broker", "")),
            "destination": str(given.get("destination", "")),
            "reason": row["reason"],
            "by": row["principal"],
            "outcome": row["status"],
        }


def _set(reader: TableReader, question: TimelineQuestion) -> Iterator[dict[str, Any]]:
    """Each change of settings, by what differs from the one before."""
    if "setting" not in question.kinds:
        return
    before: Mapping[str, Any] = {}
    rows = reader.rows("config_versions", condition=f"at_ms <= {question.until_ms}")
    for row in sorted(rows, key=lambda one: one["number"]):
        after = json.loads(row["settings"])
        if row["at_ms"] >= question.from_ms:
            yield {
                **_event(row, "setting", row["config_version"], "settings"),
                "reason": _difference(before, after),
                "by": row["principal"],
            }
        before = after


def _event(row: Mapping[str, Any], kind: str, identity: str, what: str) -> dict[str, Any]:
    names = dict.fromkeys(("bundle", "source", "destination", "outcome"), "")
    return {
        "at_ms": row["at_ms"],
        "kind": kind,
        "id": identity,
        "what": what,
        **names,
        "loads": None,
    }


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    words = [f"{key}={after[key]}" if key in after else f"{key} as in the files" for key in keys]
    text = ", ".join(words) or "nothing that was not so"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]} ..."
