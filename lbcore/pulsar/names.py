"""The names in the paths of Pulsar's admin interface, checked in its words.

Decides which names are refused and how; not what exists. Stands under the other `pulsar_` modules.
Source: Pulsar 4.0.8, NamedEntity.checkName, AdminResource.validateNamespaceName,
validateTopicName, NamespacesBase.internalUnloadNamespaceBundleAsync.
"""

import re

from lbcore.model.names import Domain, InvalidNameError, TopicName, parse_topic
from lbcore.pulsar.errors import NOT_FOUND, PRECONDITION_FAILED, PulsarError

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
