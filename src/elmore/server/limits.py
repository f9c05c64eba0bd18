"""A middleware that reads the bodies of requests, up to a size and within a time."""

import asyncio

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmore.server.setup import Limits

CROWDED = "crowded"
"""Key in the state of requests on a connection above the limit, which are answered with 429."""


class BodyLimit:
    """Middleware that reads the body of a request before the app sees it.

    A body that is too large is refused with 413 as soon as that is known; one that does not arrive
    within the time limit, with 408; any request on a connection above the limit, with 429.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope.get("state", {}).get(CROWDED):
            await _refuse(429, "too many connections; try again in 1 s")(scope, receive, send)
            return
        limit = self._limits.max_body
        too_large = _refuse(413, f"expected a body of up to {limit:,} bytes")
        if _announced_length(scope) > limit:
            # Before the first receive(), which asks clients that wait for "100 Continue" to send.
            await too_large(scope, receive, send)
            return
        refusal: JSONResponse | None = None
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.time_limit):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > limit:
                        refusal = too_large
                        break
        except TimeoutError:
            refusal = _refuse(408, "the body of the request did not arrive in time")
        if refusal:
            await refusal(scope, receive, send)
            return
        unread: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Message:
            return unread.pop() if unread else await receive()

        await self._app(scope, replay, send)


def _announced_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _refuse(status: int, detail: str) -> JSONResponse:
    retry = {"Retry-After": "1"} if status == 429 else {}
    return JSONResponse({"detail": detail}, status, {"Connection": "close", **retry})
