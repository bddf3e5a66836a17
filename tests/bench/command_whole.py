"""Each kind of command once, on a cluster whose bundles are all of one namespace.

What one command brings about may be as much as the cluster: no batch is to take longer for it than
two seconds, that of the command and those in which brokers answer.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tests.bench.command_setting import Line, Message, Setting, asked
from tests.unit.wire.test_commands import FULL

FOLLOWING = 6
_MIRRORED = {"observe_ownership", "observe_policies"}


def _elsewhere(setting: Setting) -> str:
    """A broker that does not own the first bundle."""
    record = setting.state.ledger.record(setting.names[0])
    assert record is not None
    return next(name for name in sorted(setting.state.brokers) if name != record.destination)


_OWN: Mapping[str, Callable[[Setting], Any]] = {
    "bundle": lambda s: s.names[0],
    "namespace": lambda s: s.namespace(0),
    "namespaces": lambda s: [s.namespace(0)],
    "topic": lambda s: f"persistent://{s.namespace(0)}/t",
    "broker": lambda s: s.broker(0),
    "destination": _elsewhere,
    "primary": lambda s: [s.broker(0)],
    "moves": lambda s: {s.names[0]: _elsewhere(s)},
    "algorithm": lambda _: "range_equally_divide",
    "positions": lambda _: [],
}
"""Arguments that name what the cluster has."""
AT_REST = frozenset({
    "approve_plan", "assign_bundle", "cancel_drain", "delete_anti_affinity_group",
    "delete_isolation_policy", "delete_record", "forget_broker", "include_namespace",
    "reject_plan", "release_brake", "resume", "unpin_bundle", "update_record",
})  # fmt: skip
"""Refused, as a cluster at rest has nothing to take back; all other kinds are carried out."""


def _message(kind: str) -> Any:
    def messages(setting: Setting) -> list[Message]:
        arguments = dict(FULL[kind])
        if kind != "create_namespace":
            arguments |= {name: _OWN[name](setting) for name in arguments.keys() & _OWN}
        if kind.endswith("_record"):
            arguments["name"] = _OWN["topic"](setting)
        return asked(kind, [arguments])

    return messages


WHOLE = tuple(
    Line(name=f"{kind}, one namespace", target_s=2.0, messages=_message(kind), following=FOLLOWING)
    for kind in sorted(FULL.keys() - _MIRRORED)
)
