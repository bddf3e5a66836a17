"""Place of the tables: a local folder, or a prefix in an object store.

The store is S3-compatible. Decides which places can be used, how a store is reached, and the error
text when it can't be. A `StorePath` implements as much of `pathlib.Path` as the readers of the
tables use, so they read a folder and a store alike. Keys and endpoint come from the environment
alone, under the names that all AWS tools know. delta-rs commits with a conditional PUT
(If-None-Match), which succeeds for only one of two writers. A store that ignores it can't hold
tables.
"""

import os
import re
from argparse import ArgumentTypeError
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as arrow_fs
from deltalake.exceptions import DeltaError

from jobs.adapters.processes.preflight import check_folder
from jobs.console import CommandError, MisuseError

_SCHEMES = ("s3", "s3a")
_CONNECT_TIMEOUT_S = 5
_REQUEST_TIMEOUT_S = 30
_ATTEMPTS = 3
_OPTIONS: Mapping[str, str] = {
    "aws_conditional_put": "etag",
    "connect_timeout": f"{_CONNECT_TIMEOUT_S}s",
    "timeout": f"{_REQUEST_TIMEOUT_S}s",
    "retry_timeout": "30s",
}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m|↳")
_OF_A_STORE = re.compile(r"S3|AWS|[Oo]bject ?[Ss]tore|http|credential")
_NEXT_STEPS: Mapping[str, tuple[str, str]] = {
    r"NoSuchBucket|bucket does not exist": (
        "there is no such bucket",
        "make the bucket, or name another one; the job makes what lies in it",
    ),
    r"169\.254\.|credentials provider|NoCredentials": (
        "no credentials were found",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the process a role",
    ),
    r"\b40[13]\b|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ACCESS_DENIED": (
        "the store refused access",
        "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and the rights of that user",
    ),
    r"error sending request|[Cc]onnect|NETWORK_CONNECTION|timed out|URL scheme is not allowed": (
        "the store can't be reached",
        "check AWS_ENDPOINT_URL, the network and the store; http:// needs AWS_ALLOW_HTTP=true",
    ),
}


class StoreError(CommandError, OSError):
    """An object store that can't be used, as far as is known why."""

    def __init__(self, uri: str, error: Exception) -> None:
        text = " ".join(_COLOUR.sub(" ", str(error)).split())
        cause, step = next(
            (said for pattern, said in _NEXT_STEPS.items() if re.search(pattern, text)),
            ("the store answered with an error", "read the store's log, then try again"),
        )
        super().__init__(f"{uri} can't be used", why=f"{cause}: {text[:600]}", next_step=step)


