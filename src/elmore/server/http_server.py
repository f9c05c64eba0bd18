"""The HTTP server: uvicorn with the settings of elmore, which reports when it is ready."""

import math
from collections.abc import Callable
from contextlib import suppress
from socket import socket

import uvicorn
from fastapi import FastAPI

from elmore.server.connections import limited_protocol
from elmore.server.setup import Limits


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
