"""The words that say how to be let in at Pulsar's admin interface; shared by verbs.

Decides nothing. Source: ours.
"""

import argparse
from pathlib import Path

from jobs.bridge.pulsar_admin import AdminAddress, PulsarAdmin


def add_access_words(group: "argparse._ArgumentGroup") -> None:
    """Which cluster, who we are, and how long a question may take."""
    group.add_argument("--pulsar-cluster", default="", metavar="NAME", help="if there are several")
    for option, about in (
        ("--auth-token-file", "file with a super user's token, read at each request"),
        ("--tls-ca", "PEM file of the authority that signed the brokers' certificates"),
        ("--tls-cert", "PEM file of our certificate"),
        ("--tls-key", "PEM file of its key"),
    ):
        group.add_argument(option, type=Path, metavar="FILE", help=about)
    group.add_argument(
        "--timeout-s", type=float, default=10.0, metavar="S", help="of one question (default 10)"
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
        )
    )
