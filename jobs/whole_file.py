"""Files that others read while they are written.

Decides nothing: a reader finds what was there or what is there now, never a part. Source: ours.
"""

import os
from pathlib import Path


def write_whole(
    path: Path, content: str | bytes, *, mode: int | None = None, is_durable: bool = False
) -> None:
    """Write a file whole or not at all, in a folder that is there. Raises OSError.

    mode: its permissions, else the usual ones. is_durable: down to the disk before it takes the
    place of what was there. Several processes may write the same file.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        if mode is not None:
            part.chmod(mode)
        if is_durable:
            with part.open("rb") as written:
                os.fsync(written.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
