"""Who may use the API, and what browsers may do with the page."""

import hmac

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PROTECTED = ("/v1/", "/metrics", "/openapi.json")
"""Prefixes of paths that need the token. The page and the health checks have no secrets."""

HEADERS = {
    # The page loads nothing from other hosts, runs no inline script, and cannot be framed.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Security:
    """Middleware that checks the bearer token, if there is one, and adds security headers."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._expected = token and f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        if self._is_allowed(scope):
            await self._app(scope, receive, send_with_headers)
            return
        refusal = JSONResponse(
            {"detail": "expected the header Authorization: Bearer TOKEN with a valid token"},
            401,
            {"WWW-Authenticate": "Bearer", "Connection": "close"},
        )
        await refusal(scope, receive, send_with_headers)

    def _is_allowed(self, scope: Scope) -> bool:
        if not self._expected or not scope["path"].startswith(_PROTECTED):
            return True
        given = next((v for k, v in scope["headers"] if k == b"authorization"), b"")
        return hmac.compare_digest(given, self._expected)  # in constant time
