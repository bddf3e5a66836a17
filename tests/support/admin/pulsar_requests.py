"""Requests to Pulsar's admin paths: what each asks the balancer for."""

from collections.abc import Mapping
from typing import Any

NS = "/admin/v2/namespaces/acme/ns1"
FIRST, SECOND = "0x00000000_0x40000000", "0x40000000_0x80000000"
TOPIC = "/admin/v2/persistent/acme/ns1"
POLICY = {
    "namespaces": ["acme/iso.*"],
    "primary": ["broker-1:8080"],
    "secondary": ["broker-2:8080"],
    "auto_failover_policy": {
        "policy_type": "min_available",
        "parameters": {"min_limit": "1", "usage_threshold": "80"},
    },
}
POLICIES_PATH = "/admin/v2/clusters/c1/namespaceIsolationPolicies"


SPLIT = f"{NS}/{FIRST}/split?splitAlgorithmName="
UNEXPECTED = "\n --- An unexpected error occurred in the server ---\n\nMessage: "
ASKED: list[tuple[str, str, Any, int, str, Mapping[str, Any]]] = [
    (
        "PUT",
        "/admin/v2/tenants/new",
        {"adminRoles": ["admin"], "allowedClusters": ["standalone"]},
        204,
        "create_record",
        {
            "record_type": "tenant",
            "name": "new",
            "value": {"admin_roles": ["admin"], "allowed_clusters": ["standalone"]},
        },
    ),
    (
        "DELETE",
        "/admin/v2/tenants/empty",
        b"",
        204,
        "delete_record",
        {"record_type": "tenant", "name": "empty"},
    ),
    (
        "PUT",
        "/admin/v2/namespaces/acme/new",
        {"replication_clusters": [], "bundles": {"numBundles": 7}},
        204,
        "create_namespace",
        {"namespace": "acme/new", "bundles": 7},
    ),
    (
        "PUT",
        "/admin/v2/namespaces/acme/new",
        b"",
        204,
        "create_namespace",
        {"namespace": "acme/new", "bundles": 4},
    ),
    (
        "DELETE",
        "/admin/v2/namespaces/acme/ns2",
        b"",
        204,
        "delete_namespace",
        {"namespace": "acme/ns2", "only_empty": True},
    ),
    ("PUT", f"{NS}/unload", b"", 204, "unload_namespace", {"namespace": "acme/ns1"}),
    (
        "PUT",
        f"{NS}/{FIRST}/unload",
        b"",
        204,
        "unload_bundle",
        {"bundle": f"acme/ns1/{FIRST}"},
    ),
    (
        "PUT",
        f"{NS}/{FIRST}/unload?destinationBroker=http://broker-2:8080",
        b"",
        204,
        "unload_bundle",
        {"bundle": f"acme/ns1/{FIRST}", "destination": "broker-2:8080"},
    ),
    (
        "PUT",
        f"{SPLIT}range_equally_divide&unload=true",
        b"",
        204,
        "split_bundle",
        {
            "bundle": f"acme/ns1/{FIRST}",
            "algorithm": "range_equally_divide",
            "unload": True,
            "force": True,
        },
    ),
    (
        "PUT",
        f"{SPLIT}specified_positions_divide",
        [1, 0x40000000],
        204,
        "split_bundle",
        {
            "bundle": f"acme/ns1/{FIRST}",
            "algorithm": "specified_positions_divide",
            "positions": [1],
            "force": True,
        },
    ),
    (
        "POST",
        f"{NS}/antiAffinity",
        b"grp2",
        204,
        "set_anti_affinity_group",
        {"namespace": "acme/ns1", "group": "grp2"},
    ),
    (
        "PUT",
        "/admin/v2/non-persistent/acme/ns1/a+b%2Bc",
        b"",
        204,
        "create_record",
        {"record_type": "topic", "name": "non-persistent://acme/ns1/a b+c"},
    ),
    (
        "PUT",
        f"{TOPIC}/many/partitions?createLocalTopicOnly=false",
        b"32",
        204,
        "create_record",
        {"record_type": "topic", "name": "persistent://acme/ns1/many", "value": 32},
    ),
    (
        "PUT",
        f"{TOPIC}/labelled/partitions?createLocalTopicOnly=false",
        {"partitions": 2, "properties": {"team": "a"}},
        204,
        "create_record",
        {"record_type": "topic", "name": "persistent://acme/ns1/labelled", "value": 2},
    ),
    (
        "PUT",
        "/admin/v2/namespaces/acme/few",
        {"bundles": {"numBundles": -1}},
        204,
        "create_namespace",
        {"namespace": "acme/few", "bundles": 4},
    ),
    (
        "POST",
        "/admin/v2/brokers/configuration/loadBalancerDebugModeEnabled/true",
        b"",
        200,
        "set_config",
        {"values": {"loadBalancerDebugModeEnabled": "true"}},
    ),
    (
        "DELETE",
        "/admin/v2/brokers/configuration/loadBalancerDebugModeEnabled",
        b"",
        200,
        "reset_config",
        {"keys": ["loadBalancerDebugModeEnabled"]},
    ),
    (
        "POST",
        f"{POLICIES_PATH}/pol2",
        POLICY,
        204,
        "set_isolation_policy",
        {
            "policy": "pol2",
            "namespaces": ["acme/iso.*"],
            "primary": ["broker-1:8080"],
            "secondary": ["broker-2:8080"],
            "usage_threshold_percent": 80.0,
        },
    ),
    ("DELETE", f"{POLICIES_PATH}/pol1", b"", 204, "delete_isolation_policy", {"policy": "pol1"}),
]
