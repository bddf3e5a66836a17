"""Files that outlast a power cut, and text files that people write.

A reader finds the old content or the new, never a part.
"""

import codecs
import os
from pathlib import Path

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_text_file(path: Path) -> str:
    """Return the text of a UTF-8 file without a byte order mark.

    Raises OSError, and ValueError with a sentence for another encoding.
    """
    content = path.read_bytes()
    if content.startswith(_UTF16) or b"\0" in content[:4]:
        raise ValueError("it is UTF-16 or UTF-32: save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        raise ValueError(
            f"line {line} has byte 0x{byte:02x}, which is no UTF-8: save it as UTF-8"
        ) from None


def atomic_write(
    path: Path, content: str | bytes, *, mode: int | None = None, is_durable: bool = True
) -> None:
    """Write a file whole or not at all, in a folder that is there. Raises OSError.

    mode: its permissions, else the usual ones. is_durable: down to the disk before it takes the
    place of what was there, False for what is of no use after a restart. Several processes may
    write the same file.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        if mode is not None:
            part.chmod(mode)
        if is_durable:
            sync_path(part)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    if is_durable:
        sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Bring a file, or the names in a folder, down to the disk. Raises OSError."""
    there = os.open(path, os.O_RDONLY)
    try:
        os.fsync(there)
    finally:
        os.close(there)
