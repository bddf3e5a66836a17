"""Sends an answer that goes on for as long as the client listens.

Decides when a client is given up: it has left, or has not taken a part within a bound. Source:
ours.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple, TypeAlias

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

SEND_TIMEOUT_S = 20.0


class ClientConnection(NamedTuple):
    """A client's connection. seconds: how long the answer may go on, None = as long as it likes."""

    receive: Receive
    send: Send
    seconds: float | None = None


async def send_parts(
    parts: AsyncIterator[bytes], wire: ClientConnection, streams: "set[asyncio.Future[None]]"
) -> None:
    """Send each part as it comes, until they end, time is up, the client leaves or is too slow.

    streams: holds, while this runs, the future whose cancellation ends the answer properly; of no
    use to one that is not whole before its end.
    """
    send = wire.send
    gone = asyncio.ensure_future(until_gone(wire.receive))
    streams.add(gone)
    end = None
    if wire.seconds is not None:
        end = asyncio.get_running_loop().call_later(wire.seconds, gone.cancel)
    try:
        while (part := await _next(parts, gone)) is not None:
            message = {"type": "http.response.body", "body": part, "more_body": True}
            await asyncio.wait_for(send(message), SEND_TIMEOUT_S)
        if gone.cancelled() or not gone.done():
            await send({"type": "http.response.body", "body": b""})
    except asyncio.TimeoutError:
        return  # the server closes the connection of an answer that was not ended
    finally:
        if end is not None:
            end.cancel()
        streams.discard(gone)
        gone.cancel()
        close = getattr(parts, "aclose", None)
        if close is not None:
            await close()


async def _next(parts: AsyncIterator[bytes], gone: "asyncio.Future[None]") -> bytes | None:
    """The next part, None after the last one or when the client has left."""
    step = asyncio.ensure_future(_take(parts))
    try:
        waited: set[asyncio.Future[Any]] = {step, gone}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not step.done():
            step.cancel()
            await asyncio.wait({step})
    return None if step.cancelled() else step.result()


async def _take(parts: AsyncIterator[bytes]) -> bytes | None:
    async for part in parts:
        return part
    return None


async def until_gone(receive: Receive) -> None:
    """Until the client has closed the connection; whatever it sends besides is dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass
