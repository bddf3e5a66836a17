"""Names and values that nobody expects, drawn by a seeded generator."""

import json
import random
from typing import Any

NAMESPACES = (
    "t/n",
    "t/n/x",
    "t/n/0x00000000_0xffffffff",
    "t/n-1",
    "t/n=1",
    "t/n.",
    "t/.",
    "./.",
    "../..",
    "a/b",
    "A/b",
    "t/0x00000000_0x80000000",
    "t/" + "n" * 253,
    "t/persistent:",
    ":/:",
    "-/-",
    "_/_/_",
)
"""Namespaces that Pulsar allows, each a trap for whoever compares text."""

NESTED = ("t/n", "t/n/x", "t/n/0x00000000_0xffffffff")
"""Of these the worst together: two are of the old form, tenant/cluster/namespace."""

TENANTS = ("t", "a", "A", ".", "..", "-", "_", ":", "t=", "n" * 64)

STRANGE = (
    "",
    " ",
    "/",
    "//",
    "t/",
    "/n",
    "t//n",
    "t/n/x/y",
    "t/%6e",
    "t/ä",
    "t/\u202en",
    "t/n\x00",
    "t/n\n",
    "t/\ud800",
    "'; DROP TABLE brokers; --",
    "${jndi:ldap://x}",
    "*",
    ".*",
    "(((((",
    "(a+)+$",
    "broker-0:8080",
    "nobody:1",
    "null",
    "x" * 5_000,
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    0.1,
    -0.0,
    2**31,
    2**63,
    -(2**63),
    2**64,
    10**30,
    [],
    {},
    [[]],
    [None],
    {"": {}},
    [1] * 50,
    *STRANGE,
)
BYTES = (
    None,
    b"",
    b"{",
    b"[]",
    b"null",
    b"1",
    b'"x"',
    b"\x00" * 20,
    b"\xff\xfe\xfd",
    b'{"schema":1}',
    b'{"schema":1e999}',
    b'{"a":' * 200 + b"1" + b"}" * 200,
    b'{"schema":1,"schema":2}',
    '{"cluster":"l\u00f6cal"}'.encode(),
)


def mutated(chooser: random.Random, value: bytes) -> bytes:
    """A message with something wrong in it; now and then one that is cut or no JSON at all."""
    how = chooser.random()
    if how < 0.1:
        return value[: chooser.randrange(len(value) + 1)]
    if how < 0.2:
        place = chooser.randrange(len(value) + 1)
        return value[:place] + bytes([chooser.randrange(256)]) + value[place + 1 :]
    try:
        plain = json.loads(value)
    except (ValueError, RecursionError):
        return value[::-1]
    for _ in range(chooser.randint(1, 3)):
        plain = _changed(chooser, plain)
    return json.dumps(plain).encode("utf-8", "surrogatepass")


def _changed(chooser: random.Random, plain: Any) -> Any:
    """The value with one part of it, at any depth, replaced, left out, doubled or added."""
    if isinstance(plain, dict) and plain and chooser.random() < 0.9:
        return _changed_object(chooser, plain)
    if isinstance(plain, list) and plain and chooser.random() < 0.8:
        return _changed_list(chooser, plain)
    if isinstance(plain, int) and not isinstance(plain, bool) and chooser.random() < 0.4:
        return plain + chooser.choice((-1, 1, 1_000, -1_000, 3_600_000, -3_600_000))
    return chooser.choice(VALUES)


def _changed_object(chooser: random.Random, plain: dict[str, Any]) -> dict[str, Any]:
    name, how = chooser.choice(sorted(plain)), chooser.random()
    if how < 0.1:
        return {key: value for key, value in plain.items() if key != name}
    if how < 0.15:
        return {**plain, chooser.choice(STRANGE): chooser.choice(VALUES)}
    return {**plain, name: _changed(chooser, plain[name])}


def _changed_list(chooser: random.Random, plain: list[Any]) -> list[Any]:
    place, how = chooser.randrange(len(plain)), chooser.random()
    if how < 0.15:
        return [*plain[:place], *plain[place + 1 :]]
    if how < 0.3:
        return [*plain, plain[place]]
    return [*plain[:place], _changed(chooser, plain[place]), *plain[place + 1 :]]
