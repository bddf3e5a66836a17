"""Names in the paths of Pulsar's admin interface, and its refusals.

A refusal is a status and the sentence that Pulsar's tools print, answered as {"reason": ...}.
Source: Pulsar 4.0.8, NamedEntity.checkName, AdminResource.validateNamespaceName, validateTopicName,
NamespacesBase.internalUnloadNamespaceBundleAsync, RestException.
"""

import re

from lbcore.model.names import Domain, InvalidNameError, TopicName, parse_topic

BAD_REQUEST = 400
FORBIDDEN = 403
NOT_FOUND = 404
NOT_ALLOWED = 405
NOT_ACCEPTABLE = 406
CONFLICT = 409
PRECONDITION_FAILED = 412
UNPROCESSABLE = 422
SERVER_ERROR = 500
NOT_IMPLEMENTED = 501

_UNEXPECTED = "\n --- An unexpected error occurred in the server ---\n\n"


class PulsarError(Exception):
    """Pulsar's error response to a request that it refuses."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def unexpected(message: str, exception: str, why: str = "") -> str:
    """Return the reason of a 500 as Pulsar writes it.

    message: "null" for an exception without one. exception: the Java class. why: a sentence of ours
    in place of the stack's first frame.
    """
    line = exception if message == "null" else f"{exception}: {message}"
    frame = f"\tat {why}\n" if why else ""
    return f"{_UNEXPECTED}Message: {message}\n\nStacktrace:\n\n{line}\n{frame}"


def namespace_not_found() -> PulsarError:
    """Return the 404 of paths on which Pulsar looks up the namespace's cluster first."""
    return PulsarError(NOT_FOUND, "Namespace not found")


_ENTITY = re.compile(r"[-=:.A-Za-z0-9_]+")
_SCHEME = re.compile(r"http[s]?://")


def check_tenant(name: str) -> str:
    """The tenant's name itself; raises PulsarError 412."""
    if _ENTITY.fullmatch(name) is None:
        raise PulsarError(PRECONDITION_FAILED, "Tenant name is not valid")
    return name


def check_namespace(tenant: str, name: str) -> str:
    """tenant/namespace; raises PulsarError 412."""
    if _ENTITY.fullmatch(tenant) is None or _ENTITY.fullmatch(name) is None:
        raise PulsarError(PRECONDITION_FAILED, "Namespace name is not valid")
    return f"{tenant}/{name}"


def check_topic(domain: Domain, namespace: str, local: str) -> TopicName:
    """The topic; raises PulsarError 412.

    A "/" in the local name would make it a v1 name, of another namespace; it is refused.
    """
    try:
        topic = parse_topic(f"{domain.value}://{namespace}/{local}")
    except InvalidNameError:
        topic = None
    if topic is None or topic.namespace != namespace:
        raise PulsarError(PRECONDITION_FAILED, "Topic name is not valid")
    return topic


def broker_id(text: str) -> str:
    """A broker's id as a request may write it, "http://host:port" being host:port."""
    return _SCHEME.sub("", text.strip(), count=1)


def domain_of(text: str) -> Domain:
    """The domain of a path's part; raises PulsarError 404 for what is no domain."""
    try:
        return Domain(text)
    except ValueError:
        raise PulsarError(NOT_FOUND, "HTTP 404 Not Found") from None
