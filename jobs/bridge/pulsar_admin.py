"""Client of a Pulsar cluster's admin interface, each broker at its own address.

Decides how long to wait, which redirects are followed (Pulsar answers 307 where another broker must
act, for PUT too; our token goes to brokers that the cluster lists, never from https to http) and
what an error says. `lbcore.bridge` interprets the answers. Safe to use from many threads. The paths
are Pulsar 4.0.8's, and the same in 4.2.4 and 5.0.0-M1.
"""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import quote, urljoin, urlsplit

from jobs.adapters.http.client import HttpAnswer, HttpRequest, connection_to, exchange
from jobs.adapters.http.tls import certificate_ends_ms, expired_message
from jobs.adapters.processes.clocks import wall_ms
from jobs.atomic_file import read_text_file
from jobs.bridge.admin_address import (
    AdminAddress,
    PulsarAdminError,
    UnverifiedBrokerError,
    redirect_leads_to_broker,
)
from jobs.console import MisuseError
from lbcore.bridge.answers import (
    MAX_BYTES,
    Claims,
    Gauges,
    Readable,
    Settings,
    TopicTable,
    Unreadable,
    is_html,
    looked_up,
    parse_boundaries,
    parse_claims,
    parse_domains,
    parse_group,
    parse_isolation,
    parse_metrics,
    parse_names,
    parse_settings,
    parse_topics,
    parse_version,
)
from lbcore.bridge.guardian import Looked
from lbcore.model.names import lookup_path
from lbcore.wire.messages import Rejected
from lbcore.wire.pulsar import (
    PulsarReport,
    broker_name,
    is_same_broker,
    parse_pulsar_report,
    runtime_addresses,
)

Value = TypeVar("Value")

_REDIRECTS_MAX = 5
_HOPS_MAX = 16
_THREADS_MAX = 32
_REDIRECTED = frozenset({301, 302, 307, 308})
_SHOWN_CHARS = 200
_GLOBAL = "global"
_UNLOAD_S = 75.0
"""Timeout of an unload or split; Pulsar itself gives an unload 60 s."""
_GIVE_ADDRESSES = (
    "give the web service of one broker as the URL, from where all brokers are reached under the"
    " names that Pulsar lists, or each broker's address: --broker-url BROKER=URL"
)
_HTML_PAGE = "with an HTML page, as gateways and login pages send it and Pulsar does not"
_NOTHING_SET: Readable[Any] = ({}, {})
_REFUSED_S = 30.0
"""Pause before the address of an unverified broker is looked for again."""


