"""The namespaces that Pulsar's brokers keep for watching themselves.

Decides which namespaces have one fixed owner and are never balanced: heartbeats of both forms and
the SLA monitor. Read where reports come in and where bundles are chosen.
Source: Pulsar 4.0.8, NamespaceService (HEARTBEAT_NAMESPACE_PATTERN, _V2, SLA_NAMESPACE_PATTERN).
"""

import re

_OWN_BROKER = re.compile(r"(?:pulsar|pulsar/[^/]+|sla-monitor/[^/]+)/[^:/]+:[0-9]+")


def is_monitoring_namespace(namespace: str) -> bool:
    """Return True if a broker keeps the namespace for itself.

    pulsar/HOST:PORT, pulsar/CLUSTER/HOST:PORT and sla-monitor/CLUSTER/HOST:PORT are; pulsar/system
    is not.
    """
    return _OWN_BROKER.fullmatch(namespace) is not None
