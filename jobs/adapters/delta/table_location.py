"""Place of the tables: a local folder, or a prefix in an object store or HDFS.

Decides which places can be used, how a store is reached, and the error text when it can't be. A
`StorePath` is what the readers of the tables use of `pathlib.Path`, on a pyarrow file system. Keys
and endpoints come from the environment alone, under the names that the store's own tools know.
delta-rs commits with a conditional PUT, which succeeds for only one of two writers. A store that
ignores the condition can't hold tables.
"""

import json
import os
import re
from argparse import ArgumentTypeError
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as arrow_fs
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler

from jobs.adapters.processes.preflight import check_folder
from jobs.console import CommandError, MisuseError

_ALIASES: Mapping[str, str] = {"s3a": "s3", "abfs": "abfss"}
PLACES = (
    "a folder, s3://BUCKET/PREFIX, abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX, "
    "gs://BUCKET/PREFIX or hdfs://HOST:PORT/PREFIX"
)
"""The places that tables can be in, as help and errors write them."""
_CONNECT_TIMEOUT_S = 5
_REQUEST_TIMEOUT_S = 30
_ATTEMPTS = 3
_RETRY_LIMIT_S = 10
_OPTIONS: Mapping[str, str] = {
    "connect_timeout": f"{_CONNECT_TIMEOUT_S}s",
    "timeout": f"{_REQUEST_TIMEOUT_S}s",
    "retry_timeout": "30s",
}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m|↳")
_STORE_ERROR_TEXT = re.compile(
    r"S3|AWS|GCS|google::cloud|Azure|[Hh][Dd][Ff][Ss]|[Oo]bject ?[Ss]tore|http|credential"
)
_NEXT_STEPS: Mapping[str, tuple[str, str]] = {
    r"NoSuchBucket|bucket does not exist|ContainerNotFound": (
        "there is no such bucket",
        "make the {bucket}, or name another one; the job makes what lies in it",
    ),
    r"configured region|PermanentRedirect|HTTP status 301|AuthorizationHeaderMalformed": (
        "the bucket is in another region",
        "set AWS_REGION to the region of the bucket",
    ),
    r"169\.254\.|metadata\.google|[Cc]redentials? ?provider|NoCredentials|token request"
    r"|OAuth2 access token|loading credentials": (
        "no credentials were found",
        "set {keys}, or give the process a role",
    ),
    r"\b40[13]\b|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ACCESS_DENIED"
    r"|AccessControlException": (
        "the store refused access",
        "check {keys} and the rights of that user",
    ),
    r"error sending request|[Cc]onnect|lookup address|NETWORK_CONNECTION|timed out"
    r"|URL scheme is not allowed": (
        "the store can't be reached",
        "check {address}, the network and the store",
    ),
}
_VARIABLES: Mapping[str, Mapping[str, str]] = {
    "s3": {
        "bucket": "bucket",
        "keys": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION",
        "address": "AWS_ENDPOINT_URL (http:// needs AWS_ALLOW_HTTP=true)",
    },
    "abfss": {
        "bucket": "container",
        "keys": "AZURE_STORAGE_ACCOUNT_KEY, or AZURE_CLIENT_ID with its secret or token file",
        "address": "the account's name in the URI",
    },
    "gs": {
        "bucket": "bucket",
        "keys": "GOOGLE_APPLICATION_CREDENTIALS (a file with a service account's key)",
        "address": "STORAGE_EMULATOR_HOST, if it is set",
    },
    "hdfs": {
        "bucket": "folder",
        "keys": "HADOOP_CONF_DIR and HADOOP_USER_NAME",
        "address": "the host and port in the URI, HADOOP_CONF_DIR",
    },
}


