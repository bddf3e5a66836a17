"""Reads that take long, in threads of their own, a few at a time.

Decides how many may run at once, so that reading old tables never holds lookups up. Source: ours.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from jobs.adapters.follower_view import boot_ms
from jobs.adapters.table_reader import TableReader
from jobs.admin.access import Role
from jobs.admin.context import AdminContext
from jobs.admin.exchange import RETRY, HttpError, Request
from jobs.console import CommandError
from lbcore.model import names

Value = TypeVar("Value")

_READERS = 2
_WAITING_MAX = 32


class _Readers:
    """A small pool, and a count of those who wait for it."""

    def __init__(self) -> None:
        self.waiting = 0
        self.pool = ThreadPoolExecutor(_READERS, thread_name_prefix="ballast-reads")


_readers = _Readers()


async def in_background(context: AdminContext, read: Callable[[TableReader], Value]) -> Value:
    """What `read` gives for the cluster's tables; raises HttpError 503 when that can't be."""
    if _readers.waiting >= _WAITING_MAX:
        raise HttpError(503, "Too many reads of the tables are under way", RETRY)

    def read_all() -> Value:
        return read(TableReader(context.views.root, context.cluster))

    _readers.waiting += 1
    try:
        return await asyncio.get_running_loop().run_in_executor(_readers.pool, read_all)
    except CommandError as error:
        raise HttpError(503, error.what, RETRY) from None
    finally:
        _readers.waiting -= 1


class Kept:
    """What was read last of each cluster, which is read anew only after `keep_s`.

    By the clock that counts suspension: what was read before is not of now.
    """

    def __init__(self, keep_s: float) -> None:
        self._keep_ms = round(keep_s * 1_000)
        self._made: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {}

    async def get(
        self, context: AdminContext, read: Callable[[TableReader], dict[str, Any]]
    ) -> dict[str, Any]:
        """Of this cluster, `keep_s` old at most; raises HttpError 503 when that can't be."""
        key = (str(context.views.root), context.cluster)
        made_ms, value = self._made.get(key, (-self._keep_ms, {}))
        if boot_ms() - made_ms < self._keep_ms:
            return value
        value = await in_background(context, read)
        self._made[key] = (boot_ms(), value)
        return value


def require(request: Request, context: AdminContext, role: Role, tenant: str = "*") -> None:
    """Raises HttpError 403 when the caller has not this role on the tenant ("*": the cluster)."""
    if not request.caller.may(role, context.cluster, tenant):
        where = "the cluster" if tenant == "*" else f"tenant {tenant}"
        raise HttpError(403, f"{request.caller.name} is not {role.name.lower()} of {where}")


def tenant_of(name: str) -> str:
    """The tenant in a namespace's or a bundle's name, "*" for none."""
    return names.tenant_of(name) or "*"
