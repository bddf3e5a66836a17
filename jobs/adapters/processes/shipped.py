"""The files of conf/, in a checkout as in an installed package.

Decides what a path such as `conf/scenarios` means in a folder that has none: what came with
Ballast. Standard library only. Source: ours.
"""

from pathlib import Path

CONF = (Path(__file__).parents[2] / "conf").resolve()
"""In a checkout conf/, to which jobs/conf leads; in a package jobs/conf itself."""


def shipped(path: Path) -> Path:
    """The path itself, or, where nothing is there, what came with Ballast under that name."""
    came = CONF.parent / path
    is_ours = path.parts[:1] == (CONF.name,) and not path.exists() and came.exists()
    return came if is_ours else path


def folder_name(path: Path) -> str:
    """The folder of a file as one would type it: conf/... of what came with Ballast."""
    folder = path.parent
    return folder.relative_to(CONF.parent).as_posix() if CONF in path.parents else str(folder)
