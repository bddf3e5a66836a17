"""A custom strategy as the loading process passes it to the configuration.

And imports nothing by name: `jobs.adapters.processes.settings` loads, `lbcore.plan` calls. It
travels in the configuration, so that whatever decides under it has it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomStrategy:
    """One strategy that is not Ballast's.

    name: what `shedding.strategy` says. origin: where its code is, "package.module:NAME". digest:
    sha256 of that code, hexadecimal. decide: see `lbcore.plan.proposal`; None = it could not be
    loaded, and problem says why and what to do.
    """

    name: str
    origin: str = ""
    digest: str = ""
    decide: Callable[..., Any] | None = None
    problem: str = ""

    @property
    def code(self) -> str:
        """Identifier of the code, short enough for a row."""
        return f"{self.origin}@{self.digest[:12]}"
