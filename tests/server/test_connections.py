"""Limits of connections. Oracles: sockets, which see when the server closes them."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest
import uvicorn

from elmore.server import connections
from elmore.server.app import create_app
from elmore.server.batching import Queue
from elmore.server.client import Client, ServerError
from elmore.server.connections import limited_protocol
from elmore.server.setup import Limits
from tests.server.conftest import LIMITS, InProcess

Start = Callable[..., "Iterator[tuple[str, int]]"]


@pytest.fixture
def serve(worker: InProcess) -> Start:
    """A function that serves on a port of its own."""

    @contextmanager
    def start(limits: Limits) -> Iterator[tuple[str, int]]:
        app = create_app(lambda m: Queue([worker], limits, m), worker.start(), limits)
        protocol = limited_protocol(limits)
        server = uvicorn.Server(uvicorn.Config(app, http=protocol, ws="none", log_level="error"))
        with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
            running = threads.submit(server.run, sockets=[listener])
            try:
                yield listener.getsockname()
            finally:
                server.should_exit = True
                running.result(30)

    return start


def test_connections_above_the_limit_are_told_why_and_more_are_dropped(
    serve: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(replace(LIMITS, max_connections=1)) as address:
        client = Client("http://{}:{}".format(*address), retries=0)
        with socket.create_connection(address):
            with pytest.raises(ServerError, match="too many connections; try again in 1 s"):
                client.models()
            monkeypatch.setattr(connections, "_TOLD", 0)
            with pytest.raises(ServerError, match="/v1/models: no response"):
                client.models()
        assert Client("http://{}:{}".format(*address)).models()["models"]
    with pytest.raises(ServerError, match=r"/v1/models: no response \(.*refused\)"):
        client.models()


def test_a_connection_without_complete_headers_is_closed(serve: Start) -> None:
    with serve(replace(LIMITS, time_limit=0.3)) as address:
        for sent in (b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"):
            with socket.create_connection(address, timeout=20) as connection:
                connection.sendall(sent)
                assert connection.recv(1) == b""
        with socket.create_connection(address, timeout=20) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(15) == b"HTTP/1.1 200 OK"


class Transport:
    """A transport to a client that does not read."""

    def __init__(self) -> None:
        self.aborted = asyncio.Event()

    def abort(self) -> None:
        self.aborted.set()

    def get_extra_info(self, name: str) -> None:
        return None


def test_a_client_that_does_not_read_its_response_is_disconnected() -> None:
    async def main() -> None:
        config = uvicorn.Config(lambda: None, log_level="error")
        config.load()
        protocol = limited_protocol(Limits(time_limit=0.05))
        slow, transport = protocol(config, uvicorn.server.ServerState(), {}), Transport()
        slow.connection_made(transport)
        slow.pause_writing()
        slow.resume_writing()
        await asyncio.sleep(0.1)
        assert not transport.aborted.is_set()
        slow.pause_writing()
        await asyncio.wait_for(transport.aborted.wait(), 10)

    asyncio.run(main())