class PulsarAdmin:
    """Requests of the bridge. Each raises PulsarAdminError.

    A proxy, a Kubernetes Service or a load balancer answers 200 for every broker. So a broker is
    asked only at an address of its own, and the broker named in its answers is compared.
    """

    def __init__(self, address: AdminAddress) -> None:
        """Connects to nothing yet; raises MisuseError for an invalid address."""
        parts = urlsplit(address.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise MisuseError(
                f"{address.url} is no address of an admin interface",
                why="it must be like http://broker:8080 or https://broker:8443",
                next_step="give the address of any broker's web service",
            )
        self._address, self.url = address, address.url
        self._tls = address.tls()
        self._ends_ms: dict[str, int] = {}
        self._lock = threading.Lock()
        self._bases: dict[str, str] = {}
        self._listed: frozenset[str] = frozenset()
        self._unverified: dict[str, tuple[float, UnverifiedBrokerError]] = {}
        self._entry = address.url.rstrip("/")

    def clusters(self) -> tuple[str, ...]:
        """Return the clusters of this instance, without Pulsar's `global`."""
        found = self._ask("/admin/v2/clusters", parse_names)
        return tuple(name for name in found if name != _GLOBAL)

    def brokers(self, cluster: str) -> tuple[str, ...]:
        """The active brokers, host:port of their web services."""
        try:
            found = self._ask(f"/admin/v2/brokers/{_quoted(cluster)}", parse_names)
        except PulsarAdminError as error:
            self._require_name(cluster, error)
            raise
        if not found:
            self._require_name(cluster)
        with self._lock:
            self._listed = frozenset(found)
        return found

    def _require_name(self, cluster: str, refused: PulsarAdminError | None = None) -> None:
        """Raise PulsarAdminError if the instance no longer has a cluster of this name.

        refused: the error that led to the question; only a refusal does.
        """
        if refused is not None and not refused.is_refusal:
            return
        try:
            known = self.clusters()
        except PulsarAdminError:
            return
        if cluster not in known:
            raise PulsarAdminError(
                f"there is no cluster {cluster} any more: this instance has"
                f" {', '.join(known) or 'none'}; nothing is done until the bridge is started again"
                " with --pulsar-cluster and the name that it has now"
            ) from refused

    def tenants(self) -> tuple[str, ...]:
        """Every tenant."""
        return self._ask("/admin/v2/tenants", parse_names)

    def namespaces(self, tenant: str) -> tuple[str, ...]:
        """Return the namespaces of a tenant; () if it no longer exists."""
        return self._ask(f"/admin/v2/namespaces/{_quoted(tenant)}", parse_names, none=())

    def boundaries(self, namespace: str) -> tuple[int, ...]:
        """Return the boundaries of a namespace's bundles; () if it does not exist."""
        path = f"/admin/v2/namespaces/{quote(namespace)}/bundles"
        return self._ask(path, parse_boundaries, none=())

    def owned(self, cluster: str, broker: str) -> frozenset[str]:
        """The mirrored bundles that a broker says it owns; it is asked itself."""
        return self.claims(cluster, broker).owned

    def claims(self, cluster: str, broker: str) -> Claims:
        """Ask a broker itself which of the mirrored bundles it owns.

        Pulsar answers this path as the broker that it names, or redirects to it.
        """
        return self._ask(
            _owned_path(cluster, broker), parse_claims, base=self.web_service_url(cluster, broker)
        )

    def verify(self, cluster: str, broker: str) -> None:
        """Raise UnverifiedBrokerError when another broker answers at a broker's address.

        For answers that do not say whose they are: pages of metrics and topics.
        """
        self._own_answer(_owned_path(cluster, broker), cluster, broker)

    def may_ask_unlisted(self) -> bool:
        """Return True if a broker that Pulsar no longer lists may be asked.

        Its address may be another's by now.
        """
        return self._tls is not None or self._address.token_file is None

    def load_report(self, cluster: str, broker: str, here: str = "") -> PulsarReport:
        """Return the broker's load report. here: name of the cluster in the report.

        Raises UnverifiedBrokerError for the report of another broker.
        """
        raw = self._own_answer("/admin/v2/broker-stats/load-report", cluster, broker)
        found = parse_pulsar_report(raw, here)
        if isinstance(found, Rejected):
            raise PulsarAdminError(f"its load report can't be used: {found.detail}", http.client.OK)
        base = self.web_service_url(cluster, broker)
        is_own = is_same_broker(found.addresses, (broker, broker_name(base)))
        others = self._others(broker)
        is_at_its_name = broker in self._address.broker_urls or is_same_broker(
            (broker,), (broker_name(base),)
        )
        if not is_own and (is_at_its_name or not others):  # a listener of its own may be named
            is_own = not is_same_broker(found.addresses, others)
        if not is_own:
            raise self._other_broker(broker, base, ", ".join(sorted(found.addresses)))
        return found.with_sender(broker=broker)

    def topics(self, cluster: str, broker: str) -> bytes:
        """Return the broker's topics with their rates, as raw JSON."""
        return self._own_answer("/admin/v2/broker-stats/topics", cluster, broker)

    def topic_table(self, cluster: str, broker: str) -> TopicTable:
        """The same, as a table."""
        return _parsed("its topics can't be used", parse_topics(self.topics(cluster, broker)))

    def metrics(self, cluster: str, broker: str) -> bytes:
        """The broker's Prometheus page."""
        return self._own_answer("/metrics/", cluster, broker)

    def gauges(self, cluster: str, broker: str) -> Gauges:
        """Return values of that page; UnverifiedBrokerError if it is another broker's."""
        found = _parsed("its metrics can't be used", parse_metrics(self.metrics(cluster, broker)))
        hosts = {one.rpartition(":")[0].lower() for one in self._others(broker)}
        if found.host.lower() in hosts - {broker.rpartition(":")[0].lower()}:
            self.forget_address(broker)
            raise UnverifiedBrokerError(
                f"{broker} was asked for its metrics, and they are those of {found.host}"
            )
        return found

    def topic_internals(self, topic: str) -> bytes:
        """Return a topic's internal statistics. topic: persistent/tenant/namespace/name."""
        return self._request("GET", f"/admin/v2/{topic}/internalStats")

    def topic_entry(
        self, topic: str, ledger: int, entry: int
    ) -> tuple[Mapping[str, str], bytes] | None:
        """The headers and content of one entry; None where it is not kept any more."""
        path = f"/admin/v2/{topic}/ledger/{ledger}/entry/{entry}"
        answer = self._reply("GET", path)
        if answer.status == http.client.NOT_FOUND:
            return None
        return answer.headers, _content(f"GET {path}", answer)

    def version(self, cluster: str, broker: str) -> str:
        """The broker's version."""
        path = "/admin/v2/brokers/version"
        return _parsed(path, parse_version(self._own_answer(path, cluster, broker)))

    def settings(self, cluster: str, broker: str) -> Settings:
        """Return the broker's running configuration.

        Raises UnverifiedBrokerError for another broker's.
        """
        path = "/admin/v2/brokers/configuration/runtime"
        found = _parsed(path, parse_settings(self._own_answer(path, cluster, broker)))
        addresses = runtime_addresses(found)
        if is_same_broker(addresses, self._others(broker)) and not is_same_broker(
            addresses, (broker,)
        ):
            raise self._other_broker(
                broker, self.web_service_url(cluster, broker), ", ".join(sorted(addresses))
            )
        return found

    def isolation_policies(self, cluster: str) -> Readable[Mapping[str, Any]]:
        """Return the isolation policies by name, and the unusable ones."""
        path = f"/admin/v2/clusters/{_quoted(cluster)}/namespaceIsolationPolicies"
        return self._ask(path, parse_isolation, none=_NOTHING_SET)

    def failure_domains(self, cluster: str) -> Readable[str]:
        """Broker → its failure domain, and the domains that can't be used."""
        path = f"/admin/v2/clusters/{_quoted(cluster)}/failureDomains"
        return self._ask(path, parse_domains, none=_NOTHING_SET)

    def anti_affinity_group(self, namespace: str) -> str:
        """Return a namespace's group; "" without one, and for a deleted namespace."""
        path = f"/admin/v2/namespaces/{quote(namespace)}/antiAffinity"
        return self._ask(path, parse_group, none="")

    def dynamic_settings(self) -> Settings:
        """Return the dynamic settings of the cluster that are set."""
        return self._ask("/admin/v2/brokers/configuration/values", parse_settings)

    def forget_dynamic(self, key: str) -> None:
        """Remove a dynamic setting of the cluster."""
        self._request("DELETE", f"/admin/v2/brokers/configuration/{_quoted(key)}")

    def set_dynamic(self, key: str, value: str) -> None:
        """Change a dynamic setting of the cluster."""
        path = f"/admin/v2/brokers/configuration/{_quoted(key)}/{quote(value)}"
        self._request("POST", path)

    def unload(self, bundle: str, destination: str = "") -> None:
        """Unload a bundle; returns when Pulsar says that it has."""
        query = f"?destinationBroker={_quoted(destination)}" if destination else ""
        path = f"/admin/v2/namespaces/{quote(bundle)}/unload{query}"
        self._request("PUT", path, timeout_s=_UNLOAD_S)

    def split(self, bundle: str, positions: Sequence[int]) -> None:
        """Split a bundle at hash values, without unloading its children."""
        query = "?unload=false&splitAlgorithmName=specified_positions_divide"
        path = f"/admin/v2/namespaces/{quote(bundle)}/split{query}"
        body = json.dumps(list(positions)).encode()
        self._request("PUT", path, body=body, timeout_s=_UNLOAD_S)

    def look_up(self, topic: str) -> Looked:
        """Look a topic up as a client does, which makes its bundle owned.

        Redirects may lead to a broker twice: the second URL can tell it to answer itself.
        """
        url = self._entry + lookup_path(topic)
        hops: list[str] = []
        while url not in hops and len(hops) < _HOPS_MAX:
            hops.append(url)
            answer = self._once("GET", url)
            if answer.status not in _REDIRECTED or not answer.location:
                return looked_up(answer.status, answer.content)
            url = self._check_redirect(url, answer.location)
        return Looked(hops=tuple(urlsplit(one).netloc for one in (*hops, url)))

    def certificates(self) -> Mapping[str, int]:
        """Return the owner of each certificate → its end, ms since 1970.

        Owners: each listed broker, the address of the first request, and the bridge.
        """
        first = urlsplit(self._entry).netloc
        with self._lock:
            listed = [one for one in self._bases.items() if one[0] in self._listed]
            places = {name: urlsplit(url).netloc for name, url in listed}
            if first not in places.values():
                places[first] = first
            found = {name: self._ends_ms[at] for name, at in places.items() if at in self._ends_ms}
        own = self._address.cert_file if self._tls is not None else None
        own_ms = certificate_ends_ms(own)
        return {**found, f"the bridge ({own})": own_ms} if own_ms else found

    def forget_address(self, broker: str) -> None:
        """Drop a broker's known address; the next request looks for it again."""
        with self._lock:
            self._bases.pop(broker, None)

    def web_service_url(self, cluster: str, broker: str) -> str:
        """Return scheme, host and port at which only this broker answers."""
        with self._lock:
            known = self._bases.get(broker)
            until_s, refused = self._unverified.get(broker, (0.0, None))
        if known is not None:
            return known
        if refused is not None and time.monotonic() < until_s:
            raise refused
        base = self._address.broker_urls.get(broker, "").rstrip("/")
        if not base and broker.lower() == urlsplit(self._entry).netloc.lower():
            return self._entry
        try:
            base = base or self._own_base(cluster, broker)
            self._require_unshared(broker, base)
        except UnverifiedBrokerError as error:
            with self._lock:
                self._unverified[broker] = (time.monotonic() + _REFUSED_S, error)
            raise
        with self._lock:
            self._bases[broker] = base
        return base

    def _own_base(self, cluster: str, broker: str) -> str:
        """Return the URL that Pulsar redirects to for a broker.

        Without a redirect: the URL of the broker's name.
        """
        path = _owned_path(cluster, broker)
        entry = self._entry
        answer = self._once("GET", entry + path)
        if answer.status in _REDIRECTED and answer.location:
            target = self._check_redirect(entry + path, answer.location)
            if _origin(entry) != _origin(target):
                return _origin(target)
        else:
            _content(f"{broker} can't be found: GET {path}", answer)
        with self._lock:
            is_only = self._listed == {broker}
        return entry if is_only else self._named_base(cluster, broker, entry)

    def _named_base(self, cluster: str, broker: str, entry: str) -> str:
        """Return the URL of a broker's name, or of the address in the settings at `entry`."""
        scheme = urlsplit(entry).scheme
        failures = []
        for base in chain([f"{scheme}://{broker}"], self._advertised_base(broker, entry)):
            if broker_name(base).lower() == urlsplit(entry).netloc.lower():
                return entry
            url = base + _owned_path(cluster, broker)
            try:
                answer = self._once("GET", url)
                if answer.status in _REDIRECTED and answer.location:
                    return _origin(self._check_redirect(url, answer.location))
                if answer.status == http.client.OK and not is_html(answer.kind, answer.content):
                    return base
                failures.append(f"{base}: HTTP {answer.status}")
            except PulsarAdminError as error:
                failures.append(str(error))
        raise UnverifiedBrokerError(
            f"it is not known who answers for {broker} at {entry}: it answers for every broker, as"
            " a Pulsar proxy, a Kubernetes Service or a load balancer does, and the broker can't be"
            f" reached under its own name ({failures[0]}); {_GIVE_ADDRESSES}"
        )

    def _advertised_base(self, broker: str, entry: str) -> Iterable[str]:
        """Yield a broker's advertised address, if the broker itself answers at `entry`."""
        try:
            raw = self._request("GET", "/admin/v2/brokers/configuration/runtime", base=entry)
        except PulsarAdminError:
            return
        found = parse_settings(raw)
        host = urlsplit(entry).hostname or ""  # of a broker that is configured without an address
        addresses = {} if isinstance(found, Unreadable) else runtime_addresses(found, host)
        if is_same_broker(addresses, (broker,)):
            scheme = urlsplit(entry).scheme
            yield from (f"{scheme}://{name}" for name, one in addresses.items() if one == scheme)

    def _require_unshared(self, broker: str, base: str) -> None:
        """Raise UnverifiedBrokerError if another listed broker has the same address."""
        with self._lock:
            others = {one for one, url in self._bases.items() if url == base and one != broker}
            others &= self._listed
            for one in others:
                del self._bases[one]
        name = broker_name(base)
        others |= {one for one in self._others(broker) if one.lower() == name.lower()}
        if not others or broker in self._address.broker_urls:
            return
        shared = UnverifiedBrokerError(
            f"{broker} and {', '.join(sorted(others))} have the same address {base}: it is not"
            f" known who answers there; {_GIVE_ADDRESSES}"
        )
        with self._lock:
            for one in others - {name}:
                self._unverified[one] = (time.monotonic() + _REFUSED_S, shared)
        raise shared

    def _others(self, broker: str) -> frozenset[str]:
        with self._lock:
            return self._listed - {broker}

    def _other_broker(self, broker: str, base: str, who: str) -> UnverifiedBrokerError:
        """Return the error for another broker's answer; drop the known address."""
        self.forget_address(broker)
        return UnverifiedBrokerError(
            f"{broker} was asked at {base}, and {who} answered: nothing of it is taken for"
            f" {broker}'s; {_GIVE_ADDRESSES}"
        )

    def _own_answer(self, path: str, cluster: str, broker: str) -> bytes:
        """Return a broker's own answer; raise if it redirects to another broker."""
        base = self.web_service_url(cluster, broker)
        answer = self._once("GET", base + path)
        if answer.status in _REDIRECTED and answer.location:
            target = _origin(urljoin(base + path, answer.location))
            raise self._other_broker(broker, base, f"a redirect to {target}")
        return _content(f"GET {path}", answer)

    def _check_redirect(self, url: str, location: str) -> str:
        """Return the target of a redirect of `url`.

        Raises PulsarAdminError for a target that must not get our token. A target that Pulsar did
        not list a moment ago is looked for once among the brokers of every cluster, as the broker
        at the entry lists them.
        """
        target = urljoin(url, location)
        if _origin(url) == _origin(target):
            return target
        with self._lock:
            listed = self._listed
        if not redirect_leads_to_broker(url, target, listed):
            listed = frozenset(
                broker
                for cluster in self._listed_names("/admin/v2/clusters")
                if cluster != _GLOBAL
                for broker in self._listed_names(f"/admin/v2/brokers/{_quoted(cluster)}")
            )
            with self._lock:
                self._listed = listed
        if not redirect_leads_to_broker(url, target, listed):
            raise PulsarAdminError(
                f"redirected to {location[:_SHOWN_CHARS]!r}, which is no broker that the cluster "
                f"lists, or less protected than {urlsplit(url).scheme}: not followed, for it would "
                "get the token"
            )
        return target

    def _listed_names(self, path: str) -> tuple[str, ...]:
        """Return the names of a list that is answered without a redirect; else ()."""
        answer = self._once("GET", self._entry + path)
        names = parse_names(answer.content) if answer.status == http.client.OK else ()
        return () if isinstance(names, Unreadable) else names

    def _ask(
        self,
        path: str,
        parse: Callable[[bytes], Value | Unreadable],
        *,
        base: str = "",
        none: Value | None = None,
    ) -> Value:
        """Ask one broker.

        none: returned if Pulsar itself answers 404: it is gone, or was never set.
        """
        try:
            return _parsed(path, parse(self._request("GET", path, base=base)))
        except PulsarAdminError as error:
            if none is None or error.status != http.client.NOT_FOUND or error.is_page:
                raise
            return none

    def _request(
        self,
        method: str,
        path: str,
        *,
        base: str = "",
        body: bytes = b"",
        timeout_s: float | None = None,
    ) -> bytes:
        """Return the content of a successful answer."""
        reply = self._reply(method, path, base=base, body=body, timeout_s=timeout_s)
        return _content(f"{method} {path}", reply)

    def _reply(
        self,
        method: str,
        path: str,
        *,
        base: str = "",
        body: bytes = b"",
        timeout_s: float | None = None,
    ) -> HttpAnswer:
        """Return the answer after redirects, whatever its status. base: "" = the entry's."""
        url = (base or self._entry).rstrip("/") + path
        for _ in range(_REDIRECTS_MAX):
            answer = self._once(method, url, body, timeout_s)
            if answer.status not in _REDIRECTED or not answer.location:
                return answer
            url = self._check_redirect(url, answer.location)
        raise PulsarAdminError(f"{method} {path}: redirected more than {_REDIRECTS_MAX} times")

    def _once(
        self, method: str, url: str, body: bytes = b"", timeout_s: float | None = None
    ) -> HttpAnswer:
        """Send one request; redirects are not followed."""
        parts = urlsplit(url)
        asked = HttpRequest(
            method=method,
            target=f"{parts.path}?{parts.query}" if parts.query else parts.path,
            body=body,
            headers=self._headers(),
        )
        try:
            context = None if self._tls is None else self._tls.value
            connection = connection_to(url, timeout_s or self._address.timeout_s, context)
            answer = exchange(connection, asked, MAX_BYTES)
            urljoin(url, answer.location)  # raises ValueError for what is no address
        except (OSError, http.client.HTTPException, ValueError) as error:
            with self._lock:  # enter at another broker next time
                others = sorted({self._address.url, *self._bases.values()} - {_origin(url)})
                if self._entry == _origin(url) and others:
                    self._entry = others[0].rstrip("/")
            why = str(error) or type(error).__name__
            if parts.scheme == "https":
                expired = expired_message(self._address.cert_file, wall_ms())
                why = f"{why} ({expired})" if expired else why
            raise PulsarAdminError(f"{method} {parts.netloc}{parts.path}: {why}") from None
        if answer.certificate_ends_ms:
            with self._lock:
                self._ends_ms[parts.netloc] = answer.certificate_ends_ms
        return answer

    def _headers(self) -> Mapping[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._address.token_file is not None:
            try:
                token = read_text_file(self._address.token_file).strip()
            except (OSError, ValueError) as error:
                raise PulsarAdminError(f"the token can't be read: {error}") from None
            headers["Authorization"] = f"Bearer {token}"
        return headers


def ask_each(
    names: Iterable[str], ask: Callable[[str], Value]
) -> tuple[dict[str, Value], dict[str, PulsarAdminError]]:
    """Return name → answer, and name → error of those that failed."""
    found: dict[str, Value] = {}
    failed: dict[str, PulsarAdminError] = {}
    for name in names:
        try:
            found[name] = ask(name)
        except PulsarAdminError as error:  # noqa: PERF203 one that fails hides no other
            failed[name] = error
    return found, failed


def ask_concurrently(
    names: Iterable[str], ask: Callable[[str], Value], pool: ThreadPoolExecutor | None = None
) -> tuple[dict[str, Value], dict[str, PulsarAdminError]]:
    """Ask as `ask_each`, many at a time, as a silent one takes its whole timeout.

    pool: whose threads ask, None = some that end with the last answer.
    """
    with nullcontext(pool) if pool else ThreadPoolExecutor(_THREADS_MAX) as threads:
        asked = {name: threads.submit(ask, name) for name in names}
        return ask_each(asked, lambda name: asked[name].result())


def _quoted(text: str) -> str:
    """Return the text as one part of a URL's path."""
    return quote(text, safe="")


def _owned_path(cluster: str, broker: str) -> str:
    return f"/admin/v2/brokers/{_quoted(cluster)}/{_quoted(broker)}/ownedNamespaces"


def _origin(url: str) -> str:
    """The scheme, host and port of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _content(request: str, answer: HttpAnswer) -> bytes:
    """Return the content of a successful answer; raises PulsarAdminError for others."""
    is_page = is_html(answer.kind, answer.content)
    if http.client.OK <= answer.status < http.client.MULTIPLE_CHOICES and not is_page:
        return answer.content
    reason = _HTML_PAGE if is_page else _reason(answer.content)
    raise PulsarAdminError(
        f"{request}: HTTP {answer.status} {reason}", answer.status, is_page=is_page
    )


def _parsed(path: str, found: Value | Unreadable) -> Value:
    """Return the parsed answer; raises PulsarAdminError if it can't be read."""
    if isinstance(found, Unreadable):
        raise PulsarAdminError(f"{path}: {found.detail}", http.client.OK)
    return found


def _reason(content: bytes) -> str:
    """Return the reason in Pulsar's refusal, or the start of its content."""
    try:
        return str(json.loads(content)["reason"]).strip()[:_SHOWN_CHARS]
    except (ValueError, KeyError, TypeError, RecursionError):
        return content[:_SHOWN_CHARS].decode("utf-8", "replace")
