"""Connections: how many there may be, and how long a client may keep one busy."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from elmore.server.limits import CROWDED
from elmore.server.setup import Limits

_TOLD = 64
"""Connections above the limit that are told why; more are closed at once."""
_HEADER_SECONDS = 10.0


def limited_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol of an HTTP connection, with limits of its own.

    uvicorn waits forever for the headers of a request, and for a client to read a response. The
    faster protocol on httptools, if installed, does not limit the size of headers; h11 does.
    """

    class LimitedProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            above = len(self.connections) - limits.max_connections
            if above > 0:
                self.app_state = {**self.app_state, CROWDED: True}
            if above > _TOLD:
                transport.abort()
            self._start_timer(min(_HEADER_SECONDS, limits.time_limit))

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_timer()  # the headers are complete; BodyLimit waits for the body
            elif self._timer is None:
                self._start_timer(min(_HEADER_SECONDS, limits.time_limit))

        def pause_writing(self) -> None:
            super().pause_writing()
            self._start_timer(limits.time_limit)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop_timer()

        def _start_timer(self, seconds: float) -> None:
            self._stop_timer()
            self._timer = self.loop.call_later(seconds, self.transport.abort)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return LimitedProtocol