@dataclass(frozen=True, slots=True)
class StorePath:
    """A prefix or an object of a store; raises StoreError where a Path raises OSError.

    uri: s3://bucket/prefix, without a slash at its end.
    """

    uri: str

    def __str__(self) -> str:
        """The URI, as delta-rs takes it."""
        return self.uri

    def __truediv__(self, name: str) -> "StorePath":
        """Return the path of `name` under this one."""
        return StorePath(f"{self.uri}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return self.uri.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The last part, without its suffix."""
        return Path(self.name).stem

    def absolute(self) -> "StorePath":
        """Itself: a URI is never relative."""
        return self

    def read_bytes(self) -> bytes:
        """The whole object, in two requests; raises FileNotFoundError when there is none."""
        with store_errors(self), _file_system().open_input_stream(self._key) as stream:
            return bytes(stream.read())

    def write_bytes(self, data: bytes) -> None:
        """Write the object whole, over what was there."""
        with store_errors(self), _file_system().open_output_stream(self._key) as stream:
            stream.write(data)

    def unlink(self) -> None:
        """Remove the object; raises FileNotFoundError when there is none."""
        with store_errors(self):
            _file_system().delete_file(self._key)

    def exists(self) -> bool:
        """Return True if the object exists, in one request; a prefix is no object."""
        try:
            with store_errors(self):
                _file_system().open_input_stream(self._key).close()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Return True if there is any object under it."""
        return bool(self._listed())

    def glob(self, pattern: str) -> list["StorePath"]:
        """The objects right under it whose names match."""
        names = (info.base_name for info in self._listed())
        return [self / name for name in names if fnmatchcase(name, pattern)]

    def modified_ms(self) -> int:
        """Return the latest possible write time of the object, ms since 1970.

        Stores give whole seconds: this is the end of that second. Raises FileNotFoundError when
        there is none.
        """
        with store_errors(self):
            written_ns = _file_system().get_file_info(self._key).mtime_ns
        if written_ns is None:
            raise FileNotFoundError(self.uri)
        return int(written_ns) // 1_000_000 + 999

    @property
    def _key(self) -> str:
        return self.uri.partition("://")[2]

    def _listed(self) -> list[arrow_fs.FileInfo]:
        wanted = arrow_fs.FileSelector(self._key, allow_not_found=True)
        with store_errors(self):
            found: list[arrow_fs.FileInfo] = _file_system().get_file_info(wanted)
        return found


TablePlace: TypeAlias = Path | StorePath
"""Place of tables; delta-rs takes its `str`."""


def table_place(where: str | Path | StorePath) -> TablePlace:
    """The place that a path or URI names.

    For argparse too: raises ArgumentTypeError for a URI that is neither of a store nor a folder.
    """
    if not isinstance(where, str):
        return where
    found = urlsplit(where) if "://" in where else None
    if found is None:
        return usable_path(where)
    if found.scheme == "file":
        return usable_path(unquote(found.path, errors="surrogateescape"))
    if found.scheme not in _SCHEMES or not found.netloc:
        raise ArgumentTypeError(
            f"tables can be in a folder or under s3://bucket/prefix, not in {where}"
        )
    return StorePath(f"s3://{found.netloc}{found.path}".rstrip("/"))


def usable_path(where: str) -> Path:
    """Return the folder that an argument names. Raises ArgumentTypeError."""
    try:
        check_folder(Path(where))
    except MisuseError as error:
        raise ArgumentTypeError(f"{error.what}: {error.why}") from None
    return Path(where)


def is_store(place: str | TablePlace) -> bool:
    """Return True if a place, or a table's URI, is in an object store."""
    return str(place).startswith(tuple(f"{scheme}://" for scheme in _SCHEMES))


def delta_options(place: str | TablePlace) -> dict[str, str] | None:
    """Return the storage options that delta-rs needs to open or create a table."""
    return dict(_OPTIONS) if is_store(place) else None


@contextmanager
def store_errors(place: str | TablePlace) -> Iterator[None]:
    """Raise StoreError for a store's errors; others, and a disk's, unchanged."""
    try:
        yield
    except (StoreError, FileNotFoundError):
        raise
    except (OSError, DeltaError, pa.ArrowException) as error:
        is_theirs = type(error) in (OSError, DeltaError, PermissionError) and not error.args[1:]
        is_theirs = is_theirs and bool(_OF_A_STORE.search(str(error)))
        if not is_store(place) or not is_theirs:  # a disk's own errors have a number first
            raise
        raise StoreError(str(place), error) from error


def _file_system() -> arrow_fs.S3FileSystem:
    """Arrow's client: unlike delta-rs's own it lets other threads run while it waits."""
    return _made_file_system(os.getpid(), os.environ.get("AWS_ENDPOINT_URL", ""))


@lru_cache(maxsize=4)
def _made_file_system(process: int, endpoint_url: str) -> arrow_fs.S3FileSystem:  # noqa: ARG001 a fork needs its own
    endpoint = urlsplit(endpoint_url)
    there = {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
    return arrow_fs.S3FileSystem(
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1",
        connect_timeout=_CONNECT_TIMEOUT_S,
        request_timeout=_REQUEST_TIMEOUT_S,
        retry_strategy=arrow_fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        **(there if endpoint.netloc else {}),
    )
