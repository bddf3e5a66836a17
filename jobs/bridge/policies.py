"""Follows Pulsar's policies: reads them now and then, and tells the balancer what has changed.

Decides when: told again every `_TOLD_S` should a command have been lost. As long as they could not
be read once, the bridge has a reason not to act. Source: ours.
"""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from jobs.bridge.admin_address import PulsarAdminError
from jobs.bridge.pulsar_admin import PulsarAdmin
from lbcore.bridge.policies import PulsarPolicies
from lbcore.wire.kinds.mirror_commands import ObservePolicies

logger = logging.getLogger(__name__)

_TOLD_S = 600.0
_AT_ONCE = 8


class PolicyFollower:
    """Called by one thread."""

    def __init__(
        self,
        admin: PulsarAdmin,
        cluster: str,
        interval_ms: int,
        tell: Callable[[ObservePolicies], None],
    ) -> None:
        """cluster: its name in Pulsar. interval_ms: between two readings."""
        self._admin, self._cluster, self._tell = admin, cluster, tell
        self._interval_s = interval_ms / 1_000
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="policies")
        self._known: PulsarPolicies | None = None
        self._read_due_s = self._tell_due_s = 0.0
        self._why = "they have not been read yet"

    @property
    def reason_not_to_act(self) -> str:
        """Empty once they are known: without, a bundle might go to where it must not be."""
        return "" if self._known else f"Pulsar's policies are not known: {self._why}"

    @property
    def domains(self) -> dict[str, str]:
        """Broker → failure domain."""
        return dict(self._known.domains) if self._known else {}

    def close(self) -> None:
        """Ask nobody any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def follow(self, namespaces: Sequence[str]) -> None:
        """Read when it is time; failures are logged, and what was read before stands."""
        now_s = time.monotonic()
        if now_s < self._read_due_s:
            return
        self._read_due_s = now_s + self._interval_s
        try:
            found = self._read(sorted(namespaces))
        except PulsarAdminError as error:
            self._why = str(error)
            logger.warning("policies can't be read", extra={"fields": {"why": self._why}})
            return
        if found != self._known or now_s >= self._tell_due_s:
            self._tell_due_s = now_s + _TOLD_S
            self._tell(found.command())
        self._known = found

    def _read(self, namespaces: Sequence[str]) -> PulsarPolicies:
        groups = self._pool.map(self._admin.anti_affinity_group, namespaces)
        return PulsarPolicies(
            isolation=self._admin.isolation_policies(self._cluster),
            domains=self._admin.failure_domains(self._cluster),
            groups={name: group for name, group in zip(namespaces, groups, strict=True) if group},
        )
