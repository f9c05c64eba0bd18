"""A client of `elmore serve`, with nothing but the standard library and numpy."""

import json
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from io import BytesIO
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import numpy as np
from jaxtyping import Float32

from elmore.errors import InputError


class ServerError(Exception):
    """The server cannot be reached, is too busy, or failed; the request may be valid."""


class Client:
    """Calls the API of a server.

    Client("http://127.0.0.1:8000").embed(["He sat by the bank."])

    Methods raise `InputError` if the server rejects a request, and `ServerError` if it cannot be
    reached or fails.

    Args:
        url: Address of the server.
        token: Its token, if it needs one.
        timeout: Seconds to wait for a response.
        retries: How often to try again when the server is busy.
    """

    def __init__(
        self, url: str, *, token: str | None = None, timeout: float = 60, retries: int = 5
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InputError(f"expected an address such as http://127.0.0.1:8000, got {url!r}")
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout = timeout
        self._retries = retries

    def embed(
        self,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        *,
        layers: str | int = "all",
        model: str | None = None,
        batch_size: int = 64,
    ) -> list[Float32[np.ndarray, "..."]]:
        """Return what `Embedder.embed` does: an array per sentence.

        Args:
            sentences: Strings, or lists of tokens.
            layers: `all`, `top`, `average`, `sum` or the number of a layer.
            model: Name of a model; by default the first one of the server.
            batch_size: Sentences per request.
        """
        _require_list(sentences)
        field = "texts" if all(isinstance(sentence, str) for sentence in sentences) else "tokens"
        arrays: list[np.ndarray] = []
        for start in range(0, len(sentences), batch_size):
            batch = [*sentences[start : start + batch_size]]
            request = {field: batch, "layers": layers, "model": model, "format": "npy"}
            body, headers = self._send("/v1/embed", request)
            joined = np.load(BytesIO(body), allow_pickle=False)
            ends = np.cumsum([int(length) for length in headers["X-Lengths"].split(",")])
            arrays += np.split(joined, ends[:-1], axis=-2)
        return arrays

    def similarity(self, first: str, second: str, *, model: str | None = None) -> list[float]:
        """Return the cosine similarity of two words by layer.

        Args:
            first: A sentence with one word in brackets, such as `He sat by the [bank].`.
            second: Another one.
            model: Name of a model.
        """
        request = {"first": {"text": first}, "second": {"text": second}, "model": model}
        return self._call("/v1/similarity", request)["layers"]

    def neighbors(
        self, query: str, *, k: int = 5, layer: str | int = "top", model: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the words of the server's corpus that are most similar to the one in brackets."""
        request = {"word": {"text": query}, "k": k, "layer": layer, "model": model}
        return self._call("/v1/neighbors", request)["neighbors"]

    def predict(self, task: str, inputs: Sequence[str | dict[str, str]]) -> list[dict[str, Any]]:
        """Return the predictions of a trained task; see `elmore predict`.

        Args:
            task: Its name, such as `en/ner`.
            inputs: Texts; for a task with several, dicts such as `{"question": "Where did Ada
                live?", "passage": "Ada lived in London."}`. An invalid input gives a dict with the
                key `error`.
        """
        _require_list(inputs)
        return self._call(f"/v1/tasks/{quote(task, safe='')}", {"inputs": [*inputs]})["predictions"]

    def models(self) -> dict[str, Any]:
        """Return the models, tasks and limits of the server."""
        return self._call("/v1/models", None)

    def _call(self, path: str, request: dict[str, Any] | None) -> Any:
        return json.loads(self._send(path, request)[0])

    def _send(self, path: str, request: dict[str, Any] | None) -> tuple[bytes, Any]:
        data = None if request is None else json.dumps(request).encode()
        headers = {"Content-Type": "application/json", **self._headers}
        for attempt in range(self._retries + 1):
            try:
                sent = Request(self._url + path, data, headers)  # noqa: S310
                with urlopen(sent, timeout=self._timeout) as response:  # noqa: S310
                    return response.read(), response.headers
            except HTTPError as error:
                with error:
                    if error.code == 429 and attempt < self._retries:
                        time.sleep(float(error.headers.get("Retry-After", 1)))
                        continue
                    failed = error.code == 429 or error.code >= 500
                    kind = ServerError if failed else InputError
                    raise kind(f"{path}: {_detail(error)}") from error
            except (OSError, HTTPException) as error:  # also URLError and timeouts
                reason = str(getattr(error, "reason", error)) or type(error).__name__
                raise ServerError(f"{self._url}{path}: no response ({reason})") from error
        raise AssertionError


def _require_list(texts: object) -> None:
    if isinstance(texts, str | Mapping):
        raise TypeError(f"expected a list, got {type(texts).__name__}; put it in a list")


def _detail(error: HTTPError) -> str:
    try:
        return json.load(error)["detail"]
    except (ValueError, KeyError, TypeError):
        return f"HTTP {error.code}"
