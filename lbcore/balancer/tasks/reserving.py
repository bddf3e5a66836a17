"""Reserving: rows of the ledger for all namespaces that one batch creates, made at once.

Decides nothing: whether a namespace is created is its handler's to say, and a row that got no
record is taken back. A row added alone costs as much as adding all of a batch's. Part of
`balancer`. Source: ours.
"""

from collections.abc import Sequence

import numpy as np

from lbcore.balancer.state.work import Work
from lbcore.model.bundles import InvalidRangeError, NamespaceBundles, even_boundaries
from lbcore.model.names import FULL_LOWER, FULL_UPPER, format_bundle
from lbcore.wire.commands import parse_arguments
from lbcore.wire.kinds.namespace_commands import CreateNamespace
from lbcore.wire.messages import Command


def reserve_bundles(work: Work, commands: Sequence[Command]) -> None:
    """Add the bundles of the namespaces that these commands ask for and that one batch makes."""
    creating = [command for command in commands if command.kind == "create_namespace"]
    room = work.share
    names: list[str] = []
    for command in creating if len(creating) > 1 else ():
        names += _bundles(work, command, room - len(names))
    work.ledger.add(names)


def drop_unrecorded(work: Work) -> None:
    """Take back rows of bundles that got no record. O(m)."""
    rows = np.flatnonzero(work.ledger.version == 0).tolist()
    if rows:
        work.ledger.remove(work.ledger.names[row] for row in rows)


def _bundles(work: Work, command: Command, room: int) -> Sequence[str]:
    """The bundles that the command asks for; if they are too many, the one that it begins with."""
    arguments = parse_arguments(command.kind, command.arguments)
    if command.command_id in work.commands or not isinstance(arguments, CreateNamespace):
        return ()
    known = work.namespaces.get(arguments.namespace)
    if known is not None and not known.is_deleted:
        return ()
    try:
        count = arguments.bundles or work.config.splitting.default_bundles
        if max(count, len(arguments.boundaries)) > room:
            return (format_bundle(arguments.namespace, FULL_LOWER, FULL_UPPER),)
        boundaries = arguments.boundaries or even_boundaries(count)
        return NamespaceBundles(namespace=arguments.namespace, boundaries=boundaries).names()
    except InvalidRangeError:
        return ()
