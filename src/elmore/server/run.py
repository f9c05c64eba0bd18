"""Start the server, and stop it without losing requests."""

import gc
import ipaddress
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from typing import Any

from elmore.errors import InputError, require
from elmore.schema import at_least, check
from elmore.server.setup import Setup
from elmore.server.worker import Worker, WorkerDiedError
from elmore.signals import interruption


def serve(
    setup: Setup,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    token: str | None = None,
    on_ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the API and the page until SIGINT or SIGTERM, then finish accepted requests.

    Args:
        setup: What to load, and the limits.
        host: Address to listen on; by default only this machine can connect.
        port: Port; 0 for any free one.
        workers: Processes that compute. Each has its own copy of the models.
        token: Bearer token that clients of the API must send.
        on_ready: Called with the address, such as http://127.0.0.1:8000, once it accepts requests.

    Raises:
        InputError: If something cannot be loaded, or an argument is invalid.
        OSError: If the port is taken.
        MissingExtraError: If the packages of the extra `serve` are not installed.
    """
    check("workers", workers, at_least(1))
    if not 0 <= port <= 65535:
        raise InputError(f"port must be from 0 to 65535, got {port}")
    pool = [Worker(setup) for _ in range(workers)]
    with ExitStack() as stack:
        for worker in pool:
            stack.callback(worker.stop)
        # While modules and models are loaded, an exception in a signal handler could get lost.
        with interruption(lambda: _kill(pool)) as interrupted:
            for module in ("uvicorn", "fastapi", "orjson", "prometheus_client"):
                require(module, extra="serve")
            from elmore.server.app import create_app
            from elmore.server.batching import Queue
            from elmore.server.http_server import HttpServer

            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host, port), family=family, backlog=1024)
            stack.callback(listener.close)
            try:
                loaded = _start(pool)
            except WorkerDiedError as error:
                if interrupted():
                    raise KeyboardInterrupt from None
                message = "a worker ended while it loaded the models; is there enough memory?"
                raise InputError(message) from error
            app = create_app(
                lambda metrics: Queue(pool, setup.limits, metrics),
                loaded,
                setup.limits,
                token=token,
                hosts=["localhost", "127.0.0.1", "[::1]", host] if is_loopback(host) else None,
            )
        if interrupted():
            raise KeyboardInterrupt
        gc.freeze()  # full garbage collections would delay all requests
        stack.callback(gc.unfreeze)
        HttpServer(app, setup.limits, lambda: on_ready(_address(listener))).run([listener])


def _start(pool: list[Worker]) -> dict[str, Any]:
    """Start the workers side by side and return what each has loaded.

    If one of them fails, the others are ended, not waited for.
    """
    with ThreadPoolExecutor(len(pool)) as threads:
        starts = [threads.submit(worker.start) for worker in pool]
        try:
            loaded, *_ = [start.result() for start in as_completed(starts)]
        except BaseException:
            _kill(pool)
            raise
        return loaded


def _kill(pool: list[Worker]) -> None:
    for worker in pool:
        worker.kill()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
