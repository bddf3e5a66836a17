"""Commands about namespaces.

Decides whether each is possible now. Part of `commands`. Source: ours; names follow Pulsar's
admin interface.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lbcore.machines.book import NamespaceEntry, namespace_row
from lbcore.machines.outcome import DONE, Outcome, refuse
from lbcore.machines.work import Work
from lbcore.model.bundles import NamespaceBundles, even_boundaries
from lbcore.model.tables import NAMESPACES
from lbcore.ownership.changes import Refused
from lbcore.ownership.protocol import create
from lbcore.ownership.records import Cause
from lbcore.wire import commands as asked
from lbcore.wire.messages import Command


def _create_namespace(work: Work, command: Command, arguments: asked.CreateNamespace) -> Outcome:
    name = arguments.namespace
    known = work.namespaces.get(name)
    if known is not None and not known.is_deleted:
        return refuse(f"namespace {name} exists already; delete it first, or choose another name")
    floor = known.highest_version if known else 0
    entry = NamespaceEntry(hash=arguments.hash.value, highest_version=floor)
    work.namespaces[name] = entry
    work.add_row(NAMESPACES.name, namespace_row(name, entry))
    origin = work.origin(Cause.CREATE, command_id=command.command_id)
    boundaries = arguments.boundaries or even_boundaries(arguments.bundles)
    bundles = NamespaceBundles(namespace=name, boundaries=boundaries)
    work.ledger.add(bundles.names())
    for bundle in bundles.names():
        previous = work.ledger.record(bundle)
        made = create(work.cluster, bundle, origin, previous=previous, version_floor=floor)
        if isinstance(made, Refused):
            return refuse(f"bundle {bundle} can't be created: {made.reason.value}")
        work.apply(made)
    return Outcome(status=DONE, result={"bundles": len(bundles)})


NAMESPACE_HANDLERS: Mapping[str, Callable[[Work, Command, Any], Outcome]] = {
    "create_namespace": _create_namespace,
}
