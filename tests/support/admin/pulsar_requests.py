"""Requests of pulsar-admin, and Pulsar's refusals of them."""

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
    (
        "PUT",
        f"{NS}/unload",
        b"",
        204,
        "unload_namespace",
        {"namespace": "acme/ns1"},
    ),
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
    (
        "DELETE",
        f"{POLICIES_PATH}/pol1",
        b"",
        204,
        "delete_isolation_policy",
        {"policy": "pol1"},
    ),
]
_WRONG_UPPER = (
    "Invalid upper boundary for bundle acme/ns1/0x00000000_0x20000000. Expected upper boundary of"
    f" acme/ns1/{FIRST}"
)
REFUSED: list[tuple[str, str, Any, int, str]] = [
    ("PUT", "/admin/v2/tenants/empty", {"allowedClusters": ["c1"]}, 409, "Tenant already exist"),
    ("PUT", "/admin/v2/tenants/a b", {"allowedClusters": ["c1"]}, 412, "Tenant name is not valid"),
    ("PUT", "/admin/v2/tenants/new", {}, 412, "Clusters cannot be empty or blank"),
    ("PUT", "/admin/v2/tenants/new", {"allowedClusters": ["x"]}, 412, "Clusters do not exist"),
    ("POST", "/admin/v2/tenants/new", {"allowedClusters": ["c1"]}, 404, "Tenant new not found"),
    ("GET", "/admin/v2/tenants/new", b"", 404, "Tenant does not exist"),
    ("DELETE", "/admin/v2/tenants/new", b"", 404, "Tenant doesn't exist"),
    ("DELETE", "/admin/v2/tenants/acme", b"", 409, "The tenant still has active namespaces"),
    ("PUT", "/admin/v2/tenants/new", b"", 412, "TenantInfo is null"),
    (
        "PUT",
        "/admin/v2/tenants/new",
        {"adminRoles": [" ops"], "allowedClusters": ["c1"]},
        412,
        "AdminRoles contains whitespace in the beginning or end.",
    ),
    ("GET", "/admin/v2/clusters/other", b"", 404, "Cluster does not exist"),
    (
        "GET",
        "/admin/v2/clusters/c1/failureDomains/rack-9",
        b"",
        404,
        "Domain rack-9 for cluster c1 does not exist",
    ),
    (
        "POST",
        "/admin/v2/clusters/c1/failureDomains/rack-9",
        {"brokers": ["broker-1:8080"]},
        501,
        "A failure domain is a label of its brokers: start them with another label",
    ),
    (
        "GET",
        "/admin/v2/namespaces/other/antiAffinity/grp?tenant=acme",
        b"",
        412,
        "Cluster other does not exist.",
    ),
    (
        "GET",
        "/admin/v2/brokers/c1/nobody:8080/ownedNamespaces",
        b"",
        404,
        "Broker id 'nobody:8080' not found in available brokers.",
    ),
    (
        "GET",
        "/admin/v2/brokers/health?topicVersion=V2&brokerId=nobody:8080",
        b"",
        404,
        "Broker id 'nobody:8080' not found in available brokers.",
    ),
    ("GET", "/admin/v2/brokers/other", b"", 404, "Cluster does not exist: cluster=other"),
    ("GET", "/admin/v2/namespaces/new", b"", 404, "Tenant not found"),
    ("PUT", NS, {"bundles": {"numBundles": 4}}, 409, "Namespace already exists"),
    ("PUT", "/admin/v2/namespaces/new/ns", b"", 404, "Tenant does not exist"),
    ("PUT", "/admin/v2/namespaces/acme/a b", b"", 412, "Namespace name is not valid"),
    (
        "PUT",
        "/admin/v2/namespaces/acme/n",
        {"bundles": {"numBundles": 1 << 33}},
        400,
        "Invalid number of bundles. Number of numBundles has to be in the range of (0, 2^32].",
    ),
    (
        "PUT",
        "/admin/v2/namespaces/acme/n",
        {"bundles": {"boundaries": ["0x10000000", "0xffffffff"]}},
        400,
        "Input bundles do not cover the whole hash range. first:0x10000000, last:0xffffffff",
    ),
    (
        "PUT",
        "/admin/v2/namespaces/acme/n",
        {"replication_clusters": ["x"]},
        403,
        "Cluster [x] is not in the list of allowed clusters list for tenant [acme]",
    ),
    ("GET", "/admin/v2/namespaces/acme/none", b"", 404, "Namespace does not exist"),
    ("GET", "/admin/v2/namespaces/acme/none/bundles", b"", 404, "Namespace does not exist"),
    ("DELETE", NS, b"", 409, "Cannot delete non empty namespace"),
    ("DELETE", "/admin/v2/namespaces/acme/x", b"", 404, "Namespace acme/x does not exist."),
    (
        "DELETE",
        f"{NS}?force=true",
        b"",
        405,
        "Broker doesn't allow forced deletion of namespaces",
    ),
    ("PUT", "/admin/v2/namespaces/acme/none/unload", b"", 404, "Namespace not found"),
    (
        "PUT",
        f"{NS}/0x10000000_0x20000000/unload",
        b"",
        412,
        "Cannot find bundle acme/ns1/0x10000000_0x20000000 in the bundles list",
    ),
    (
        "PUT",
        f"{NS}/0x00000000_0x20000000/unload",
        b"",
        412,
        _WRONG_UPPER,
    ),
    (
        "PUT",
        f"{NS}/0_536870912/split?splitAlgorithmName=range_equally_divide",
        b"",
        412,
        _WRONG_UPPER,
    ),
    (
        "GET",
        f"{NS}/0X10000000_536870912/topicHashPositions",
        b"",
        412,
        "Cannot find bundle acme/ns1/0x10000000_0x20000000 in the bundles list",
    ),
    ("PUT", f"{NS}/x/unload", b"", 412, "Invalid bundle range: x"),
    (
        "PUT",
        f"{NS}/{FIRST}/unload?destinationBroker=nobody:8080",
        b"",
        409,
        "Not allowed unload namespace bundle to inactive destination broker",
    ),
    (
        "PUT",
        f"{SPLIT}nonsense",
        b"",
        412,
        (
            "Unsupported namespace bundle split algorithm, supported algorithms are "
            "[range_equally_divide, topic_count_equally_divide, specified_positions_divide, "
            "flow_or_qps_equally_divide]"
        ),
    ),
    (
        "PUT",
        f"{SPLIT}specified_positions_divide",
        b"",
        412,
        "With specified_positions_divide split algorithm, splitBoundaries must not be empty",
    ),
    (
        "PUT",
        f"{SPLIT}specified_positions_divide",
        [357913941, 715827882],
        412,
        "Split bundle failed due to invalid request",
    ),
    (
        "PUT",
        "/admin/v2/namespaces/acme/ns2/LARGEST/split",
        b"",
        404,
        "Bundle range LARGEST not found",
    ),
    ("PUT", "/admin/v2/namespaces/acme/ns2/HOT/split", b"", 404, "Bundle range HOT not found"),
    ("POST", f"{NS}/antiAffinity", b"  ", 412, "antiAffinityGroup can't be empty"),
    ("PUT", f"{TOPIC}/t1", b"", 409, "This topic already exists"),
    ("PUT", f"{TOPIC}/pt/partitions", b"4", 409, "This topic already exists"),
    ("PUT", f"{TOPIC}/new/partitions", b"", 406, "Number of partitions should be more than 0"),
    ("PUT", f"{TOPIC}/new/partitions", b"0", 406, "Number of partitions should be more than 0"),
    (
        "PUT",
        f"{TOPIC}/new-partition-1/partitions",
        b"2",
        412,
        "Partitioned Topic Name should not contain '-partition-'",
    ),
    (
        "POST",
        f"{TOPIC}/pt/partitions",
        b"3",
        422,
        "Desired partitions 3 can't be less than the current partitions 4.",
    ),
    (
        "POST",
        f"{TOPIC}/t1/partitions",
        b"3",
        409,
        "Topic persistent://acme/ns1/t1 is not the partitioned topic.",
    ),
    (
        "PUT",
        f"{TOPIC}/pt-partition-4",
        b"",
        412,
        (
            'Can\'t create topic pt-partition-4 with "-partition-" followed by a number smaller '
            "than number of partition of partitioned topic pt"
        ),
    ),
    (
        "PUT",
        f"{TOPIC}/new-partition-0",
        b"",
        412,
        (
            'Can\'t create topic new-partition-0 with "-partition-" followed by numeric value if '
            "there isn't a partitioned topic new created."
        ),
    ),
    ("PUT", f"{TOPIC}/pt-partition-3", b"", 409, "This topic already exists"),
    ("DELETE", f"{TOPIC}/new", b"", 404, "Topic persistent://acme/ns1/new not found"),
    (
        "DELETE",
        f"{TOPIC}/pt",
        b"",
        409,
        (
            "persistent://acme/ns1/pt is a partitioned topic, instead of calling delete topic, "
            "please call delete-partitioned-topic."
        ),
    ),
    (
        "DELETE",
        f"{TOPIC}/t1/partitions",
        b"",
        409,
        (
            "persistent://acme/ns1/t1 is a non-partitioned topic. Instead of calling "
            "delete-partitioned-topic please call delete."
        ),
    ),
    (
        "DELETE",
        f"{TOPIC}/new/partitions",
        b"",
        404,
        "Topic persistent://acme/ns1/new not found.",
    ),
    (
        "GET",
        f"{TOPIC}/new/partitions",
        b"",
        404,
        "Topic persistent://acme/ns1/new not found",
    ),
    (
        "GET",
        f"{TOPIC}/new/partitioned-stats",
        b"",
        404,
        "Partitioned Topic persistent://acme/ns1/new not found",
    ),
    (
        "GET",
        f"{TOPIC}/new-partition-1/stats",
        b"",
        404,
        "Partitioned Topic not found: persistent://acme/ns1/new-partition-1 has zero partitions",
    ),
    ("GET", f"{TOPIC}/pt-partition-4/stats", b"", 404, "Topic partitions were not yet created"),
    ("GET", f"{TOPIC}/new/stats", b"", 404, "Topic persistent://acme/ns1/new not found"),
    ("GET", "/admin/v2/schemas/acme/ns1/t1/schema", b"", 404, "Schema not found"),
    ("GET", "/admin/v2/persistent/acme/none/t/partitions", b"", 404, "Namespace not found"),
    (
        "POST",
        "/admin/v2/brokers/configuration/clusterName/x",
        b"",
        412,
        "Can't update non-dynamic configuration",
    ),
    (
        "DELETE",
        "/admin/v2/brokers/configuration/clusterName",
        b"",
        412,
        "Can't delete non-dynamic configuration",
    ),
    (
        "POST",
        f"{POLICIES_PATH}/p",
        {"namespaces": []},
        400,
        'Invalid format of input policy data. policy: p; data: {"namespaces":[]}',
    ),
    (
        "GET",
        f"{POLICIES_PATH}/p",
        b"",
        404,
        "Cannot find NamespaceIsolationPolicy p for cluster c1",
    ),
    (
        "GET",
        "/admin/v2/broker-stats/allocator-stats/x",
        b"",
        406,
        "Invalid allocator name : x",
    ),
    (
        "GET",
        "/admin/v2/broker-stats/broker-resource-availability/acme/ns1",
        b"",
        409,
        (
            "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerWrapper does not "
            "support this operation"
        ),
    ),
]
