"""The HTTP server, and its connections: how many there may be, and how long each may take."""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from socket import socket

import uvicorn
from fastapi import FastAPI
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


class HttpServer(uvicorn.Server):
    """Serves an app until SIGINT or SIGTERM, then finishes accepted requests.

    Args:
        app: What to serve.
        limits: Limits of connections.
        on_ready: Called once the server accepts requests and handles signals.
    """

    def __init__(self, app: FastAPI, limits: Limits, on_ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            http=limited_protocol(limits),
            ws="none",
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=math.ceil(2 * limits.time_limit),
        )
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Start to accept requests, and report it."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    def run(self, sockets: list[socket] | None = None) -> None:
        """Serve until a signal is received."""
        with suppress(KeyboardInterrupt):  # raised for SIGINT once the server has shut down
            super().run(sockets)