class StoreError(CommandError, OSError):
    """An object store that can't be used; its text names the cause if it is known."""

    def __init__(self, uri: str, error: Exception) -> None:
        text = " ".join(_COLOUR.sub(" ", str(error)).split())
        cause, step = next(
            (known for pattern, known in _NEXT_STEPS.items() if re.search(pattern, text)),
            ("the store answered with an error", "read the store's log, then try again"),
        )
        super().__init__(
            f"{uri} can't be used",
            why=f"{cause}: {text[:600]}",
            next_step=step.format_map(_VARIABLES[_scheme(uri)]),
        )


@dataclass(frozen=True, slots=True)
class StorePath:
    """A prefix or an object of a store; raises StoreError where a Path raises OSError.

    uri: as delta-rs takes it, without a slash at its end.
    """

    uri: str

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str) -> "StorePath":
        return StorePath(f"{self.uri}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return self.uri.rpartition("/")[2]

    def absolute(self) -> "StorePath":
        """Itself: a URI is never relative."""
        return self

    def read_bytes(self) -> bytes:
        """The whole object, in two requests; FileNotFoundError when there is none."""
        with store_errors(self), self._store.open_input_stream(self._key) as stream:
            return bytes(stream.read())

    def write_bytes(self, data: bytes) -> None:
        """Write the object whole, over what was there."""
        store = self._store
        with store_errors(self):
            if isinstance(store, arrow_fs.PyFileSystem):
                handler = store.handler._handler  # noqa: SLF001 its own stream takes bytes, Arrow's none
                stream = handler.open_output_stream(self._key, None)
            else:
                stream = store.open_output_stream(self._key)
            stream.write(data)
            stream.close()

    def unlink(self) -> None:
        """Remove the object; raises FileNotFoundError when there is none."""
        with store_errors(self):
            self._store.delete_file(self._key)

    def exists(self) -> bool:
        """Return True if the object exists, in one request; a prefix is no object."""
        try:
            with store_errors(self):
                self._store.open_input_stream(self._key).close()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Return True if there is any object under it."""
        return bool(self._listed())

    def glob(self, pattern: str) -> list["StorePath"]:
        """The objects right under it whose names match."""
        found = self._listed()
        return [self / one.base_name for one in found if fnmatchcase(one.base_name, pattern)]

    def modified_ms(self) -> int:
        """Return the latest possible write time of the object, ms since 1970.

        Stores give whole seconds: this is the end of that second. Raises FileNotFoundError when
        there is none.
        """
        with store_errors(self):
            written_ns = self._store.get_file_info(self._key).mtime_ns
        if written_ns is None:
            raise FileNotFoundError(self.uri)
        return int(written_ns) // 1_000_000 + 999

    @property
    def _key(self) -> str:
        return urlsplit(self.uri).path.lstrip("/")

    @property
    def _store(self) -> arrow_fs.FileSystem:
        scheme, _, rest = self.uri.partition("://")
        addresses = (os.environ.get(name, "") for name in _ADDRESS_VARIABLES)
        return _file_system(os.getpid(), scheme, rest.partition("/")[0], *addresses)

    def _listed(self) -> list[arrow_fs.FileInfo]:
        wanted = arrow_fs.FileSelector(self._key, allow_not_found=True)
        with store_errors(self):
            return list(self._store.get_file_info(wanted))


TablePlace: TypeAlias = Path | StorePath
"""Place of tables; delta-rs takes its `str`."""


def table_place(where: str | Path | StorePath) -> TablePlace:
    """The place that a path or URI names.

    For argparse too: raises ArgumentTypeError for a URI of neither a store nor a folder.
    """
    if not isinstance(where, str):
        return where
    if "://" not in where:
        return usable_path(where)
    found = urlsplit(where)
    if found.scheme == "file":
        return usable_path(unquote(found.path, errors="surrogateescape"))
    scheme = _ALIASES.get(found.scheme, found.scheme)
    is_whole = found.netloc and (
        scheme != "abfss" or re.fullmatch(r"[^@]+@[^@.]+\..+", found.netloc)
    )
    if scheme not in _VARIABLES or not is_whole or found.query or found.fragment:
        raise ArgumentTypeError(f"tables can be in {PLACES}, not in {where}")
    return StorePath(f"{scheme}://{found.netloc}{found.path}".rstrip("/"))


def usable_path(where: str) -> Path:
    """Return the folder that an argument names. Raises ArgumentTypeError."""
    try:
        check_folder(Path(where))
    except MisuseError as error:
        raise ArgumentTypeError(f"{error.what}: {error.why}") from None
    return Path(where)


def is_store(place: str | TablePlace) -> bool:
    """Return True if a place, or a table's URI, is in an object store or HDFS."""
    return _scheme(place) in _VARIABLES


def spark_uri(place: TablePlace) -> str:
    """Return the place as Spark's file systems name it: `s3a://` for S3."""
    return re.sub("^s3:", "s3a:", str(place))


def _scheme(place: str | TablePlace) -> str:
    return str(place).partition("://")[0]


def delta_options(place: str | TablePlace) -> dict[str, str] | None:
    """Return the storage options that delta-rs needs to open or create a table."""
    if not is_store(place):
        return None
    emulator = os.environ.get(_GOOGLE_EMULATOR, "")
    if _scheme(place) == "s3":
        return {**_OPTIONS, "aws_conditional_put": "etag"}
    if _scheme(place) == "gs" and emulator:
        account = {"gcs_base_url": emulator, "disable_oauth": True}
        account |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        key = {"google_service_account_key": json.dumps(account)}
        return {**_OPTIONS, **key, "allow_http": str(emulator.startswith("http://")).lower()}
    return dict(_OPTIONS)


@contextmanager
def store_errors(place: str | TablePlace) -> Iterator[None]:
    """Raise StoreError for errors of a store; others pass through unchanged."""
    try:
        yield
    except (OSError, DeltaError, pa.ArrowException) as error:
        # neither a StoreError nor a FileNotFoundError
        is_client_error = type(error) in (OSError, DeltaError, PermissionError, pa.ArrowInvalid)
        is_of_disk = getattr(error, "filename", None) is not None
        if (
            not is_store(place)
            or not is_client_error
            or is_of_disk
            or not _STORE_ERROR_TEXT.search(str(error))
        ):
            raise
        raise StoreError(str(place), error) from error


_GOOGLE_EMULATOR = "STORAGE_EMULATOR_HOST"
_ADDRESS_VARIABLES = ("AWS_ENDPOINT_URL", _GOOGLE_EMULATOR, "AZURITE_BLOB_STORAGE_URL")


@lru_cache(maxsize=16)
def _file_system(process: int, scheme: str, root: str, *addresses: str) -> arrow_fs.FileSystem:  # noqa: ARG001 a fork needs its own
    """The file system of a bucket.

    Arrow's own client where it can be used: unlike delta-rs's it lets other threads run while it
    waits. Arrow's for Azure ends the process where it finds no token, and the one for HDFS needs
    Hadoop's native library.
    """
    if scheme not in ("s3", "gs"):
        uri = f"{scheme}://{root}"
        return arrow_fs.PyFileSystem(DeltaStorageHandler(uri, delta_options(uri)))
    endpoint = urlsplit(addresses[0 if scheme == "s3" else 1])
    options: dict[str, Any] = {}
    if endpoint.netloc:
        options = {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
    if scheme == "s3":
        client = arrow_fs.S3FileSystem(
            region=os.environ.get("AWS_REGION")
            or os.environ.get("AWS_DEFAULT_REGION")
            or "us-east-1",
            connect_timeout=_CONNECT_TIMEOUT_S,
            request_timeout=_REQUEST_TIMEOUT_S,
            retry_strategy=arrow_fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            **options,
        )
    else:
        limit = timedelta(seconds=_RETRY_LIMIT_S)
        client = arrow_fs.GcsFileSystem(
            retry_time_limit=limit, anonymous=bool(endpoint.netloc), **options
        )
    return arrow_fs.SubTreeFileSystem(root, client)
