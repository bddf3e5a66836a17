"""The words about Pulsar's brokers and its admin interface that verbs share."""

import argparse
from pathlib import Path
from urllib.parse import urlsplit

from jobs.bridge.admin_address import AdminAddress
from jobs.bridge.pulsar_admin import PulsarAdmin


def add_access_words(group: "argparse._ArgumentGroup") -> None:
    """Add the options for the cluster, our credentials and the timeout."""
    group.add_argument("--pulsar-cluster", default="", metavar="NAME", help="if there are several")
    for option, about in (
        ("--auth-token-file", "file with a super user's token, read at each request"),
        ("--tls-ca", "PEM file of the authority that signed the brokers' certificates"),
        ("--tls-cert", "PEM file of our certificate"),
        ("--tls-key", "PEM file of its key"),
    ):
        group.add_argument(option, type=Path, metavar="FILE", help=about)
    group.add_argument(
        "--broker-url",
        type=_broker_url,
        action="append",
        default=[],
        metavar="BROKER=URL",
        help="where a broker that Pulsar lists answers, when it can't be reached under that name"
        " (repeat)",
    )
    group.add_argument(
        "--timeout-s", type=float, default=10.0, metavar="S", help="of one question (default 10)"
    )


def _broker_url(text: str) -> tuple[str, str]:
    broker, _, url = text.partition("=")
    parts = urlsplit(url)
    if not broker or parts.scheme not in ("http", "https") or not parts.netloc:
        raise argparse.ArgumentTypeError(
            f"it must be like broker-1:8080=http://10.0.0.1:8080, got {text!r}"
        )
    return broker, f"{parts.scheme}://{parts.netloc}"


def add_network_word(words: "argparse._ActionsContainer") -> None:
    """Add the option for the bandwidth of a broker's network."""
    words.add_argument(
        "--network-mbytes",
        type=float,
        default=0.0,
        metavar="MB",
        help="MB/s that a broker's network carries each way, where Pulsar does not know it (several"
        " brokers on a machine): usage of bandwidth is then its throughput over this",
    )


def admin_at(url: str, args: argparse.Namespace) -> PulsarAdmin:
    """The interface at an address, with the words of `add_access_words`. Raises MisuseError."""
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
