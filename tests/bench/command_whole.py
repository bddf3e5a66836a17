"""Each kind of command once, on a cluster whose bundles are all of one namespace.

What one command brings about may be as much as the cluster: no batch is to take longer for it than
two seconds, that of the command and those in which brokers answer. Source: ours.
"""

from typing import Any

from tests.bench.command_setting import Line, Message, Setting, asked
from tests.unit.wire.test_commands import BUNDLE, FULL, NS

FOLLOWING = 6
_MIRRORED = {"observe_ownership", "observe_policies"}


def _message(kind: str) -> Any:
    def messages(setting: Setting) -> list[Message]:
        names = {NS: setting.namespace(0), BUNDLE: setting.names[0], "b:1": setting.broker(0)}
        arguments = {
            key: names.get(value, value) if isinstance(value, str) else value
            for key, value in FULL[kind].items()
        }
        if kind == "set_isolation_policy":
            arguments |= {"namespaces": [setting.namespace(0)], "primary": [setting.broker(0)]}
        if kind == "split_bundle":
            arguments |= {"algorithm": "range_equally_divide", "positions": []}
        return asked(kind, [arguments])

    return messages


WHOLE = tuple(
    Line(name=f"{kind}, one namespace", target_s=2.0, messages=_message(kind), following=FOLLOWING)
    for kind in sorted(FULL.keys() - _MIRRORED)
)
