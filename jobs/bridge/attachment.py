"""Attachment of `ballast attach` to a Pulsar cluster, kept in the run's folder.

Decides what is checked before anything starts, and restores Pulsar's own shedding at the end. The
earlier setting is on disk before it is changed, so that `ballast detach` works after a crash, too.
"""

import argparse
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from jobs.atomic_file import atomic_write
from jobs.bridge.admin_address import AdminAddress, PulsarAdminError
from jobs.bridge.bridge import active_brokers, brokers_settings, switch_shedding
from jobs.bridge.pulsar_admin import PulsarAdmin, ask_concurrently
from jobs.console import CommandError
from jobs.local.layout import ATTACHMENT_FILE, SIZE_FILE, Layout
from jobs.parser import argument, arguments, decimal_number, positive_number
from lbcore.bridge.acting import SHEDDING


def _broker_url(text: str) -> tuple[str, str]:
    broker, _, url = text.partition("=")
    parts = urlsplit(url)
    if not broker or parts.scheme not in ("http", "https") or not parts.netloc:
        raise argparse.ArgumentTypeError(
            f"it must be like broker-1:8080=http://10.0.0.1:8080, got {text!r}"
        )
    return broker, f"{parts.scheme}://{parts.netloc}"


add_access_options = arguments(
    argument("--pulsar-cluster", default="", metavar="NAME", help="if there are several"),
    *(
        argument(option, type=Path, metavar="FILE", help=about)
        for option, about in (
            ("--auth-token-file", "file with a super user's token, read at each request"),
            ("--tls-ca", "PEM file of the authority that signed the brokers' certificates"),
            ("--tls-cert", "PEM file of our certificate"),
            ("--tls-key", "PEM file of its key"),
        )
    ),
    argument(
        "--broker-url",
        type=_broker_url,
        action="append",
        default=[],
        metavar="BROKER=URL",
        help="where a broker that Pulsar lists answers, when it can't be reached under that name"
        " (repeat)",
    ),
    argument(
        "--timeout-s",
        type=positive_number,
        default=10.0,
        metavar="S",
        help="of one question (default 10)",
    ),
)
"""The cluster, our credentials and the timeout."""
add_network_option = argument(
    "--network-mbytes",
    type=decimal_number,
    default=0.0,
    metavar="MB",
    help="MB/s that a broker's network carries each way, where Pulsar does not know it (several"
    " brokers on a machine): usage of bandwidth is then its throughput over this",
)


