"""An operator who keeps ordering over HTTP while processes die, and remembers what was answered.

One order after the other, each sent again under its id until it has an end, as docs/http.md tells
clients to. Each round makes things of its own name; two rounds later they are unmade.
"""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.soak.processes import AGENTS

TIMEOUT_MS = 60_000
_ENDED = (200, 400, 409, 504)
_LATER = 2
_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is asked. sets: the table, and the values of its key, that it makes or unmakes."""

    kind: str
    arguments: Mapping[str, Any]
    sets: tuple[str, tuple[str, ...]] | None = None
    is_made: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An order and the service's last word about it. status: of HTTP, 0 = none ever came."""

    command_id: str
    order: Order
    status: int
    body: Mapping[str, Any]

    @property
    def outcome(self) -> str:
        """The command's outcome, "" = none; in an error `status` is HTTP's number."""
        said = self.body.get("outcome", self.body.get("status", ""))
        return said if isinstance(said, str) else ""


@dataclass
class Operator:
    """Orders from `start` to `stop`."""

    port: Callable[[], int]
    answered: list[Answered] = field(default_factory=list)
    tries: int = 0

    def __post_init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_ordering, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Begin no order more."""
        self._stopping.set()

    def stop(self) -> None:
        """End with the order that is under way."""
        self._stopping.set()
        self._thread.join(4 * TIMEOUT_MS / 1000)
        assert not self._thread.is_alive(), "an order never ended"

    def _keep_ordering(self) -> None:
        for number, order in enumerate(orders()):
            if self._stopping.wait(_PAUSE_S):
                return
            self.answered.append(self._carry_out(f"soak-{number}", order))

    def _carry_out(self, command_id: str, order: Order) -> Answered:
        until_s = time.monotonic() + 3 * TIMEOUT_MS / 1000
        status, body = 0, {}
        while status not in _ENDED and time.monotonic() < until_s:
            self.tries += 1
            try:
                status, body = self._send(command_id, order)
            except (OSError, http.client.HTTPException, ValueError):
                status, body = 0, {}
            if status not in _ENDED:
                time.sleep(_PAUSE_S)
        return Answered(command_id=command_id, order=order, status=status, body=body)

    def _send(self, command_id: str, order: Order) -> tuple[int, Any]:
        path = f"/v1/commands/{order.kind}?command_id={command_id}&timeout_ms={TIMEOUT_MS}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port(), timeout=90)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(order.arguments), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"{}")
        finally:
            connection.close()


def orders() -> Iterator[Order]:
    """All orders, without end."""
    number = 0
    while True:
        yield from made_in(number)
        if number >= _LATER:
            yield from unmade_of(number - _LATER)
        number += 1


def made_in(number: int) -> Iterator[Order]:
    """What a round makes: one of everything that a table keeps."""
    tenant, space = f"s{number}", f"s{number}/n"
    pinned, cut = f"{space}/0x00000000_0x40000000", f"{space}/0x40000000_0x80000000"
    topic, agent = f"persistent://{space}/t", AGENTS[number % len(AGENTS)]
    yield _record("tenant", tenant)
    yield Order(
        kind="create_namespace",
        arguments={"namespace": space, "bundles": 4},
        sets=("namespaces", (space,)),
    )
    yield _record("topic", topic, 3)
    yield Order(
        kind="pin_bundle", arguments={"bundle": pinned, "broker": agent}, sets=("pins", (pinned,))
    )
    yield Order(kind="split_bundle", arguments={"bundle": cut, "force": True})
    policy = {"policy": f"p{number}", "namespaces": [f"{tenant}/apart"], "primary": ["nobody-.*"]}
    yield _rule("set_isolation_policy", policy, "isolation", f"p{number}")
    yield _rule("exclude_namespace", {"namespace": space}, "excluded", space)
    yield _rule("pause", {"namespace": space, "reason": "soak"}, "paused", space)
    group = {"namespace": space, "group": "g"}
    yield _rule("set_anti_affinity_group", group, "anti_affinity", space)
    yield Order(kind="set_config", arguments={"values": {"shedding.cool_down_ms": 30_000 + number}})
    yield Order(kind="unload_bundle", arguments={"bundle": pinned})


def unmade_of(number: int) -> Iterator[Order]:
    """The same, taken back."""
    tenant, space = f"s{number}", f"s{number}/n"
    pinned, topic = f"{space}/0x00000000_0x40000000", f"persistent://{space}/t"
    yield _undo("unpin_bundle", {"bundle": pinned}, "pins", (pinned,))
    policy = f"p{number}"
    yield _undo("delete_isolation_policy", {"policy": policy}, "policies", ("isolation", policy))
    yield _undo("include_namespace", {"namespace": space}, "policies", ("excluded", space))
    yield _undo("resume", {"namespace": space}, "policies", ("paused", space))
    rule = ("anti_affinity", space)
    yield _undo("delete_anti_affinity_group", {"namespace": space}, "policies", rule)
    yield _undo(
        "delete_record", {"record_type": "topic", "name": topic}, "records", ("topic", topic)
    )
    if number % 2:
        yield _undo("delete_namespace", {"namespace": space}, "namespaces", (space,))
        yield _undo(
            "delete_record",
            {"record_type": "tenant", "name": tenant},
            "records",
            ("tenant", tenant),
        )


def _record(record_type: str, name: str, value: int | None = None) -> Order:
    arguments = {"record_type": record_type, "name": name, "value": value}
    return Order(kind="create_record", arguments=arguments, sets=("records", (record_type, name)))


def _rule(kind: str, arguments: Mapping[str, Any], rule: str, name: str) -> Order:
    return Order(kind=kind, arguments=arguments, sets=("policies", (rule, name)))


def _undo(kind: str, arguments: Mapping[str, Any], table: str, key: tuple[str, ...]) -> Order:
    return Order(kind=kind, arguments=arguments, sets=(table, key), is_made=False)
