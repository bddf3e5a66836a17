"""`make lab-pulsar`: Pulsar's shedders and Ballast, each with brokers on hosts of their own.

Makes the hosts, lets `tests.lab.day` run a contender in the hub, and removes them, each contender
so many times in turn; then prints a table of the figures. With --planned it lets
`tests.lab.planned` restart every broker instead, both ways in turn. Records are kept in the folder
of --records as JSON: a second start goes on with what is missing there.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from jobs.adapters.processes.processes import Child, ProcessSpec
from jobs.console import CommandError, Exit, complain, note, say
from tests.integration.stack import ROOT
from tests.lab.contenders import CONTENDERS, WAYS
from tests.lab.day import MINUTES
from tests.lab.hosts import hosts, require_root
from tests.lab.records import table
from tests.lab.scene import BROKERS
from tests.pulsar.distribution import DEFAULT, VARIABLE, VERSIONS, ensure_distribution

_VERSIONS = VERSIONS[:2]
"""The store of 5.0 would have to be started in another way."""
_AROUND_S = 1_500.0
"""What starting, placing and draining may take beside the watching: then a run is ended. With two
labs at once on two cores (load 16) 600 s were too few for Ballast's runs."""
_PLANNED_S = 3_600.0
_POLL_S = 0.5


def main() -> int:
    """0 when every run has a record."""
    args = _parser().parse_args()
    os.environ[VARIABLE] = args.pulsar  # of what runs in the hub, too
    other = "" if args.pulsar == DEFAULT else f"-{args.pulsar}"
    kind = "lab-planned" if args.planned else "lab"
    args.records = args.records or ROOT / "var" / f"{kind}{other}"
    if args.planned:
        args.contenders = list(WAYS)
    for number in (signal.SIGINT, signal.SIGTERM):  # a background job begins with the first ignored
        signal.signal(number, _terminated)
    try:
        require_root()
        ensure_distribution()
        missing = _run_all(args)
    except CommandError as error:
        complain(error, as_json=False)
        return int(error.exit_code)
    except KeyboardInterrupt:
        note("cut off; hosts and programs are gone, records so far are kept")
        return int(Exit.CUT)
    titles = {name: one.title for name, one in CONTENDERS.items()}
    say(table(args.records, WAYS if args.planned else titles))
    return int(Exit.FAILED if missing else Exit.DONE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lab-pulsar", description=__doc__)
    parser.add_argument(
        "--contenders", nargs="+", choices=sorted(CONTENDERS), default=list(CONTENDERS)
    )
    parser.add_argument("--runs", type=int, default=3, help="of each contender (3)")
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help=f"watched in a run ({MINUTES:g})"
    )
    parser.add_argument(
        "--records", type=Path, help="folder of the records (var/lab, or var/lab-planned-VERSION)"
    )
    parser.add_argument(
        "--planned", action="store_true", help="restart every broker: Pulsar's own way, and ours"
    )
    parser.add_argument(
        "--pulsar", choices=_VERSIONS, default=DEFAULT, help=f"version of the brokers ({DEFAULT})"
    )
    parser.add_argument(
        "--keep", type=Path, help="keep the logs of the runs in this folder, and nothing is deleted"
    )
    return parser


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run_all(args: argparse.Namespace) -> list[str]:
    failed = []
    for run in range(1, args.runs + 1):
        for name in args.contenders:
            record = args.records / f"{name}-{run}.json"
            if record.exists():
                say(f"{name}, run {run}: in {record} already")
                continue
            say(f"{name}, run {run} of {args.runs}, Pulsar {args.pulsar}")
            if _run(args, name, run, record):
                failed.append(f"{name}-{run}")
    if failed:
        note(f"without a record: {', '.join(failed)}; the same command tries them again")
    return failed


def _run(args: argparse.Namespace, name: str, run: int, record: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="ballast-lab-", ignore_cleanup_errors=True) as made:
        folder = Path(made) if args.keep is None else args.keep / f"{name}-{run}"
        folder.mkdir(parents=True, exist_ok=True)
        words = ["--contender", name, "--run", str(run), "--minutes", str(args.minutes)]
        words += ["--folder", str(folder), "--record", str(record)]
        if args.planned:
            words = ["--way", name, *words[2:4], *words[6:]]
            return run_in_hub("tests.lab.planned", words, folder, _PLANNED_S)
        return run_in_hub("tests.lab.day", words, folder, args.minutes * 60.0 + _AROUND_S)


def run_in_hub(module: str, words: Sequence[str], folder: Path, seconds: float) -> int:
    """Run a module in the hub of new hosts, show what it says; its exit code, 1 when it lasts."""
    with hosts(BROKERS) as made:
        command = [sys.executable, "-m", module, "--hosts", made.name, *words]
        spec = ProcessSpec(
            name=module,
            command=made.in_hub(command),
            log_path=folder / "day.log",
            environment={"PYTHONPATH": str(ROOT)},
        )
        child, shown, end_s = Child(spec), 0, time.monotonic() + seconds
        try:
            while (code := child.exit_code()) is None and time.monotonic() < end_s:
                shown = _show(spec.log_path, shown)
                time.sleep(_POLL_S)
            _show(spec.log_path, shown)
        finally:
            child.kill()
    if code is None:
        note(f"it was ended: {seconds:.0f} s were over")
    return 1 if code is None else code


def _show(path: Path, shown: int) -> int:
    text = path.read_text(errors="replace")
    whole = text[shown : text.rfind("\n") + 1]
    for line in whole.splitlines():
        say(f"  {line}")
    return shown + len(whole)


if __name__ == "__main__":
    sys.exit(main())
