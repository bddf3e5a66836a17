"""Operators' policies on where namespaces may live, and the matching of patterns.

Commands create these values, the balancer keeps them, `index` and `pipeline` apply them. Patterns
come from users, so RE2 matches them, in linear time. Source: Pulsar 4.0.8 NamespaceIsolationData,
AutoFailoverPolicyData (type min_available), NamespaceIsolationPolicyImpl (String.matches),
LocalPolicies.namespaceAntiAffinityGroup.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import re2

MIN_AVAILABLE = "min_available"
MAX_USAGE_PERCENT = 100
MAX_POLICIES = 1_000
MAX_PATTERNS = 1_000
"""Maximum patterns in each of a policy's three lists."""
MAX_PATTERN_CHARS = 1_000
_MAX_PROGRAM = 2_000
"""Instructions of a compiled pattern: the most steps per character of a text."""
_MAX_BYTES = 1 << 18
_MAX_JOINED_BYTES = 1 << 23
_PATTERNS_KEPT = 1_024
_NOT_LITERAL = re.compile(r"[^\w/:-]")
_PART = re.compile(r"\\Q(?s:.*?)(?:\\E|\Z)|\\(?s:.)|\[\^?\]?|&&|(?s:.)")
_BEYOND = (
    "backreferences, lookaround, possessive quantifiers and atomic groups can't be matched in"
    " linear time"
)


