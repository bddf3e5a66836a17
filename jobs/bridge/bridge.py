"""The bridge: one process between a Pulsar cluster and Kafka.

Decides the order of one round: look, compare, judge, report; the actuator works between rounds. It
acts only if started with --act, and while Pulsar's own shedding is off. It has no Spark and no
state: after a start it reads all that it needs from Kafka's `ownership` and from Pulsar.
"""

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from kafka.errors import KafkaError

from jobs.adapters.kafka.clients import (
    Delivery,
    KafkaAddress,
    NotDelivered,
    OnDelivery,
    Sender,
    Tail,
)
from jobs.adapters.kafka.command_client import new_command
from jobs.adapters.kafka.connection import KafkaWatch
from jobs.adapters.kafka.ownership_feed import OwnershipFeed
from jobs.adapters.processes.clocks import ForwardClock
from jobs.bridge.actuator import Actuator, RequestLimits
from jobs.bridge.admin_address import PulsarAdminError, UnverifiedBrokerError
from jobs.bridge.collector import Collector, PolicyFollower, PollOptions, TooSoonError
from jobs.bridge.pulsar_admin import PulsarAdmin, ask_concurrently
from jobs.console import CommandError
from jobs.telemetry.bridge_metrics import DELIVERED, FAILED, NOT_DELIVERED
from lbcore.bridge.acting import SHEDDING, reason_not_to_act, splits_by_itself
from lbcore.bridge.answers import Settings
from lbcore.bridge.guardian import (
    Finding,
    GuardianTimeouts,
    GuardState,
    Judged,
    Looked,
    ProbeRound,
    Trouble,
    judge,
)
from lbcore.bridge.mirror import Difference, Look, commands_of, compare, written_finding
from lbcore.config.tree import Config
from lbcore.ownership.records import OwnershipRecord
from lbcore.ownership.states import IN_FLIGHT
from lbcore.wire.arguments import CommandArguments
from lbcore.wire.format import format_message
from lbcore.wire.kinds.balancing_commands import SetConfig
from lbcore.wire.messages import Message, Topic

_LOOKUPS_MAX = 8
_LOOKED_UP = (Trouble.UNSERVED, Trouble.CIRCLING, Trouble.DOUBLED)


