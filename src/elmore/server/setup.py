"""What a server loads, and the limits of its requests."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path, PurePath
from typing import Literal

from elmore.checkpoint.locate import MODELS, package_folders
from elmore.errors import InputError
from elmore.schema import at_least, check


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

    max_response: int = 32_000_000
    """Maximum size of the vectors in a response, in bytes, estimated before they are computed."""

    max_connections: int = 512
    """Maximum number of open connections; requests on further ones are answered with 429."""

    max_queue: int = 8192
    """Maximum number of words that wait to be computed, estimated from the length of the texts;
    further requests are answered with 429."""

    time_limit: float = 30.0
    """Seconds until a request fails: 408 if its body is late, 429 if it is still waiting, 504 if
    it is being computed. A connection is closed if its client takes longer to read a response, or
    more than 10 s to send the headers of a request."""

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

    def check_response(self, numbers: int, bytes_per_number: int) -> None:
        """Raise `InputError` if a response would be too large."""
        if (size := numbers * bytes_per_number) > self.max_response:
            raise InputError(
                f"the response would have about {size / 1e6:,.0f} MB; expected up to "
                f"{self.max_response / 1e6:,.0f} MB. Send less text, or ask for one layer, pooling "
                "or the format npy"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What a server loads."""

    models: Mapping[str, str] = field(default_factory=lambda: {"en": "en"})
    """Names in the API, and what `elmore.load` takes. The first one is the default."""

    tasks: Mapping[str, str] = field(default_factory=dict)
    """Names in the API, and folders or names of trained tasks."""

    corpora: Mapping[str, str] = field(default_factory=dict)
    """Names of models, and text files in which their neighbors are searched. English and Korean
    models have a corpus without this."""

    limits: Limits = field(default_factory=Limits)
    device: str = "auto"
    precision: Literal["fp32", "bf16", "int8"] = "fp32"
    threads: int | None = None
    """Threads of a worker."""

    def __post_init__(self) -> None:
        check("threads", self.threads, at_least(1), optional=True)


def default_models() -> tuple[str, ...]:
    """Return the English model and, if its package is installed, the Korean one.

    These are the languages of the page.
    """
    installed = entry_points(group=MODELS, name="ko")
    folders = [folder for point in installed for folder in package_folders(point.value)[0]]
    # The folder, because a file called ko in the working directory takes precedence over the name.
    return ("en", *(f"ko={folder}" for folder in folders[:1]))


def parse_names(values: Iterable[str], installed: Container[str] = ()) -> dict[str, str]:
    """Map names to sources, given as NAME=SOURCE or as a path, whose last part is the name.

    Args:
        values: The sources.
        installed: Sources that are names already, such as en/ner.

    Raises:
        InputError: If two sources have the same name.
    """
    sources: dict[str, str] = {}
    for value in values:
        name, source = _split(value)
        if name is None:
            name = value if value in installed else PurePath(value).name
        if not name or not source:
            raise InputError(f"expected NAME=PATH or a path, got {value!r}")
        if name in sources:
            raise InputError(f"two are called {name}; give one another name, as in other={source}")
        sources[name] = source
    return sources


def choose_tasks(values: Iterable[str], models: Mapping[str, str]) -> dict[str, str]:
    """Map names to trained tasks, as `parse_names` does; `none` alone selects no task.

    By default, these are the tasks of installed packages whose biLM is one of the models.
    """
    from elmore.checkpoint.locate import installed_tasks

    values = list(values)
    if values == ["none"]:
        return {}
    installed = [task.name for task in installed_tasks()]
    if values:
        return parse_names(values, installed)
    bilms = {*models, *models.values()}
    return {name: name for name in installed if name.partition("/")[0] in bilms}


def parse_corpora(values: Iterable[str], models: Mapping[str, str]) -> dict[str, str]:
    """Map models to corpora, given as MODEL=FILE or, for the first model, as FILE.

    Raises:
        InputError: If a model has two corpora.
    """
    corpora: dict[str, str] = {}
    for value in values:
        name, file = _split(value)
        name = next(iter(models)) if name is None else name
        if not name or not file:
            raise InputError(f"expected MODEL=FILE or a file, got {value!r}")
        if name in corpora:
            raise InputError(f"{corpora[name]} and {file} are both for {name}; expected one corpus")
        corpora[name] = file
    return corpora


def _split(value: str) -> tuple[str | None, str]:
    """Return the name and the path in NAME=PATH; a path alone has no name."""
    name, separator, path = value.partition("=")
    is_path = not separator or "/" in name  # also runs/lr=0.1/ner
    return (None, value) if is_path else (name, path)


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