class InvalidPolicyError(ValueError):
    """Policy that can't be used; the text says why, and what is valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationPolicy:
    """Isolation policy: brokers that are reserved for some namespaces.

    namespaces, primary, secondary: regular expressions that match the whole name of a namespace, or
    one of a broker's `broker_names`; an unusable one (`problems`) matches nothing. min_limit: with
    fewer available primaries, secondaries are candidates too. usage_threshold_percent: kept for
    Pulsar's tools, and ignored, as in Pulsar.
    """

    name: str
    namespaces: tuple[str, ...]
    primary: tuple[str, ...]
    secondary: tuple[str, ...] = ()
    min_limit: int = 1
    usage_threshold_percent: int = MAX_USAGE_PERCENT

    def __post_init__(self) -> None:
        if not self.namespaces or not self.primary:
            message = (
                f"isolation policy {self.name!r} must name namespaces and primary brokers, got "
                f"namespaces={self.namespaces!r}, primary={self.primary!r}"
            )
            raise InvalidPolicyError(message)

    def problems(self) -> Iterator[str]:
        """Yield sentences about unusable patterns, and about too many of them."""
        for kind in ("namespaces", "primary", "secondary"):
            patterns: tuple[str, ...] = getattr(self, kind)
            if len(patterns) > MAX_PATTERNS:
                yield (
                    f"isolation policy {self.name!r} must have at most {MAX_PATTERNS} patterns of"
                    f" kind {kind}, got {len(patterns)}; join some with |"
                )
            for pattern in patterns:
                reason = _compiled(pattern)[1]
                if reason:
                    yield (
                        f"isolation policy {self.name!r} must have valid regular expressions, got"
                        f" {pattern[:60]!r}: {reason}"
                    )

    def checked(self) -> "IsolationPolicy":
        """Return the policy; raises InvalidPolicyError for its first problem."""
        for problem in self.problems():
            raise InvalidPolicyError(problem)
        return self

    def to_json(self) -> dict[str, Any]:
        """Return Pulsar's form, which `pulsar-admin ns-isolation-policy` reads and writes."""
        return {
            "namespaces": list(self.namespaces),
            "primary": list(self.primary),
            "secondary": list(self.secondary),
            "auto_failover_policy": {
                "policy_type": MIN_AVAILABLE,
                "parameters": {
                    "min_limit": str(self.min_limit),
                    "usage_threshold": str(self.usage_threshold_percent),
                },
            },
        }

    @staticmethod
    def from_json(name: str, plain: Mapping[str, Any]) -> "IsolationPolicy":
        """Return a policy from Pulsar's form, the inverse of `to_json`.

        Raises InvalidPolicyError, as Pulsar's validate does.
        """
        failover = plain.get("auto_failover_policy") or {}
        if failover.get("policy_type") != MIN_AVAILABLE:
            message = (
                f"isolation policy {name!r} must have an auto_failover_policy of type "
                f"{MIN_AVAILABLE!r}, got {failover.get('policy_type')!r}"
            )
            raise InvalidPolicyError(message)
        return IsolationPolicy(
            name=name,
            namespaces=tuple(plain.get("namespaces") or ()),
            primary=tuple(plain.get("primary") or ()),
            secondary=tuple(plain.get("secondary") or ()),
            min_limit=_parameter(name, failover, "min_limit"),
            usage_threshold_percent=_parameter(name, failover, "usage_threshold"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """All policies of a cluster.

    isolation: in name order; the first that matches a namespace applies. anti_affinity: namespace →
    group, compared without case.
    """

    isolation: tuple[IsolationPolicy, ...] = ()
    anti_affinity: Mapping[str, str] = field(default_factory=dict)


def group_of(policies: Policies, namespace: str) -> str:
    """Return a namespace's anti-affinity group in lower case; "" = none, or blank."""
    group = policies.anti_affinity.get(namespace, "")
    return group.lower() if group.strip() else ""


def matches_any(patterns: Sequence[str], *texts: str) -> bool:
    """Return True if a pattern matches a whole text, as Java's String.matches does.

    An unusable pattern matches nothing. O(patterns x texts), each in linear time.
    """
    return any(map(matcher(tuple(patterns)), texts))


@lru_cache(maxsize=MAX_POLICIES)
def matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that is True for texts that one of the patterns matches.

    Plain names are looked up, beginnings are compared, all others are joined to one RE2 pattern.
    """
    usable = [one for one in patterns if not _compiled(one)[1]]
    names = frozenset(filter(_is_plain, usable))
    starts = tuple(one[:-2] for one in usable if _is_beginning(one))
    others = [one for one in usable if not _is_plain(one) and not _is_beginning(one)]
    tests = _joined(others) if others else ()

    def matches(text: str) -> bool:
        if text in names or (text.startswith(starts) and "\n" not in text):
            return True
        if not tests:
            return False
        encoded = text.encode(errors="replace")
        return any(one.fullmatch(encoded) for one in tests)

    return matches


def _joined(patterns: Sequence[str]) -> tuple[Any, ...]:
    """Return the usable patterns compiled as one, or each if they can't be joined."""
    if not any("\\Q" in one for one in patterns):  # an open quote would reach into the next one
        joined = "|".join(f"(?:{one})" for one in patterns)
        with suppress(re2.error):  # too large for one
            return (re2.compile(joined.encode(), _options(_MAX_JOINED_BYTES)),)
    return tuple(_compiled(one)[0] for one in patterns)


def _is_plain(pattern: str) -> bool:
    """Return True if a pattern is a plain name."""
    return not _NOT_LITERAL.search(pattern)


def _is_beginning(pattern: str) -> bool:
    """Return True if a pattern is a plain name followed by `.*`."""
    return pattern.endswith(".*") and _is_plain(pattern[:-2])


def broker_names(broker: str, *web_urls: str) -> tuple[str, ...]:
    """Return the names of a broker that patterns may match, each once.

    Its name and the host:port of its web services, and both without port, as Pulsar matches the
    host of a broker's id: "b1" at "http://10.0.0.1:8080" → b1, 10.0.0.1:8080, 10.0.0.1.
    """
    known = (broker, *(url.rpartition("//")[2].rstrip("/") for url in web_urls if url))
    return tuple(dict.fromkeys(name for one in known for name in (one, host_of(one))))


def host_of(broker: str) -> str:
    """Return a broker's name without port: "b1:8080" → "b1", "[::1]:8080" → "[::1]"."""
    host, separator, port = broker.rpartition(":")
    return host if separator and port.isdigit() and host else broker


@lru_cache(maxsize=_PATTERNS_KEPT)
def _compiled(pattern: str) -> tuple[Any, str]:
    """Return the compiled pattern, and why it is unusable, "" = usable.

    The pattern is None if it is unusable, and for plain names and beginnings, which `matcher`
    compares itself.
    """
    reason = _unlike_java(pattern)
    if reason or _is_plain(pattern) or _is_beginning(pattern):
        return None, reason
    try:
        compiled = re2.compile(pattern.encode(), _options(_MAX_BYTES))
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        is_beyond = "operator" in reason or "escape" in reason
        return None, f"{reason} ({_BEYOND})" if is_beyond else reason
    except UnicodeEncodeError:
        return None, "it holds half a character"
    if compiled.programsize > _MAX_PROGRAM:
        return None, "it repeats too much; write * or + for large numbers"
    return compiled, ""


def _options(max_bytes: int) -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = max_bytes
    return options


def _unlike_java(pattern: str) -> str:
    """Return why to refuse a pattern before it is compiled, "" = don't. O(chars).

    It is too long, or Java reads it differently from RE2.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        return f"it must have at most {MAX_PATTERN_CHARS} characters, got {len(pattern)}"
    in_class = False
    for part in _PART.findall(pattern):
        if part[0] == "\\" and part[1:] in tuple("123456789"):
            return f"{part} refers back ({_BEYOND})"
        if in_class and (part[0] == "[" or part == "&&"):
            return "a class within a class, or &&, can't be used; write the characters out"
        in_class = part[0] == "[" or (in_class and part != "]")
    return ""


def _parameter(name: str, failover: Mapping[str, Any], key: str) -> int:
    given = (failover.get("parameters") or {}).get(key)
    try:
        return int(str(given))
    except ValueError as error:
        message = (
            f"isolation policy {name!r} must give {key} as a whole number in its "
            f"auto_failover_policy's parameters, got {given!r}"
        )
        raise InvalidPolicyError(message) from error
