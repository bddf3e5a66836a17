"""`make bench`: every measurement of this machine, one after the other, each with its JSON.

First come three fixed loops, so that figures of other machines can be compared.

Usage: python -m tests.bench [NAME ...] [--output-dir var/bench] [--scale small|full]
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tests.bench.calibration import calibrate

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PIPELINE = "pipeline"


def main() -> int:
    """Run the named benches, or all; 1 when one of them failed."""
    names = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--output-dir", type=Path, default=ROOT / "var" / "bench")
    parser.add_argument("--scale", help="the pipeline alone, at this size: small, full, ...")
    args = parser.parse_args()
    if args.scale and not args.names:
        args.names = [PIPELINE]
    unknown = sorted(set(args.names) - set(names))
    if unknown:
        parser.error(f"there is no bench {', '.join(unknown)}; there are {', '.join(names)}")
    args.output_dir.mkdir(parents=True, exist_ok=True)
    print(calibrate().line(), flush=True)  # noqa: T201 (what the figures are compared by)
    failed = []
    for name in args.names or names:
        print(f"== {name}", flush=True)  # noqa: T201 (this is what it is for)
        output = args.output_dir / f"{name}.json"
        command = [sys.executable, "-m", f"tests.bench.bench_{name}", "--output", str(output)]
        if name == PIPELINE and args.scale:
            command += ["--scale", args.scale]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")  # noqa: T201 (as above)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