class GuardianProbe:
    """The guardian's rounds and lookups; used by one thread, once per look."""

    def __init__(self, collector: Collector, timeouts: GuardianTimeouts | None = None) -> None:
        self._timeouts = timeouts or GuardianTimeouts()
        self._collector = collector
        self._clock = ForwardClock()
        self._state = GuardState()
        self._pool = ThreadPoolExecutor(_LOOKUPS_MAX, thread_name_prefix="lookup")
        self._pending: dict[str, Future[Looked]] = {}
        self._lookups: dict[str, Looked] = {}
        self._turn = ""

    def close(self) -> None:
        """Start no more lookups."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def watch(
        self,
        look: Look,
        records: Mapping[str, OwnershipRecord],
        unread: Mapping[str, str] | None = None,
        *,
        acts: bool,
    ) -> Judged:
        """Return the findings of this look and of the lookups answered since the last.

        unread: what could not be read of the cluster → why. Bundles with clients at the last look
        are looked up, a few at a time.
        """
        used_bundles = self._collector.used_bundles()
        # take the answers that have come, and drop those of bundles no longer looked up
        done = {name: one for name, one in self._pending.items() if one.done()}
        self._pending = {name: one for name, one in self._pending.items() if name not in done}
        waited_for = {name: self._lookups[name] for name in self._pending if name in self._lookups}
        self._lookups = {**waited_for, **{name: one.result() for name, one in done.items()}}
        seen = ProbeRound(
            listed=frozenset(look.owned),
            owned={**self._collector.unlisted(), **look.owned},
            closing=self._collector.closing,
            moving={
                name: f"{record.state.value}, version {record.version_id}"
                for name, record in records.items()
                if record.state in IN_FLIGHT
            },
            used_bundles=used_bundles,
            lookups=self._lookups,
            partitions=self._collector.partitions(),
            certificates=self._collector.certificates(),
            unread=unread or {},
            unreported={
                broker: "; ".join(found.values())
                for broker, found in self._collector.unreported().items()
            },
        )
        judged = judge(self._state, seen, self._clock.now_ms(), self._timeouts, acts=acts)
        self._state = judged.state
        lasting = self._state.lasting.values()
        in_doubt = [one.subject for one in lasting if one.trouble in _LOOKED_UP]
        next_ones = self._in_turn(sorted(used_bundles))
        for bundle in dict.fromkeys((*in_doubt[:_LOOKUPS_MAX], *next_ones)):
            if bundle not in self._pending:
                self._pending[bundle] = self._pool.submit(self._looked, bundle)
        return judged

    def _in_turn(self, bundles: list[str]) -> Iterable[str]:
        """Return some bundles, in the next call those that follow them."""
        after = [name for name in bundles if name > self._turn]
        chosen = (after + bundles)[: min(_LOOKUPS_MAX, len(bundles))]
        self._turn = chosen[-1] if chosen else ""
        return chosen

    def _looked(self, bundle: str) -> Looked:
        try:
            return self._collector.look_up(bundle)
        except PulsarAdminError as error:
            return Looked(refused=str(error))


logger = logging.getLogger(__name__)

OBSERVE_ONLY = "cluster.observe_only"
OBSERVING = "the bridge only observes: it was started without --act"
_POLL_MS = 200
_IDLE_S = 0.5
_TICK_S = 0.5
_REPEAT_S = 30.0
_ALIVE_S = 60.0
_SHEDDING_CHECK_S = 15.0
_COMMAND_MS = 60_000
_ENDS_MS = 5_000
_FINAL_FLUSH_MS = 5_000
_TRIED_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeOptions:
    """Options of the bridge.

    cluster: its name here; pulsar_cluster: its name in Pulsar.
    """

    cluster: str
    pulsar_cluster: str
    acts: bool = False
    polling: PollOptions = field(default_factory=PollOptions)
    limits: RequestLimits = field(default_factory=RequestLimits)


class Bridge:
    """The rounds of the bridge.

    Raises CommandError when it is made and Pulsar or Kafka is missing.
    """

    def __init__(
        self, admin: PulsarAdmin, address: KafkaAddress, config: Config, options: BridgeOptions
    ) -> None:
        self._admin, self._options = admin, options
        self._cluster = options.cluster
        self._sender = Sender(address, f"bridge-{self._cluster}")
        self._tail = Tail(address, Topic.OWNERSHIP, f"bridge-{self._cluster}")
        self._kafka = KafkaWatch(address, f"bridge of {self._cluster}")
        self._feed = OwnershipFeed(self._cluster, recipients=())  # only its `records` are used
        names = (self._cluster, options.pulsar_cluster)
        self._collector = Collector(admin, names, config, options.polling, self._send)
        self.metrics = self._collector.metrics
        limits = replace(options.limits, old_ms=config.ownership.in_flight_timeout_ms)
        self._actuator = Actuator(admin, self._collector, self._cluster, limits, self._send)
        self._policies = PolicyFollower(
            admin, options.pulsar_cluster, options.polling.namespaces_ms, self._command
        )
        self._probe = GuardianProbe(self._collector)
        self._look_in_s = 0.0
        self._logged_findings: dict[tuple[str, str], str] = {}
        self._before: Look | None = None
        self._unread_settings: Mapping[str, PulsarAdminError] = {}
        self._last_sent: tuple[Difference, float] = (Difference(), 0.0)
        self._brokers: tuple[str, ...] = ()
        self._alive_s = self._shedding_checked_s = -_ALIVE_S
        self._observes: bool | None = None
        self._is_mode_lost = False
        self._end = threading.Event()

    def stop(self) -> None:
        """End after the present round. From any thread, but in no signal handler."""
        self._end.set()

    def run(self) -> None:
        """Run rounds until `stop`; log failures of Pulsar and Kafka, and try again."""
        reader = threading.Thread(target=self._read, daemon=True, name="ownership")
        reader.start()
        self._kafka.start()
        ends = None  # comparisons need all present records
        while not self._end.is_set() and ends is None:
            ends = self._tail.ends(_ENDS_MS)
        while not self._end.is_set() and ends and not self._tail.has_read(ends):
            self._end.wait(_POLL_MS / 1_000)
        looked_s = -self._look_in_s
        while not self._end.is_set():
            self._actuator.consider(dict(self._feed.records), self._version)
            if time.monotonic() - looked_s >= self._look_in_s:
                looked_s = time.monotonic()
                self._look_in_s = self._options.polling.look_ms / 1_000
                self._round()
            self._end.wait(_TICK_S)
        if self._observes is False:  # no bridge is left to carry decisions out
            self._set_mode(observes=True)
        self._actuator.close()
        self._collector.close()
        self._policies.close()
        self._probe.close()
        reader.join(_FINAL_FLUSH_MS / 1_000)
        self._kafka.close()
        self._sender.close(_FINAL_FLUSH_MS)
        self._tail.close()

    def _round(self) -> None:
        busy = self._actuator.busy()
        try:
            look = self._collector.look()
        except TooSoonError as error:
            self._before = None
            logger.info("not asked", extra={"fields": {"why": str(error)}})
            return
        except PulsarAdminError as error:
            self._before = None  # the last look is too old to compare with
            self.metrics.add("ballast_bridge_polls_total", FAILED)
            logger.warning("Pulsar can't be asked", extra={"fields": {"why": str(error)}})
            return
        self.metrics.show_look(look)
        self._policies.follow(tuple(look.namespaces))
        self._collector.domains = self._policies.domains
        self._check_shedding(look)
        # work that began or ended meanwhile makes the look older than the records
        busy |= self._actuator.busy()
        found = compare(dict(self._feed.records), self._before, look, self._brokers, busy)
        difference = replace(found, findings=self._judge_look(look))
        self._send_difference(difference)
        self._before = look
        self._log(look, difference)

    def _judge_look(self, look: Look) -> tuple[Finding, ...]:
        """Return the findings, and ask for the repairs that are possible.

        A suspicion makes the next look earlier.
        """
        acts = not self._actuator.forbidden
        unread = {**self._collector.unread(), **self._policies.unread, **self._unread_settings}
        self.metrics.show_unread([error.label for error in unread.values()])
        records = dict(self._feed.records)
        reasons = {what: str(error) for what, error in unread.items()}
        judged = self._probe.watch(look, records, reasons, acts=acts)
        unknown = self._policies.ungrouped_namespaces
        unmovable = {one for one in records if unknown and one.rpartition("/")[0] in unknown}
        self._actuator.quarantined = judged.quarantined | unmovable
        for finding in judged.repairs:
            self._actuator.repair(finding)
        if judged.look_in_ms is not None:
            self._look_in_s = min(self._look_in_s, max(_TICK_S, judged.look_in_ms / 1_000))
        self.metrics.show_findings(judged.findings)
        found = {(one.trouble.value, one.subject): one.stage.value for one in judged.findings}
        if found != self._logged_findings:
            for one in judged.findings:
                logger.warning("found", extra={"fields": written_finding(one)})
            self._logged_findings = found
        return judged.findings

    def _send_difference(self, difference: Difference) -> None:
        """Send differences, repeated at intervals, and a sign of life every minute."""
        now_s = time.monotonic()
        is_alive_due = now_s - self._alive_s >= _ALIVE_S and self._before is not None
        sent, sent_s = self._last_sent
        is_wrong = bool(difference.count or difference.brokers or difference.findings)
        is_news = difference.findings != sent.findings or (
            is_wrong and (difference != sent or now_s - sent_s >= _REPEAT_S)
        )
        if not is_news and not is_alive_due:
            return
        if is_alive_due and not difference.brokers:
            difference = replace(difference, brokers=self._brokers)
        for command in commands_of(difference):
            self._command(command)
        self._last_sent, self._alive_s = (difference, now_s), now_s
        self._brokers = difference.brokers or self._brokers

    def _check_shedding(self, look: Look) -> None:
        """Check every 15 s whether Pulsar's own shedding is off, and act only then."""
        if time.monotonic() - self._shedding_checked_s < _SHEDDING_CHECK_S:
            return
        self._shedding_checked_s = time.monotonic()
        forbidden = "" if self._options.acts else OBSERVING
        if not forbidden:
            names = (self._collector.pulsar_cluster, tuple(look.owned))
            found, self._unread_settings = brokers_settings(self._admin, *names)
            forbidden = reason_not_to_act(found) or self._policies.reason_not_to_act
            if splits_by_itself(found):
                logger.info("Pulsar splits bundles by itself; what it does is taken over")
        if forbidden != self._actuator.forbidden:
            logger.info(
                "acting" if not forbidden else "observing", extra={"fields": {"why": forbidden}}
            )
        self._actuator.forbidden = forbidden
        self.metrics.set("ballast_bridge_acting", not forbidden)
        if self._observes is not bool(forbidden) or self._is_mode_lost:
            self._observes = bool(forbidden)
            self._set_mode(observes=self._observes)
            self._alive_s = -_ALIVE_S  # the next look reports the new mode

    def _set_mode(self, *, observes: bool) -> None:
        """Set whether the job only observes; sent again if Kafka does not take it.

        The command never expires: a job that is back after hours must not keep its old mode.
        """

        def note(delivery: Delivery) -> None:
            self._is_mode_lost = isinstance(delivery, NotDelivered)

        self._is_mode_lost = False
        self._command(SetConfig(values={OBSERVE_ONLY: observes}), timeout_ms=0, note=note)

    def _command(
        self,
        arguments: CommandArguments,
        timeout_ms: int = _COMMAND_MS,
        note: OnDelivery = lambda _: None,
    ) -> None:
        command = new_command(
            self._cluster, arguments, principal="pulsar-bridge", timeout_ms=timeout_ms
        )
        self._send(command, note)

    def _send(self, message: Message, note: OnDelivery = lambda _: None) -> None:
        topic, key, value = format_message(message)
        self._sender.send(topic, key.decode(), value, on_delivery=note)

    def _read(self) -> None:
        while not self._end.is_set():
            try:
                self._feed.take(self._tail.poll(_POLL_MS))
            except KafkaError as error:  # noqa: PERF203 it may come back
                logger.warning("ownership can't be read now", extra={"fields": {"why": str(error)}})
                self._end.wait(_IDLE_S)

    def _version(self, bundle: str) -> int:
        record = self._feed.records.get(bundle)
        return 0 if record is None else record.version_id

    def _log(self, look: Look, difference: Difference) -> None:
        metrics, messages = self.metrics, "ballast_bridge_messages_total"
        metrics.set("ballast_bridge_differences", difference.count)
        metrics.set("ballast_bridge_pending_actions", len(self._actuator.busy()))
        metrics.set(messages, self._sender.delivered, DELIVERED)
        metrics.set(messages, self._sender.not_delivered, NOT_DELIVERED)
        fields = {
            "brokers": len(look.owned),
            "silent": sorted(name for name, owned in look.owned.items() if owned is None),
            "bundles": sum(len(owned or ()) for owned in look.owned.values()),
            "namespaces": len(look.namespaces),
            "unread": len(self._collector.unread()) + len(self._policies.unread),
            "differences": difference.count,
            "working": len(self._actuator.busy()),
            "forbidden": self._actuator.forbidden,
            "delivered": self._sender.delivered,
            "not_delivered": self._sender.not_delivered,
        }
        logger.info("round", extra={"fields": fields})


