"""Give a Pulsar cluster back that `ballast attach --act` has taken over.

Sets Pulsar's own shedding to what it was before; an attached run that still acts sees it and ends.
Works after a crash, too: what was so stands in the run's folder.
"""

import argparse
from pathlib import Path

from jobs.bridge.attachment import add_access_options, admin_at, give_back, known_attachment
from jobs.console import CommandError, Exit, answer
from jobs.local.layout import Layout
from jobs.operating.connection_options import STATE_DIR, STATE_DIR_HELP
from lbcore.bridge.acting import SHEDDING


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: run, cluster, and credentials."""
    parser.add_argument(
        "--state-dir", type=Path, default=STATE_DIR, metavar="DIR", help=STATE_DIR_HELP
    )
    parser.add_argument("--url", default="", help="instead of the address it was attached at")
    add_access_options(parser.add_argument_group("Pulsar"))
    parser.epilog = "example: ballast detach"


def run(args: argparse.Namespace) -> int:
    """Give it back, and say what was changed."""
    layout = Layout(root=args.state_dir.absolute())
    known = known_attachment(layout)
    if known is None:
        raise CommandError(
            f"{layout.root} is attached to no cluster",
            why="nothing was ever attached with this folder",
            next_step="give the folder of the attached run with --state-dir",
        )
    if not known.acts:
        text = f"Ballast does not act on {known.pulsar_cluster}: nothing was changed"
        answer(args, {"cluster": known.pulsar_cluster, "changed": False}, text)
        return Exit.DONE
    give_back(admin_at(args.url or known.url, args), layout, known)
    shed = str(known.shed_before).lower()
    text = f"{SHEDDING}={shed} in {known.pulsar_cluster} again, as it was; Ballast acts no more"
    answer(args, {"cluster": known.pulsar_cluster, "changed": True, "shedding": shed}, text)
    return Exit.DONE
