"""Forgetting: what is over for good leaves the state, which so stays as large as the cluster is.

Decides when: a deleted namespace when none of its bundles has a record any more, a broker when it
has been silent for long and no record names it. Whatever is kept by their names goes with them.
What a namespace leaves is one number for all of them, the *version floor*: the highest version that
any bundle of a forgotten namespace ever had. A namespace that is made begins above it, so that no
version is ever used twice for a hash, and an agent or a store that remembers the old one is not
fooled. Part of `balancer`, after all that ends something.
"""

from collections.abc import Mapping
from dataclasses import replace

from lbcore.balancer.state.book import NamespaceEntry, namespace_row
from lbcore.balancer.state.outcome import FAILED, Outcome
from lbcore.balancer.state.work import Work
from lbcore.balancer.tasks import usage
from lbcore.balancer.tasks.drains import is_named
from lbcore.balancer.tasks.usage import RULES, note_gone
from lbcore.balancer.tasks.waiting import finish_command
from lbcore.model.names import namespace_of_topic, tenant_of
from lbcore.model.tables import NAMESPACES, RECORDS
from lbcore.wire.kinds.record_commands import TOPIC
from lbcore.wire.messages import Command

FLOOR = ""
"""The row of `namespaces` with the version floor: no namespace is called so."""


def version_floor(work: Work, namespace: str) -> int:
    """The version above which bundles of a new namespace begin."""
    entry = work.namespaces.get(namespace)
    return max(work.times.version_floor, entry.highest_version if entry else 0)


def forget_what_is_over(work: Work) -> None:
    """Forget namespaces, brokers, and what planning remembers of them. O(namespaces + brokers)."""
    _forget_namespaces(work)
    gone = _long_silent(work)
    for broker in gone:
        strike_off(work, broker)
    work.counts["brokers_forgotten"] += len(gone)
    if work.struck_off or work.forgotten:
        names = {record.bundle for record in work.forgotten}
        work.plan = work.plan.without(brokers=work.struck_off, bundles=names)


def strike_off(work: Work, broker: str, command: Command | None = None) -> None:
    """Take a silent broker that no record names off the list; its drain goes with it."""
    del work.brokers[broker]
    work.liveness = work.liveness.forget(broker)
    work.struck_off.add(broker)
    drain = work.rules.drains.get(broker)
    if drain is not None:
        work.set_rule("drains", broker, None, command)
        reason = f"broker {broker} is silent and was forgotten; it had {drain.left} bundles left"
        finish_command(work, drain.command_id, Outcome(status=FAILED, reason=reason))


def forget_topics(work: Work, namespace: str) -> None:
    """Drop the created topics of a namespace, as it is deleted."""
    for topic in sorted(work.records.topics_of(namespace)):
        drop_topic(work, topic)


def drop_topic(work: Work, name: str) -> None:
    """Drop a topic that was created."""
    tenant = tenant_of(namespace_of_topic(name))
    note_gone(work, usage.TOPICS, tenant)
    note_gone(work, usage.PARTITIONS, tenant, work.records.of(TOPIC)[name])
    work.add_row(RECORDS.name, work.records.set(TOPIC, name, None))


def drop_rules_of(work: Work, namespace: str) -> None:
    """Take back the rules that are of a namespace, which is deleted."""
    tenant = tenant_of(namespace)
    for kind in ("paused", "anti_affinity"):
        if namespace in getattr(work.rules, kind):
            work.set_rule(kind, namespace, None)
            note_gone(work, RULES, tenant)
    if namespace in work.rules.excluded:
        left = tuple(name for name in work.rules.excluded if name != namespace)
        work.rules = replace(work.rules, excluded=left)
        note_gone(work, RULES, tenant)


def still_needed(
    namespaces: Mapping[str, NamespaceEntry], with_records: set[str], floor: int
) -> dict[str, NamespaceEntry]:
    """The namespaces but for those that are deleted, have no record left and are below the floor.

    with_records: namespaces that some bundle's record is of.
    """
    return {
        name: entry
        for name, entry in namespaces.items()
        if not entry.is_deleted or name in with_records or entry.highest_version > floor
    }


def _forget_namespaces(work: Work) -> None:
    deleted = [name for name, entry in work.namespaces.items() if entry.is_deleted]
    if not deleted:
        return
    with_records = set(work.ledger.namespaces()[0])
    gone = [name for name in deleted if name not in with_records]
    if not gone:
        return
    highest = max(work.namespaces[name].highest_version for name in gone)
    _raise_floor(work, highest)
    work.namespaces = still_needed(work.namespaces, with_records, work.times.version_floor)
    work.counts["namespaces_forgotten"] += len(gone)


def _raise_floor(work: Work, version: int) -> None:
    if version <= work.times.version_floor:
        return
    work.note(version_floor=version)
    entry = NamespaceEntry(hash="", is_deleted=True, highest_version=version)
    work.add_row(NAMESPACES.name, namespace_row(FLOOR, entry))


def _long_silent(work: Work) -> list[str]:
    """Brokers to strike off, sorted. Both Kafka's clock and ours must say that it is time."""
    after_ms = work.config.ownership.forget_broker_after_ms
    if not after_ms or work.is_catching_up:
        return []
    before_ms = min(work.now_ms, work.times.tick_ms) - after_ms
    silent = [name for name, e in work.brokers.items() if e.is_silent and e.silent_ms < before_ms]
    return [name for name in sorted(silent) if not is_named(work, name)]
