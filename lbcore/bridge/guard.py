"""The guard: whether the cluster's own balancing is off, so that ours may act.

Decides it from every broker's runtime configuration: one that still sheds is enough to keep us
from acting, and so is one that did not answer. Source: Pulsar 4.0.8, ServiceConfiguration.
"""

from collections.abc import Mapping

from lbcore.bridge.answers import Settings

SHEDDING = "loadBalancerSheddingEnabled"
SPLITTING = "loadBalancerAutoBundleSplitEnabled"
BALANCING = "loadBalancerEnabled"
_TRUE = "true"


def reason_not_to_act(settings: Mapping[str, Settings | None]) -> str:
    """Return why nothing may be moved; "" = it may.

    settings: by broker, None = no answer.
    """
    if not settings:
        return "no active broker is known"
    for broker, found in sorted(settings.items()):
        if found is None:
            return f"{broker} does not tell its configuration"
        if found.get(BALANCING, _TRUE) == _TRUE and found.get(SHEDDING, _TRUE) == _TRUE:
            return f"{broker} has {SHEDDING}=true: Pulsar sheds by itself"
    return ""


def splits_by_itself(settings: Mapping[str, Settings | None]) -> bool:
    """True if some broker splits bundles by itself.

    This is harmless, and taken over like all it does.
    """
    return any(found is not None and found.get(SPLITTING) == _TRUE for found in settings.values())
