"""Arrays and plain data as bytes, for packed state and rows between operators.

Equal contents always give equal bytes, on any machine (little-endian, sorted keys), so bytes may be
compared instead of contents. A blob is a JSON header that names each array's type and shape,
followed by the arrays' buffers.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAGIC = b"BLS1"
_PREFIX = struct.Struct("<4sI")
_ALIGNMENT = 8
_SEPARATOR = "\n"


class MalformedBlobError(ValueError):
    """The bytes were not made by `pack`, or were cut or changed since."""


def pack(plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """One blob of JSON-able values and numeric arrays. O(bytes)."""
    layout = []
    buffers = []
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        layout.append([name, array.dtype.str, list(array.shape)])
        buffer = array.tobytes()
        buffers.append(buffer + b"\0" * (-len(buffer) % _ALIGNMENT))
    header = json.dumps(
        {"plain": plain, "arrays": layout}, sort_keys=True, separators=(",", ":")
    ).encode()
    header += b" " * (-(len(header) + _PREFIX.size) % _ALIGNMENT)
    return b"".join([_PREFIX.pack(_MAGIC, len(header)), header, *buffers])


def unpack(blob: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The inverse of `pack`; arrays are read-only views. Raises MalformedBlobError."""
    try:
        magic, size = _PREFIX.unpack_from(blob)
        header = json.loads(blob[_PREFIX.size : _PREFIX.size + size])
        plain, layout = header["plain"], header["arrays"]
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise MalformedBlobError(_damaged(len(blob))) from error
    if magic != _MAGIC:
        raise MalformedBlobError(_damaged(len(blob)))
    arrays = {}
    at = _PREFIX.size + size
    for name, dtype, shape in layout:
        count = int(np.prod(shape, dtype=np.int64))
        length = count * np.dtype(dtype).itemsize
        if at + length > len(blob):
            raise MalformedBlobError(_damaged(len(blob)))
        arrays[name] = np.frombuffer(blob, dtype=dtype, count=count, offset=at).reshape(shape)
        at += length + (-length % _ALIGNMENT)
    return plain, arrays


def _damaged(size: int) -> str:
    return (
        f"a packed blob of {size} bytes can't be read: it was cut, changed or made by other code; "
        "run `ballast state rebuild`, and the job's next start rebuilds the state from the tables"
    )


def fields_of(value: Any) -> dict[str, Any]:
    """Return a dataclass's fields by name, uncopied.

    `asdict` copies, at ten times the price.
    """
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def join_names(names: Sequence[str]) -> NDArray[np.uint8]:
    """Join names as one array of bytes, cheap to pack; see `split_names`."""
    text = _SEPARATOR.join(names).encode()
    return np.frombuffer(text, dtype=np.uint8)


def split_names(joined: NDArray[np.uint8], count: int) -> list[str]:
    """The inverse of `join_names`; count tells none from one empty name."""
    return joined.tobytes().decode().split(_SEPARATOR) if count else []
