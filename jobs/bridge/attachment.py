"""What `ballast attach` has to do with a Pulsar cluster, remembered in the run's folder.

Decides what is looked at before anything starts, what is asked before Ballast acts, and what is
given back: Pulsar's own shedding as it was. What was so is on disk before it is changed, so that
`ballast detach` works after a crash, too. Source: ours.
"""

import json
from dataclasses import asdict, dataclass

from jobs.bridge.bridge import brokers_settings, switch_shedding
from jobs.bridge.pulsar_admin import PulsarAdmin, PulsarAdminError
from jobs.console import CommandError
from jobs.local.layout import Layout
from lbcore.bridge.guard import SHEDDING

_FILE, _SIMULATED = "attachment.json", "size.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A cluster and what was changed in it. shed_before: whether Pulsar shed, before we acted."""

    url: str
    pulsar_cluster: str
    acts: bool = False
    shed_before: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCluster:
    """What a first look shows. sheds: whether Pulsar balances itself; None = no broker says."""

    name: str
    brokers: tuple[str, ...]
    sheds: bool | None


def look_at(admin: PulsarAdmin, name: str) -> SeenCluster:
    """A cluster of the instance; raises CommandError for one that can't be attached to."""
    try:
        brokers = admin.brokers(name)
    except PulsarAdminError as error:
        raise CommandError(
            f"the brokers of {name} can't be listed",
            why=str(error),
            next_step="check --pulsar-cluster, --auth-token-file and the --tls options: the role"
            " must be a super user's",
        ) from None
    if not brokers:
        raise CommandError(
            f"{name} has no active broker",
            why="there is nothing to balance",
            next_step="start its brokers, then attach again",
        )
    settings = brokers_settings(admin, name, brokers).values()
    told = [one.get(SHEDDING, "true") for one in settings if one is not None]
    return SeenCluster(name=name, brokers=brokers, sheds="true" in told if told else None)


def known_attachment(layout: Layout) -> Attachment | None:
    """What this folder is attached to; raises CommandError where it has simulated brokers."""
    if (layout.root / _SIMULATED).exists():
        raise CommandError(
            f"{layout.root} holds a run of simulated brokers",
            why="a run goes on with the tables of the one before",
            next_step="give --state-dir another folder, or `make clean` if nobody needs it",
        )
    path = layout.root / _FILE
    return Attachment(**json.loads(path.read_text())) if path.exists() else None


def settle(layout: Layout, url: str, seen: SeenCluster) -> Attachment:
    """The folder's attachment, made if it has none; raises CommandError for another cluster's."""
    known = known_attachment(layout)
    if known is None:
        known = Attachment(url=url, pulsar_cluster=seen.name, shed_before=seen.sheds is not False)
    elif known.pulsar_cluster != seen.name:
        raise CommandError(
            f"{layout.root} is attached to the cluster {known.pulsar_cluster}, not {seen.name}",
            why="a run goes on with the tables of the one before",
            next_step="give --state-dir another folder for the other cluster",
        )
    known = Attachment(**{**asdict(known), "url": url})
    _keep(layout, known)
    return known


def take_over(
    admin: PulsarAdmin, layout: Layout, attachment: Attachment, seen: SeenCluster
) -> None:
    """Switch Pulsar's own shedding off, once it is on disk what it was.

    Raises CommandError where that is not known: it could not be given back.
    """
    if seen.sheds is None and not attachment.acts:
        raise CommandError(
            f"{seen.name} is not taken over",
            why="no broker says whether it balances itself, so that could not be given back",
            next_step="the role must be a super user's: check --auth-token-file",
        )
    before = attachment.shed_before if attachment.acts else bool(seen.sheds)
    _keep(layout, Attachment(**{**asdict(attachment), "acts": True, "shed_before": before}))
    switch_shedding(admin, is_on=False)


def give_back(admin: PulsarAdmin, layout: Layout, attachment: Attachment) -> None:
    """Let Pulsar's shedding be what it was, and forget that we acted."""
    if attachment.acts:
        switch_shedding(admin, is_on=attachment.shed_before)
    _keep(layout, Attachment(**{**asdict(attachment), "acts": False}))


def _keep(layout: Layout, attachment: Attachment) -> None:
    path = layout.root / _FILE
    part = path.with_suffix(".part")
    part.write_text(json.dumps(asdict(attachment)))
    part.replace(path)
