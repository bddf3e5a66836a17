"""An admin service in this process over real tables, with a balancer that answers as told."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.kafka.command_client import CommandOutcome
from jobs.service.access import Caller, Grant
from jobs.service.access_control import ServiceCounts
from jobs.service.app import AdminApp
from jobs.service.changes import ChangeFeed
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError
from jobs.service.routes import Route
from jobs.service.views import TableViews
from lbcore.config.tree import Config
from lbcore.wire.messages import AuditEntry, Command
from tests.support.tables.lookup_tables import CLUSTER, Row, TablesWriter, owned

BROKERS = ("broker-1:8080", "broker-2:8080")


def outcome(
    command: Command, status: str = "done", reason: str = "", result: Row | None = None
) -> CommandOutcome:
    return CommandOutcome(
        command_id=command.command_id,
        kind=command.kind,
        status=status,
        reason=reason,
        result=result or {},
        at_ms=0,
    )


@dataclass(slots=True)
class Balancer:
    """Takes commands and audit entries; answers with `answer`."""

    answer: Callable[[Command], CommandOutcome | None] = outcome
    commands: list[Command] = field(default_factory=list)
    entries: list[AuditEntry] = field(default_factory=list)

    async def ask(self, command: Command, wait_ms: int | None = None) -> CommandOutcome | None:
        del wait_ms
        self.commands.append(command)
        return self.answer(command)

    def record(self, entry: AuditEntry) -> None:
        self.entries.append(entry)


class Gate:
    """Lets one caller with these grants in, or nobody."""

    def __init__(self, grants: Sequence[Grant] | None) -> None:
        self.counts = ServiceCounts()
        self._grants = grants

    def caller(self, scope: object) -> Caller:
        del scope
        if self._grants is None:
            raise HttpError(401, "Authentication required")
        return Caller(name="ada", address="10.0.0.1", grants=tuple(self._grants))


def write_tables(root: Path) -> TablesWriter:
    """Two namespaces of four bundles on two brokers, one bundle of nobody."""
    writer = TablesWriter(root)
    writer.namespaces({"acme/ns1": "crc32", "acme/ns2": "murmur3_32", "acme/free": "crc32"})
    writer.brokers(*BROKERS)
    rows = [row for name in ("acme/ns1", "acme/ns2") for row in owned(name, 4, BROKERS)]
    free = Row(bundle="acme/free/0x00000000_0xffffffff", version=1, state="Free")
    writer.batch([*rows, free])
    return writer


def make_context(root: Path, balancer: Balancer | None = None) -> AdminContext:
    follower = DeltaFollower(root, CLUSTER)
    feed = ChangeFeed(root, CLUSTER, 1_000)
    follower.on_commits(feed.add)
    follower.poll()
    views = TableViews(root, CLUSTER)
    views.refresh()
    return AdminContext(
        cluster=CLUSTER,
        follower=follower,
        views=views,
        config=Config(),
        commands=balancer,
        changes=feed,
        catch_up_ms=0,
    )


def make_app(context: AdminContext, routes: Iterable[Route], **options: Any) -> AdminApp:
    return AdminApp(context, routes, **options)
