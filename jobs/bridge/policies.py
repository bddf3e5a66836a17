"""Pulsar's policies: read at intervals, changes sent to the balancer.

Sends them again every `_REPEAT_S`, as a command may be lost. The bridge acts only once they have
been read.
"""

import http.client
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from jobs.bridge.admin_address import PulsarAdminError
from jobs.bridge.pulsar_admin import PulsarAdmin, ask_concurrently
from lbcore.bridge.answers import Readable
from lbcore.model.names import Wire
from lbcore.wire.format import HEAD_BYTES, encode
from lbcore.wire.kinds.mirror_commands import ObservePolicies

Value = TypeVar("Value")

logger = logging.getLogger(__name__)

_REPEAT_S = 600.0
_REQUESTS_MAX = 8
_BYTES_MAX = Wire().max_message_bytes - HEAD_BYTES
_ISOLATION, _DOMAINS = "isolation policies", "failure domains"
_SINGULAR = {_ISOLATION: "isolation policy", _DOMAINS: "failure domain"}


class PolicyFollower:
    """Follower of Pulsar's policies, called by one thread.

    An unreadable policy keeps its last known value, and does not affect others. unread: what could
    not be read last → why. domains: broker → failure domain. ungrouped_namespaces: namespaces whose
    anti-affinity group was never read; their bundles must not move.
    """

    def __init__(
        self,
        admin: PulsarAdmin,
        cluster: str,
        interval_ms: int,
        send: Callable[[ObservePolicies], None],
    ) -> None:
        """cluster: its name in Pulsar. interval_ms: between two readings."""
        self._admin, self._cluster, self._send = admin, cluster, send
        self._interval_s = interval_ms / 1_000
        self._pool = ThreadPoolExecutor(_REQUESTS_MAX, thread_name_prefix="policies")
        self._known = ObservePolicies(isolation={}, anti_affinity={})
        self._sent: ObservePolicies | None = None
        self._grouped: set[str] = set()
        self._read_due_s = self._send_due_s = 0.0
        self._unknown: dict[str, str] = {"they": "have not been read yet"}
        self._has_read: set[str] = set()
        self.domains: Mapping[str, str] = {}
        self.ungrouped_namespaces: frozenset[str] = frozenset()
        self.unread: Mapping[str, PulsarAdminError] = {}

    @property
    def reason_not_to_act(self) -> str:
        """Reason not to act until all policies are known, which moves must obey; "" then."""
        if not self._unknown:
            return ""
        what, why = next(iter(self._unknown.items()))
        return f"Pulsar's policies are not known: {what} {why}"

    def close(self) -> None:
        """Send no more requests."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def follow(self, namespaces: Sequence[str]) -> None:
        """Read when due; log failures, and keep earlier values for what failed."""
        now_s = time.monotonic()
        if now_s < self._read_due_s:
            return
        self._read_due_s = now_s + self._interval_s
        failed: dict[str, PulsarAdminError] = {}
        self._unknown = {}
        isolation = self._read(
            _ISOLATION, self._admin.isolation_policies, self._known.isolation, failed
        )
        self.domains = self._read(_DOMAINS, self._admin.failure_domains, self.domains, failed)
        groups = self._groups(sorted(namespaces), failed)
        self._known = ObservePolicies(isolation=isolation, anti_affinity=groups)
        size = len(encode({"isolation": isolation, "anti_affinity": groups}))
        if size > _BYTES_MAX:
            why = f"take {size} bytes, and one message has room for {_BYTES_MAX}"
            self._unknown["they"] = why
            failed["policies"] = PulsarAdminError(f"they {why}", http.client.OK)
        if failed.keys() != self.unread.keys():
            for what, error in failed.items():
                fields = {"what": what, "why": str(error)}
                logger.warning("a policy can't be read", extra={"fields": fields})
        self.unread = failed
        if (
            size <= _BYTES_MAX
            and _ISOLATION in self._has_read
            and (self._known != self._sent or now_s >= self._send_due_s)
        ):
            self._send_due_s, self._sent = now_s + _REPEAT_S, self._known
            self._send(self._known)

    def _read(
        self,
        what: str,
        ask: Callable[[str], Readable[Value]],
        known: Mapping[str, Value],
        failed: dict[str, PulsarAdminError],
    ) -> Mapping[str, Value]:
        """Return the usable parts, and of what can't be read now the known ones."""
        try:
            found, unreadable = ask(self._cluster)
        except PulsarAdminError as error:
            failed[what] = error
            if what not in self._has_read:
                self._unknown[what] = f"can't be read: {error}"
            return known
        self._has_read.add(what)
        for name, why in unreadable.items():
            one = f"{_SINGULAR[what]} {name}"
            failed[one] = PulsarAdminError(why, http.client.OK)
            if what == _ISOLATION and name not in known:
                self._unknown[one] = f"can't be used: {why}"
        kept = {  # of policies the keys are the names, of domains the values
            key: value
            for key, value in known.items()
            if (key if what == _ISOLATION else value) in unreadable
        }
        return {**kept, **found}

    def _groups(
        self, namespaces: Sequence[str], failed: dict[str, PulsarAdminError]
    ) -> Mapping[str, str]:
        found, errors = ask_concurrently(namespaces, self._admin.anti_affinity_group, self._pool)
        failed |= {f"anti-affinity group of {name}": error for name, error in errors.items()}
        self._grouped = (self._grouped & set(namespaces)) | found.keys()
        self.ungrouped_namespaces = frozenset(errors.keys() - self._grouped)
        found |= {name: self._known.anti_affinity.get(name, "") for name in errors}
        return {name: group for name, group in sorted(found.items()) if group}
