"""Settings of the filters: which brokers may take a bundle at all.

Read by `lbcore.plan.filter`. Source: Pulsar 4.0.8's ServiceConfiguration, and ours where no Pulsar
key is named.
"""

from dataclasses import dataclass

from lbcore.config.setting import setting

MODULAR = "modular"
EXTENSIBLE = "extensible"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterConfig:
    """Limits and switches of the filters, and the order they run in."""

    pipeline: str = setting(
        MODULAR,
        doc="Whose order of filters and fallbacks: Pulsar's modular or its extensible manager's.",
        choices=(MODULAR, EXTENSIBLE),
        pulsar="loadManagerClassName",
        dynamic=True,
    )
    load_manager_class: str = setting(
        "",
        doc="Only brokers that advertise this load manager class take bundles; '' = any. For a "
        "Pulsar cluster that changes its manager: brokers of Ballast's own advertise none.",
        dynamic=True,
    )
    max_topics_per_broker: int = setting(
        50_000,
        doc="A broker with more topics (extensible pipeline: with as many) takes no bundle.",
        unit="topics",
        minimum=1,
        pulsar="loadBalancerBrokerMaxTopics",
        dynamic=True,
    )
    distribute_evenly: bool = setting(
        default=True,
        doc="Modular: only brokers with the fewest bundles of the bundle's namespace take it.",
        pulsar="loadBalancerDistributeBundlesEvenlyEnabled",
        dynamic=True,
    )
    prefer_later_versions: bool = setting(
        default=False,
        doc="Only brokers of the latest version take bundles; off when one's can't be read.",
        pulsar="preferLaterVersions",
        dynamic=True,
    )
    failure_domains: bool = setting(
        default=False,
        doc="Spread the namespaces of an anti-affinity group over failure domains first.",
        pulsar="failureDomainsEnabled",
        dynamic=True,
    )
    # starts of a broker within this time count as flapping
    flap_window_ms: int = 600_000
    flap_starts: int = setting(
        3,
        doc="A broker that started this often within ten minutes takes no bundle; 0 = off.",
        unit="starts",
        minimum=0,
        pulsar_default=0,
        dynamic=True,
    )
