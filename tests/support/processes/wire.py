"""A connection without a network: what a protocol writes is kept, and its other end is patient."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from jobs.adapters.http.protocol import Account, BoundedProtocol, Bounds


class Transport(asyncio.Transport):
    """A connection whose other end takes everything."""

    def __init__(self, protocol: Any) -> None:
        super().__init__({"peername": ("10.0.0.1", 1), "sockname": ("10.0.0.2", 2)})
        self.protocol, self.written, self.is_closed, self.is_paused = protocol, b"", False, False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def write(self, data: Any) -> None:
        """Nothing is written after the end."""
        if not self.is_closed:
            self.written += bytes(data)

    def close(self) -> None:
        """Both ends know at once."""
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        """Whether it is closed."""
        return self.is_closed

    def pause_reading(self) -> None:
        """The kernel holds what comes."""
        self.is_paused = True

    def resume_reading(self) -> None:
        """Go on."""
        self.is_paused = False

    def get_write_buffer_size(self) -> int:
        """All was taken."""
        return 0


def bounded_protocol(bounds: Bounds, account: Account) -> type[HttpToolsProtocol]:
    """The protocol class with these bounds, whose connections share the account."""
    return type("BoundedProtocol", (BoundedProtocol,), {"bounds": bounds, "account": account})