def admin_at(url: str, args: argparse.Namespace) -> PulsarAdmin:
    """Return the interface at an address. Raises MisuseError.

    The options are those of `add_access_options`.
    """
    return PulsarAdmin(
        AdminAddress(
            url=url.rstrip("/"),
            token_file=args.auth_token_file,
            ca_file=args.tls_ca,
            cert_file=args.tls_cert,
            key_file=args.tls_key,
            timeout_s=args.timeout_s,
            broker_urls=dict(args.broker_url),
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A cluster and what was changed in it.

    acts: Ballast acts, and must restore Pulsar's shedding at the end. shed_before: Pulsar shed
    before. was_dynamic: a dynamic setting decided it, and stays when shedding is restored.
    """

    url: str
    pulsar_cluster: str
    acts: bool = False
    shed_before: bool = True
    was_dynamic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLook:
    """Result of a first look at a cluster.

    sheds: Pulsar balances itself; None = no broker says. versions: broker → its version, of those
    that answer.
    """

    name: str
    brokers: tuple[str, ...]
    sheds: bool | None
    versions: Mapping[str, str] = field(default_factory=dict)

    def oddities(self) -> Iterator[str]:
        """Yield what a user should know before attaching to it, a sentence each."""
        if len(self.brokers) == 1:
            yield f"{self.name} has one broker: nothing can be moved until there is another"
        if len(set(self.versions.values())) > 1:
            versions = ", ".join(f"{name} {one}" for name, one in sorted(self.versions.items()))
            yield (
                f"brokers of {self.name} run different versions ({versions}): finish the upgrade"
                " before --act; until then it is best observed"
            )
        if self.sheds is None:
            yield "no broker tells its configuration: the role should be a super user's"


def look_at(admin: PulsarAdmin, name: str) -> FirstLook:
    """Look at a cluster of the instance.

    Raises CommandError for one that can't be attached to.
    """
    brokers = active_brokers(admin, name)
    settings, _ = brokers_settings(admin, name, brokers)
    sheds = [one.get(SHEDDING, "true") for one in settings.values() if one is not None]
    return FirstLook(
        name=name,
        brokers=brokers,
        sheds="true" in sheds if sheds else None,
        versions=ask_concurrently(brokers, lambda broker: admin.version(name, broker))[0],
    )


def known_attachment(layout: Layout) -> Attachment | None:
    """Return the attachment of this folder, None = it has none.

    Raises CommandError where the folder has simulated brokers.
    """
    if (layout.root / SIZE_FILE).exists():
        raise CommandError(
            f"{layout.root} holds a run of simulated brokers",
            why="a run goes on with the tables of the one before",
            next_step="give --state-dir another folder, or `make clean` if nobody needs it",
        )
    path = layout.root / ATTACHMENT_FILE
    return Attachment(**json.loads(path.read_text())) if path.exists() else None


def settle(layout: Layout, url: str, seen: FirstLook) -> Attachment:
    """Return the folder's attachment, made if it has none.

    Raises CommandError if the folder belongs to another cluster.
    """
    known = known_attachment(layout)
    if known is None:
        known = Attachment(url=url, pulsar_cluster=seen.name)
    elif known.pulsar_cluster != seen.name:
        raise CommandError(
            f"{layout.root} is attached to the cluster {known.pulsar_cluster}, not {seen.name}",
            why="a run goes on with the tables of the one before",
            next_step="give --state-dir another folder for the other cluster",
        )
    known = replace(known, url=url)
    _save(layout, known)
    return known


def take_over(admin: PulsarAdmin, layout: Layout, known: Attachment, seen: FirstLook) -> None:
    """Switch Pulsar's own shedding off, after saving its present state to disk.

    Raises CommandError if the state is unknown: it could not be restored.
    """
    if not known.acts:
        why = "no broker says whether it balances itself" if seen.sheds is None else ""
        dynamic: Collection[str] = ()
        try:
            dynamic = admin.dynamic_settings()
        except PulsarAdminError as error:
            why = str(error)
        if seen.sheds is None or why:
            raise CommandError(
                f"{seen.name} is not taken over",
                why=f"{why}, so that could not be given back",
                next_step="the role must be a super user's: check --auth-token-file and the --tls"
                " options",
            )
        was_dynamic = SHEDDING in dynamic
        _save(layout, replace(known, acts=True, shed_before=seen.sheds, was_dynamic=was_dynamic))
    switch_shedding(admin, is_on=False)


def give_back(admin: PulsarAdmin, layout: Layout, known: Attachment) -> None:
    """Restore Pulsar's shedding, and note that Ballast no longer acts.

    First the value is set, at once and everywhere. If there was no dynamic setting before, it is
    then removed, so that the brokers' files decide again.
    """
    if known.acts:
        switch_shedding(admin, is_on=known.shed_before)
        try:
            if not known.was_dynamic:
                admin.forget_dynamic(SHEDDING)
        except PulsarAdminError as error:
            raise CommandError(
                f"Pulsar's shedding is as it was, but the dynamic setting {SHEDDING} is still"
                " there",
                why=str(error),
                next_step="run `ballast detach` again, or `pulsar-admin brokers"
                f" delete-dynamic-config --config {SHEDDING}`",
            ) from None
    _save(layout, replace(known, acts=False))


def _save(layout: Layout, attachment: Attachment) -> None:
    """Write the attachment durably, so that `detach` has it after a crash."""
    atomic_write(layout.root / ATTACHMENT_FILE, json.dumps(asdict(attachment)))
