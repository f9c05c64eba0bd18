"""What a server loads, and the limits of its requests."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Literal

from elmore.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The largest request that is accepted, and how much may wait."""

    max_body: int = 1_000_000
    """Maximum size of a request body, in bytes."""

    max_sentences: int = 256
    """Maximum number of sentences per request."""

    max_characters: int = 50_000
    """Maximum number of characters per request, over all sentences."""

    max_tokens: int = 4096
    """Maximum number of tokens per request, over all sentences."""

    max_sentence_tokens: int = 1024
    """Maximum number of tokens per sentence. The LSTMs read token by token, so long sentences are
    slow."""

    max_queue: int = 8192
    """Maximum number of words that wait to be computed, estimated from the length of the texts;
    further requests are answered with 429."""

    time_limit: float = 30.0
    """Seconds until a request fails: 408 if its body is late, 429 if it is still waiting, 504 if
    it is being computed."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive, got {getattr(self, name)}")

    def check_sentences(self, count: int, characters: int) -> None:
        """Raise `InputError` if a request has too much text."""
        if count > self.max_sentences:
            raise InputError(f"expected up to {self.max_sentences} sentences, got {count}")
        if characters > self.max_characters:
            raise InputError(
                f"expected up to {self.max_characters:,} characters in all, got {characters:,}"
            )

    def check_tokens(self, lengths: list[int]) -> None:
        """Raise `InputError` if a request has too many tokens."""
        if (longest := max(lengths, default=0)) > self.max_sentence_tokens:
            raise InputError(
                f"expected sentences of up to {self.max_sentence_tokens} tokens, got one of "
                f"{longest}"
            )
        if (total := sum(lengths)) > self.max_tokens:
            raise InputError(f"expected up to {self.max_tokens:,} tokens in all, got {total:,}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What a server loads."""

    models: Mapping[str, str] = field(default_factory=lambda: {"en": "en"})
    """Names in the API, and what `elmore.load` takes. The first one is the default."""

    tasks: Mapping[str, str] = field(default_factory=dict)
    """Names in the API, and folders of trained tasks."""

    corpora: Mapping[str, str] = field(default_factory=dict)
    """Names of models, and text files in which their neighbors are searched. English models have
    a corpus without this."""

    limits: Limits = field(default_factory=Limits)
    device: str = "auto"
    precision: Literal["fp32", "bf16", "int8"] = "fp32"
    threads: int | None = None
    """Threads of a worker."""

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads must be at least 1, got {self.threads}")


def parse_names(values: Iterable[str]) -> dict[str, str]:
    """Map names to sources, given as NAME=SOURCE or as a path, whose last part is the name.

    Raises:
        InputError: If two sources have the same name.
    """
    sources: dict[str, str] = {}
    for value in values:
        name, separator, source = value.partition("=")
        if not separator:
            name, source = PurePath(value).name, value
        if not name or not source:
            raise InputError(f"expected NAME=PATH or a path, got {value!r}")
        if name in sources:
            raise InputError(f"two are called {name}; give one another name, as in other={source}")
        sources[name] = source
    return sources


def parse_corpora(values: Iterable[str], models: Mapping[str, str]) -> dict[str, str]:
    """Map models to corpora, given as MODEL=FILE or, for the first model, as FILE."""
    first = next(iter(models))
    named = (value.partition("=") for value in values)
    return {name if file else first: file or name for name, _, file in named}


def read_token(path: Path) -> str:
    """Read the token from a file with one line.

    Raises:
        InputError: If the token is shorter than 16 characters, or not ASCII.
    """
    token = path.read_text(encoding="utf-8").strip()
    if len(token) < 16 or not token.isascii() or len(token.split()) != 1:
        raise InputError(
            f"{path}: expected one word of at least 16 ASCII characters. Create one with: "
            f'python -c "import secrets; print(secrets.token_urlsafe())" > {path}'
        )
    return token
