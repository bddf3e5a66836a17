"""Risks that moves can't mend, or that are not visible: subject and remedy.

A bundle too hot for any broker, a hot bundle of one hot topic, partitions that share few brokers,
namespaces of fewer bundles than brokers, stuck ownership, brokers that don't answer or are of other
versions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lbcore.assess.loads import HotBundle, Loads
from lbcore.assess.owner_changes import STUCK_LOOKS, OwnerChanges
from lbcore.config.placement import CHURN_BY_ISOLATION, SHEDDING, short_name
from lbcore.model.names import are_on_too_few, parts_word, whole_topic

_ONE_TOPIC = 0.8
_LISTED = 20
_OF_BROKERS = ("load of ", "owned bundles of ", "settings of ", "topics of ")


@dataclass(frozen=True, slots=True, kw_only=True)
class HotTopic:
    """A loaded topic as last asked. msg_rate: msg/s in and out."""

    topic: str
    bundle: str
    broker: str
    msg_rate: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """Risk: what may go wrong.

    kind: a label. next_step: what to do about it.
    """

    kind: str
    subject: str
    text: str
    next_step: str


def unrelievable(
    loads: Loads, bundles: Sequence[HotBundle], topics: Sequence[HotTopic]
) -> list[Risk]:
    """Return the bundles above the mean broker's load.

    Even alone on a broker, they make it the hottest. The mean is that of the isolation group of the
    bundle's broker.
    """
    newest = {name: series[-1] for name, series in loads.msg_rates.items() if series}
    rates = {name: rate for name, rate in newest.items() if rate is not None}  # not of who is gone
    found = []
    for hot in bundles:
        members = [name for name in loads.group_of(hot.broker) if name in rates]
        mean = sum(rates[name] for name in members) / len(members) if members else 0.0
        if len(members) <= 1 or not 0.0 < mean < hot.msg_rate:
            continue
        inside = [one for one in topics if one.bundle == hot.bundle]
        first = max(inside, key=lambda one: (one.msg_rate, one.topic), default=None)
        is_one = hot.topics <= 1 or (first and first.msg_rate >= _ONE_TOPIC * hot.msg_rate)
        next_step = (
            _divide_advice(first.topic if first else "")
            if is_one
            else "split it: pulsar-admin namespaces split-bundle, or let Ballast split"
        )
        text = (
            f"{hot.msg_rate:.0f} msg/s is {hot.msg_rate / mean:.1f} times the mean broker's load: "
            "wherever it goes, that broker is the hottest"
        )
        found.append(Risk(kind="unrelievable", subject=hot.bundle, text=text, next_step=next_step))
    return found


def _divide_advice(topic: str) -> str:
    if topic.startswith("segment://"):
        return f"let Pulsar split the segment {topic}: a bundle's split can't divide it"
    name = f" ({topic})" if topic else ""
    return f"give its hot topic{name} partitions: a split can't divide one topic"


def crowded_partitions(owners: Mapping[str, str], room: Mapping[str, int]) -> list[Risk]:
    """Partitioned topics on too few of the brokers. O(topics).

    owners: loaded topic → its broker. room: broker → how many brokers its isolation group has.
    """
    by_topic: dict[str, list[str]] = {}
    for topic, broker in sorted(owners.items()):
        base = whole_topic(topic)
        if base != topic:
            by_topic.setdefault(base, []).append(broker)
    found = []
    for topic, hosts in sorted(by_topic.items()):
        used, brokers = len(set(hosts)), max(room.get(host, len(room)) for host in hosts)
        if are_on_too_few(used, len(hosts), brokers):
            text = f"its {len(hosts)} {parts_word(topic)} are on {used} of {brokers} brokers"
            next_step = "split the bundles that they share, or give the namespace more bundles"
            found.append(
                Risk(kind="crowded_partitions", subject=topic, text=text, next_step=next_step)
            )
    return found[:_LISTED]


def few_bundles(namespaces: Mapping[str, tuple[int, ...]], room: Mapping[str, int]) -> list[Risk]:
    """Namespaces that can't use all brokers that may take their bundles.

    namespaces: name → boundaries. room: namespace → how many brokers may take its bundles.
    """
    found = [
        Risk(
            kind="few_bundles",
            subject=name,
            text=f"it has {len(edges) - 1} bundles for {room[name]} brokers: some get none of it",
            next_step="no matter while it carries little; split its bundles before it grows",
        )
        for name, edges in sorted(namespaces.items())
        if 0 < len(edges) - 1 < room.get(name, 0)
    ]
    return found[:_LISTED]


_AVG_SHEDDER = "AvgShedder"


def churn_by_isolation(
    settings: Mapping[str, Mapping[str, str] | None], policies: Sequence[str]
) -> list[Risk]:
    """Report AvgShedder beside isolation policies.

    settings: broker → its own, None = unknown.
    """
    key = "loadBalancerLoadSheddingStrategy"
    brokers = [
        name
        for name, reported in settings.items()
        if reported and SHEDDING.get(short_name(reported.get(key, ""), SHEDDING)) == _AVG_SHEDDER
    ]
    if not policies or not brokers:
        return []
    return [
        Risk(
            kind="churn_by_isolation",
            subject=", ".join(sorted(policies)[:_LISTED]),
            text=CHURN_BY_ISOLATION,
            next_step=f"let Ballast balance with its default, or set {key} to ThresholdShedder",
        )
    ]


def stuck(seen: OwnerChanges) -> list[Risk]:
    """Bundles that two brokers claim, or that lost their owner, look after look."""
    kinds = (
        ("two_owners", seen.doubled, "two brokers say that they own it"),
        ("no_owner", seen.lost, "it had an owner, and now no broker claims it"),
    )
    found = [
        Risk(
            kind=kind,
            subject=bundle,
            text=f"{text}, {looks} looks in a row",
            next_step="unload it by pulsar-admin namespaces unload --bundle; if that hangs, "
            "restart the broker that claims it",
        )
        for kind, counted, text in kinds
        for bundle, looks in sorted(counted.items())
        if looks >= STUCK_LOOKS
    ]
    return found[:_LISTED]


def unread_risks(parts: Mapping[str, str]) -> list[Risk]:
    """Return risks for what could not be read, except brokers.

    Brokers have risks of their own. parts: what could not be read → reason.
    """
    named = [what for what in sorted(parts) if not what.startswith(_OF_BROKERS)]
    return [
        Risk(
            kind="not_read",
            subject=what,
            text=f"it could not be read: {parts[what]}",
            next_step="give a super user's token, and see the brokers' logs; what it carries and"
            " forbids is missing from this report",
        )
        for what in named[:_LISTED]
    ]


def broker_risks(
    brokers: Sequence[str], silent: Mapping[str, str], versions: Mapping[str, str]
) -> list[Risk]:
    """Of the brokers themselves. silent: broker → why; versions: broker → its version."""
    found = [
        Risk(
            kind="silent_broker",
            subject=name,
            text=f"its figures could not be had: {why}",
            next_step="see its log; what it carries is missing from this report",
        )
        for name, why in sorted(silent.items())
    ]
    if len(set(versions.values())) > 1:
        listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        found.append(
            Risk(
                kind="mixed_versions",
                subject="cluster",
                text=f"brokers run different versions: {listed}",
                next_step="finish the upgrade: the leader's rules hold, and they change with it",
            )
        )
    if len(brokers) == 1:
        found.append(
            Risk(
                kind="one_broker",
                subject=brokers[0],
                text="the cluster has one broker: nothing can be balanced, and its end ends all",
                next_step="add a broker",
            )
        )
    return found
