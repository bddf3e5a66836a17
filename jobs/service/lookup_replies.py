"""Replies of the lookup service: status, headers and body for each outcome.

Decides the texts and the status codes. The answer itself comes from `lbcore.route`, the time of
sending from `lookup_http`. Source: Pulsar 4.0.8, lookup.v2.TopicLookup and TopicLookupBase; the
X-Ballast headers are ours.
"""

from dataclasses import dataclass, replace
from urllib.parse import quote

from jobs.adapters.following.view import View
from jobs.adapters.processes.clocks import boot_ms, wall_ms
from jobs.service.exchange import JSON, RETRY, Header, HttpError, encode
from lbcore.pulsar.errors import unexpected
from lbcore.route.addresses import lookup_body
from lbcore.route.bundles import BundleRoute
from lbcore.route.snapshot import Answer, LookupOutcome

NOT_READY = "not_ready"
INVALID_NAME = "invalid_name"
STALE = "stale"
REFUSED = "refused"
OTHER_RESULTS = ("bundle", INVALID_NAME, NOT_READY, STALE, REFUSED)
"""What a lookup may come to beside the outcomes; labels of the lookups metric."""

AGE = b"x-ballast-age-ms"
ANY_AGE = 1 << 62
BAD_AGE = -1
_WORTH_WAITING = frozenset({LookupOutcome.NO_OWNER, LookupOutcome.BROKER_UNKNOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupRequest:
    """A lookup as asked for: the topic's full name, for the bundle or for its owner."""

    topic: str
    tenant: str
    is_bundle: bool
    listener: str
    age_max_ms: int = ANY_AGE


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupReply:
    """Reply to a lookup; `is_final` is False if waiting may bring a better answer.

    unowned: the bundle without an owner, if that is the cause. state: of the bundle whose owner was
    asked for.
    """

    status: int
    body: bytes
    result: str = ""
    headers: tuple[Header, ...] = ()
    is_final: bool = True
    unowned: BundleRoute | None = None
    state: str = ""


def owner_reply(view: View, answer: Answer, request: LookupRequest) -> LookupReply:
    """Return the reply with the topic's broker, or the reason why there is none."""
    headers = stamps(view, answer)
    outcome, address, listener = answer.outcome, answer.address, request.listener
    state = "" if answer.route is None else answer.route.state.value
    if address is not None and outcome is LookupOutcome.FOUND:
        body = lookup_body(address, address.listeners[listener] if listener else None)
        return LookupReply(
            status=200, body=body, headers=headers, result=outcome.value, state=state
        )
    if outcome is LookupOutcome.NAMESPACE_NOT_FOUND:
        body = reason("Namespace not found")
        return LookupReply(status=404, body=body, headers=headers, result=outcome.value)
    if outcome is LookupOutcome.LISTENER_UNKNOWN:
        body = reason(_no_listener(listener))
        return LookupReply(
            status=500, body=body, headers=headers, result=outcome.value, state=state
        )
    return LookupReply(
        status=503,
        body=reason(_no_owner(answer)),
        headers=(*headers, RETRY),
        result=outcome.value,
        is_final=outcome not in _WORTH_WAITING,
        unowned=answer.route if outcome is LookupOutcome.NO_OWNER else None,
        state=state,
    )


def bundle_reply(view: View, answer: Answer) -> LookupReply:
    """Return the range of the topic's bundle, unquoted as in Pulsar.

    Whether it has an owner or not.
    """
    headers = stamps(view, answer)
    if answer.route is None:
        body = reason("Namespace not found")
        return LookupReply(status=404, body=body, headers=headers, result=answer.outcome.value)
    if not answer.route.version_id:
        body = reason(_no_owner(answer))
        return LookupReply(
            status=503, body=body, headers=(*headers, RETRY), result=answer.outcome.value
        )
    body = answer.route.range_text.encode()
    return LookupReply(status=200, body=body, headers=headers, result="bundle")


def _no_owner(answer: Answer) -> str:
    route = answer.route
    if answer.outcome is LookupOutcome.BROKER_UNKNOWN and route is not None:
        return (
            f"The addresses of broker {route.broker}, which owns the bundle of this topic, are not "
            "known yet: try again"
        )
    state = "" if route is None else f" (bundle {route.bundle} is {route.state.value})"
    return f"No broker serves this topic at the moment{state}: try again"


def _no_listener(listener: str) -> str:
    """Pulsar's text up to the first line of its stack trace."""
    message = f"the broker do not have {listener} listener"
    return unexpected(message, "org.apache.pulsar.broker.PulsarServerException")


def stamps(view: View, answer: Answer | None = None) -> tuple[Header, ...]:
    """That it is JSON, how old the answer is, and which record it comes from."""
    if answer is None or answer.route is None:
        return (JSON, *ages(view))
    route = answer.route
    return (
        JSON,
        *ages(view),
        (b"x-ballast-bundle", route.bundle.encode()),
        (b"x-ballast-version-id", b"%d" % route.version_id),
        broker_stamp(route),
    )


def broker_stamp(route: BundleRoute) -> Header:
    """Return the header with the broker to which the bundle's clients are sent."""
    return (b"x-ballast-broker", quote(route.broker, safe=":/[]").encode())


def ages(view: View) -> tuple[Header, ...]:
    """Return the table's version of the answer, and its age in both ways."""
    return (
        (b"x-ballast-table-version", b"%d" % view.snapshot.position.table_version),
        (AGE, b"%d" % view.age_ms(boot_ms())),
        (b"x-ballast-writer-silent-ms", b"%d" % view.writer_silent_ms(wall_ms())),
    )


def stamped(reply: LookupReply, view: View | None) -> LookupReply:
    """The reply with `ages`, unless it has them already or nothing is known yet."""
    if view is None or any(name == AGE for name, _ in reply.headers):
        return reply
    return replace(reply, headers=(*reply.headers, *ages(view)))


def not_ready() -> LookupReply:
    """Nothing is known yet."""
    body = reason("The tables are not loaded yet: try again")
    return LookupReply(status=503, body=body, headers=(JSON, RETRY), result=NOT_READY)


def stale(view: View, age_max_ms: int) -> LookupReply:
    """The answer is older than was asked for."""
    body = reason(
        f"The answer would be {view.age_ms(boot_ms())} ms old, more than max_age_ms={age_max_ms}: "
        "the tables can't be followed at the moment"
    )
    return LookupReply(status=503, body=body, headers=(*stamps(view), RETRY), result=STALE)


def bad_age() -> LookupReply:
    """A bound on the age that is none."""
    body = reason("max_age_ms must be a whole number of milliseconds")
    return LookupReply(status=400, body=body, headers=(JSON,), result=INVALID_NAME)


def refusal(error: HttpError) -> LookupReply:
    """Return the reply to a caller without permission or above the rate limit."""
    body = reason(error.reason)
    return LookupReply(
        status=error.status, body=body, headers=(JSON, *error.headers), result=REFUSED
    )


def not_found() -> LookupReply:
    """There is no such path."""
    return LookupReply(status=404, body=reason("HTTP 404 Not Found"), headers=(JSON,))


def not_allowed(method: str) -> LookupReply:
    """A lookup is only read; OPTIONS is told so."""
    allow = (b"allow", b"GET, HEAD, OPTIONS")
    if method == "OPTIONS":
        return LookupReply(status=200, body=b"", headers=(allow,))
    return LookupReply(
        status=405, body=reason("HTTP 405 Method Not Allowed"), headers=(JSON, allow)
    )


def of_method(reply: LookupReply, method: str) -> LookupReply:
    """Health and metrics are only read, too."""
    return reply if method in ("GET", "HEAD") or reply.status in (404, 405) else not_allowed(method)


def reason(text: str) -> bytes:
    """An error's body, as Pulsar's."""
    return encode({"reason": text})
