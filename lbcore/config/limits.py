"""Limits of one tenant: what its administrators may make before they are refused.

The handlers of commands read it. Without limits one tenant could fill the state that every batch of
everybody works on. Pulsar 4.0.8 has maxNamespacesPerTenant and maxTopicsPerNamespace.
"""

from dataclasses import dataclass

from lbcore.config.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """Quotas of one tenant, and the most bundles that one batch changes."""

    # namespaces of a tenant; create_namespace is refused beyond it
    tenant_namespaces_max: int = 10_000
    tenant_bundles_max: int = setting(
        200_000,
        unit="bundles",
        minimum=1,
        maximum=10_000_000,
        dynamic=True,
        doc="Most bundles of a tenant, those still to be made included; create_namespace and"
        " split_bundle are refused beyond it. Splits by themselves have"
        " splitting.max_namespace_bundles.",
    )
    # created topics of a tenant that are kept, a partitioned one counted once
    tenant_topics_max: int = 150_000
    # partitions of all topics of a tenant together
    tenant_partitions_max: int = 4_194_304
    # pins, pauses, anti-affinity groups and exclusions of a tenant's namespaces and bundles
    tenant_rules_max: int = 20_000
    # bundles that one batch makes, deletes or unloads; longer batches would hold up placement
    bundles_made_max: int = 4_000
