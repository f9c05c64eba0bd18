"""What the server and its workers send to each other."""

from collections.abc import Sequence
from typing import Any, NamedTuple

JSON, ARROW, NPY = "application/json", "application/vnd.apache.arrow.file", "application/x-npy"


class Answer(NamedTuple):
    """A response."""

    status: int
    body: bytes
    media_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class Batch(NamedTuple):
    """Requests to one model or to one task."""

    kind: str
    """`model` or `task`."""

    name: str
    requests: Sequence[Any]
