"""The files of conf/, in a checkout as in an installed package.

Decides what a path such as `conf/scenarios` means in a folder that has none: what came with
Ballast. Standard library only.
"""

from pathlib import Path

CONF = (Path(__file__).parents[2] / "conf").resolve()
"""In a checkout conf/, to which jobs/conf leads; in a package jobs/conf itself."""


def shipped(path: Path) -> Path:
    """The path itself, or, where nothing is there, what came with Ballast under that name."""
    came = CONF.parent / path
    is_ours = path.parts[:1] == (CONF.name,) and not path.exists() and came.exists()
    return came if is_ours else path
