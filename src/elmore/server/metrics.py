"""What the server counts, in the format of Prometheus."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Counters of one app."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "elmore_requests",
            "Requests by route and status",
            ["route", "status"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "elmore_request_seconds",
            "Time from a request to its response, by route",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.batch_requests = Histogram(
            "elmore_batch_requests",
            "Requests per batch",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
            registry=self._registry,
        )
        self.words = Counter(
            "elmore_words", "Words computed, estimated from the requests", registry=self._registry
        )
        self.queue_words = Gauge(
            "elmore_queue_words", "Words that wait, estimated", registry=self._registry
        )
        self.worker_restarts = Counter(
            "elmore_worker_restarts", "Workers that were replaced", registry=self._registry
        )
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return all metrics."""
        return generate_latest(self._registry)


class Measure:
    """Middleware that counts and times requests by route."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        started = time.perf_counter()

        async def count(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Not the path, of which there are arbitrarily many.
                route = getattr(scope.get("route"), "path", "other")
                self._metrics.requests.labels(route, message["status"]).inc()
                self._metrics.seconds.labels(route).observe(time.perf_counter() - started)
            await send(message)

        await self._app(scope, receive, count)