_CERTIFICATE_ALERTS = (
    "ALERT_CERTIFICATE_REQUIRED",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_UNKNOWN_CA",
    "ALERT_HANDSHAKE_FAILURE",
)
"""OpenSSL's names for the peer's refusal of our certificate, or of having none.

If the connection closes before the alert is read, only its end is seen."""


def access_error(url: str, error: PulsarAdminError) -> CommandError:
    """Return the error of a cluster that can't be asked, with the next step."""
    if error.status in (401, 403):
        what = f"{url} does not let us in"
        next_step = "give a super user's token with --auth-token-file, or --tls-cert and --tls-key"
    elif any(alert in str(error) for alert in _CERTIFICATE_ALERTS):
        what = f"{url} asks for a certificate that it knows"
        next_step = "give ours with --tls-cert and --tls-key"
    elif ("CERTIFICATE" in str(error) or "SSL" in str(error)) and "EOF" not in str(error):
        what = f"no protected connection to {url}"
        next_step = "name the authority that signed its certificate with --tls-ca, and the host as "
        next_step += "the certificate has it; http:// where it does not speak TLS"
    elif error.status or "answer" in str(error):
        what = f"{url} does not answer as Pulsar's admin interface does"
        next_step = "name the web service of a broker (usually port 8080, or 8443 with TLS)"
    else:
        what = f"{url} can't be reached"
        next_step = "check host and port; --timeout-s gives a slow one more time"
        if url.startswith("https:"):
            next_step += "; where brokers ask for a certificate, give --tls-cert and --tls-key"
    return CommandError(what, why=str(error), next_step=next_step)


