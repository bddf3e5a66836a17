"""Look after the streaming job's state folder while the job is stopped.

rebuild   sets the checkpoint aside (nothing is deleted); the next start of the job rebuilds its
          state from the tables and reads on after the last committed batch. Ownership, brokers,
          namespaces and what operators have set come back exactly; load averages and hit counts
          begin anew. Use it when the job refuses its checkpoint, or when you doubt it.
          --restored: the tables were put back from a backup; every record then gets a new
          version, because brokers have seen newer ones than the backup has
"""

import argparse
from pathlib import Path

from jobs.adapters.spark.checkpoint import archive_state, hold_folder, restored_mark
from jobs.console import Exit, MisuseError, answer, note, require_consent
from jobs.local.layout import Layout
from jobs.operating.connection_options import STATE_DIR
from jobs.parser import argument, arguments

_LOCAL = Layout(root=STATE_DIR).job


add_arguments = arguments(
    argument("action", choices=("rebuild",)),
    argument("--state-dir", type=Path, default=_LOCAL, help=f"the job's --state-dir ({_LOCAL})"),
    argument("--restored", action="store_true", help="the tables were put back from a backup"),
    argument("--yes", action="store_true", help="don't ask"),
    argument("--dry-run", action="store_true", help="change nothing, say what would be"),
)


def run(args: argparse.Namespace) -> int:
    """Set the checkpoint aside; CommandError while a job uses it."""
    if args.restored and not args.dry_run:
        args.state_dir.mkdir(parents=True, exist_ok=True)
    if not args.state_dir.is_dir():
        raise MisuseError(
            f"there is no state folder {args.state_dir}",
            why="no balance_cluster job was started with it",
            next_step="name the job's folder with --state-dir",
        )
    with hold_folder(args.state_dir):
        moves = archive_state(args.state_dir, dry_run=True)
        if not moves:
            if args.restored and not args.dry_run:
                restored_mark(args.state_dir).touch()
            text = "there is no checkpoint: the next start rebuilds the state from the tables"
            answer(args, {"set_aside": []}, text)
            return Exit.DONE
        if not args.dry_run:
            if not args.yes:
                note(f"The checkpoint in {args.state_dir} is set aside (not deleted).")
                note("The next start rebuilds the state from the tables; averages begin anew.")
                require_consent("start the job as it is, or run this again")
            if args.restored:
                restored_mark(args.state_dir).touch()
            moves = archive_state(args.state_dir)
    where = ", ".join(map(str, moves))
    done = "would be set aside as" if args.dry_run else "was set aside as"
    text = f"the checkpoint {done} {where}; the next start rebuilds the state from the tables"
    answer(args, {"set_aside": [str(path) for path in moves], "dry_run": args.dry_run}, text)
    return Exit.DONE
