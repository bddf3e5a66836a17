"""Say which Ballast, Python and Java this is."""

import argparse
import platform

from jobs import VERSION
from jobs.adapters.processes.java import find_java
from jobs.console import Exit, answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing beside --json."""
    del parser


def run(args: argparse.Namespace) -> int:
    """Write the versions; fails when no fitting Java is there."""
    java = find_java()
    versions = {
        "ballast": VERSION,
        "python": platform.python_version(),
        "java": java.major,
        "java_command": java.command,
    }
    answer(args, versions, [f"{name} {value}" for name, value in versions.items()])
    return Exit.DONE