def only_cluster(admin: PulsarAdmin, named: str = "") -> str:
    """Return the named cluster; the only one of the instance for "".

    Raises CommandError if there is no such cluster, or several or none for "", or Pulsar can't be
    asked.
    """
    try:
        found = admin.clusters()
    except PulsarAdminError as error:
        raise access_error(admin.url, error) from None
    if named in found:
        return named
    if named or len(found) != 1:
        raise CommandError(
            f"it is not known which cluster of {admin.url} is meant",
            why=f"there are {', '.join(found) or 'none'}",
            next_step="name one of them with --pulsar-cluster",
        )
    return found[0]


def active_brokers(admin: PulsarAdmin, cluster: str) -> tuple[str, ...]:
    """Return the active brokers; CommandError if none, or the address mixes them up."""
    try:
        brokers = admin.brokers(cluster)
    except PulsarAdminError as error:
        raise access_error(admin.url, error) from None
    if not brokers:
        raise CommandError(
            f"the cluster {cluster} has no active broker",
            why="its list of active brokers is empty",
            next_step="start a broker, or name another cluster with --pulsar-cluster",
        )
    require_brokers_apart(admin, cluster, brokers)
    return brokers


def brokers_settings(
    admin: PulsarAdmin, cluster: str, brokers: tuple[str, ...]
) -> tuple[dict[str, Settings | None], dict[str, PulsarAdminError]]:
    """Return broker → its running settings (None = unread), and what failed → why."""
    found, errors = ask_concurrently(brokers, lambda broker: admin.settings(cluster, broker))
    failed = {f"settings of {broker}": error for broker, error in errors.items()}
    return {broker: found.get(broker) for broker in brokers}, failed


def require_brokers_apart(admin: PulsarAdmin, cluster: str, brokers: Sequence[str]) -> None:
    """Raise CommandError if brokers can't be distinguished at the given address."""
    refused = None
    for broker in brokers[:_TRIED_MAX]:
        try:
            admin.web_service_url(cluster, broker)
        except UnverifiedBrokerError as error:  # noqa: PERF203 another one may answer
            refused = error
        except PulsarAdminError:
            return  # it is away, and may return
        else:
            return
    if refused is not None:
        why, _, next_step = str(refused).rpartition("; ")
        raise CommandError(
            "brokers can't be told from each other at this address", why=why, next_step=next_step
        )


def switch_shedding(admin: PulsarAdmin, *, is_on: bool) -> None:
    """Switch the cluster's own shedding; CommandError when Pulsar refuses."""
    try:
        admin.set_dynamic(SHEDDING, "true" if is_on else "false")
    except PulsarAdminError as error:
        raise CommandError(
            f"{SHEDDING} could not be switched {'on' if is_on else 'off'}",
            why=str(error),
            next_step="the role must be a super user's; `pulsar-admin brokers"
            f" update-dynamic-config --config {SHEDDING} --value ...` does the same",
        ) from None
