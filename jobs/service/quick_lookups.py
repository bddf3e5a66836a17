"""Lookups of a topic that has an owner, answered in one step, as bytes.

Decides nothing that `lookup_http` does not: host, caller and right are judged with each request,
the same is counted, and the answer has the same bytes; what is not simply found goes the long way.
Called by `jobs.adapters.http.quick`. Source: ours; Pulsar 4.0.8 for the answers.
"""

from collections.abc import Mapping
from time import perf_counter

from jobs.adapters.http.quick import header_lines
from jobs.adapters.processes.clocks import boot_ms, wall_ms
from jobs.service.exchange import JSON, HttpError
from jobs.service.lookup_http import FOUND, LISTENER_HEADER, LookupApp
from jobs.service.lookup_replies import ages, broker_stamp, refusal
from jobs.service.streams import Message
from lbcore.route.addresses import BrokerAddress
from lbcore.route.bundles import BundleRoute

_BEGIN = header_lines([JSON]) + (
    b"x-ballast-table-version: %d\r\nx-ballast-age-ms: %d\r\nx-ballast-writer-silent-ms: %d\r\n"
    b"x-ballast-bundle: %b/0x%08x_0x%08x\r\nx-ballast-version-id: %d\r\n"
)
"""As `lookup_replies.stamps` has them."""


class QuickLookups:
    """Answers over what a lookup application answers from."""

    def __init__(self, app: LookupApp) -> None:
        self._app = app
        self._brokers: Mapping[str, BrokerAddress] = {}
        self._ends: dict[str, bytes] = {}

    def admits(self, scope: Message) -> bool:
        """Whether nothing in the headers changes the answer."""
        return all(name != LISTENER_HEADER for name, _ in scope["headers"])

    def answer(
        self, scope: Message, domain: bytes, namespace: bytes, local: bytes
    ) -> tuple[int, bytes] | None:
        """The answer, None when the long way must decide; see `jobs.adapters.http.quick`."""
        started_s = perf_counter()
        app = self._app
        view = app.follower.view
        if view is None or app.is_stopping:
            return None
        snapshot, prefix = view.snapshot, b"%b://%b" % (domain, namespace)
        route = snapshot.find(prefix.decode(), b"%b/%b" % (prefix, local))
        end = None if route is None else self._end(snapshot.brokers, route)
        if route is None or end is None:
            return None
        refused = self._refused(scope, namespace, started_s)
        if refused is not None:
            return refused
        begin = _BEGIN % (
            snapshot.position.table_version,
            view.age_ms(boot_ms()),
            view.writer_silent_ms(wall_ms()),
            namespace,
            route.lower,
            route.upper,
            route.version_id,
        )
        app.metrics.count(FOUND, perf_counter() - started_s, route.state.value)
        return 200, begin + end

    def _end(self, brokers: Mapping[str, BrokerAddress], route: BundleRoute) -> bytes | None:
        """What is the same for all bundles of a broker, made once; None when nobody is known."""
        if brokers is not self._brokers:
            self._brokers, self._ends = brokers, {}
        known = self._ends.get(route.broker)
        if known is not None or route.broker not in brokers:
            return known
        body = brokers[route.broker].body
        headers = (broker_stamp(route), (b"content-length", b"%d" % len(body)))
        made = self._ends[route.broker] = header_lines(headers) + b"\r\n" + body
        return made

    def _refused(
        self, scope: Message, namespace: bytes, started_s: float
    ) -> tuple[int, bytes] | None:
        """The refusal of who may not ask, as the long way has it, None when it is allowed."""
        hooks, view = self._app.hooks, self._app.follower.view
        is_host_known = False
        try:
            if hooks.hosts is not None:
                hooks.hosts.check_host(scope)
            is_host_known = True
            if hooks.guard is not None:
                hooks.guard.check_lookup(scope, namespace.partition(b"/")[0].decode())
        except HttpError as error:
            reply = refusal(error)
            headers = reply.headers
            if is_host_known:
                self._app.metrics.count(reply.result, perf_counter() - started_s)
                headers = headers if view is None else (*headers, *ages(view))
            length = (b"content-length", b"%d" % len(reply.body))
            return reply.status, header_lines((*headers, length)) + b"\r\n" + reply.body
        return None
