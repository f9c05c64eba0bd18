"""Trained tasks: used for predictions, and scored."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, overload

import torch

from elmore.errors import InputError, warn_user
from elmore.tasks.config import TaskConfig
from elmore.tasks.encoder import Encoder
from elmore.tasks.fit import predict
from elmore.tasks.labels import check_labels
from elmore.tasks.layers import LayerCache
from elmore.tasks.task import Labels, Task, TaskModel
from elmore.tasks.vectors import WordVectors
from elmore.tasks.words import MAX_CACHED, WordEncoder, WordIndex, Words
from elmore.text.tokenize import (
    Tokenizer,
    TokenizerName,
    choose_tokenization,
    get_tokenizer,
)


class Outcome(NamedTuple):
    """The result of one line of input: a prediction for its example, or an error."""

    example: Any
    prediction: Any
    error: str | None = None


class TrainedTask(NamedTuple):
    """A task with its model, as `load` returns it. Call it with a text, or with a list of texts."""

    task: Task[Any, Any, Any]
    config: TaskConfig
    labels: Labels
    model: TaskModel[Any, Any]
    encode: WordEncoder

    def __repr__(self) -> str:
        return f"TrainedTask({self.task.name}, device={self.encode.device})"

    @overload
    def __call__(self, text: str, /, *more: str) -> dict[str, Any]: ...
    @overload
    def __call__(self, texts: Mapping[str, str], /) -> dict[str, Any]: ...
    @overload
    def __call__(self, inputs: Sequence[Any], /) -> list[dict[str, Any]]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, inputs: Iterable[Any], /) -> Iterator[dict[str, Any]]: ...
    def __call__(
        self, inputs: Iterable[Any], /, *more: str
    ) -> dict[str, Any] | list[dict[str, Any]] | Iterator[dict[str, Any]]:
        """Return predictions as JSON-serializable dicts.

        task(text)                  one dict
        task(premise, hypothesis)   one dict, for tasks with more than one text
        task({"premise": premise, "hypothesis": hypothesis})   the same
        task(texts)                 one dict per item of a list
        task(iterable)              an iterator, which reads the iterable in batches; see `pipe`

        A text has the format of a line of `elmore predict`. Items of lists and iterables are texts,
        lists of tokens, or tuples or dicts for tasks with more than one text.

        Raises:
            InputError: If a text does not have this format.
        """
        if isinstance(inputs, str | Mapping) or _is_named_tuple(inputs):
            if more and not isinstance(inputs, str):
                raise TypeError(f"expected texts, got {type(inputs).__name__} and other arguments")
            example = self._example((inputs, *more) if more else inputs)
            [prediction] = self.predict([example])
            return self.task.as_json(example, prediction, self.config)
        if more or not isinstance(inputs, Iterable):
            raise TypeError(f"expected texts or a list of them, got {type(inputs).__name__}")
        results = self.pipe(inputs)
        return list(results) if isinstance(inputs, Sequence) else results

    def pipe(self, inputs: Iterable[Any], *, batch_size: int = 256) -> Iterator[dict[str, Any]]:
        """Yield the predictions of texts as JSON-serializable dicts, reading them in batches.

        Args:
            inputs: Texts, lists of tokens, or tuples or dicts for tasks with more than one text.
            batch_size: Number of inputs that are processed together.

        Raises:
            InputError: If a text is invalid, after the predictions for the texts before it.
        """
        for i, outcome in enumerate(self.outcomes(inputs, batch_size=batch_size)):
            if outcome.error is not None:
                raise InputError(f"input {i}: {outcome.error}")
            yield self.as_json(outcome)

    def predict(self, examples: Sequence[Any]) -> list[Any]:
        """Return one prediction per example; texts and lists of tokens are parsed first."""
        if not isinstance(examples, Iterable):
            raise TypeError(f"expected a list of examples, got {type(examples).__name__}")
        if isinstance(examples, str):
            raise TypeError(
                f"expected a list of examples, got one string ({examples[:40]!r}). Put it in a "
                "list, or call the task itself: task(text)."
            )
        parsed = [self._example(example, i) for i, example in enumerate(examples)]
        return predict(self.task, self.model, parsed, self.encode, self.labels)

    def outcomes(
        self, inputs: Iterable[Any], tokenize: Tokenizer | None = None, *, batch_size: int = 256
    ) -> Iterator[Outcome]:
        """Yield one outcome per input. For an invalid text, it is an error and the rest continues.

        Args:
            inputs: Texts, lists of tokens, tuples or dicts of texts, examples, or errors for lines
                that could not be read.
            tokenize: Tokenizer of the texts; that of `self.tokenizer` by default.
            batch_size: Number of inputs that are processed together.
        """
        numbered = enumerate(inputs)
        failure: list[InputError] = []
        while batch := list(islice(_until_error(numbered, failure), batch_size)):
            parsed: list[Any] = []
            for i, item in batch:
                try:
                    is_error = isinstance(item, InputError)
                    parsed.append(item if is_error else self._example(item, i, tokenize))
                except InputError as error:
                    parsed.append(error)
            examples = [example for example in parsed if not isinstance(example, InputError)]
            predictions = iter(self.predict(examples))
            for example in parsed:
                if isinstance(example, InputError):
                    yield Outcome(None, None, str(example))
                else:
                    yield Outcome(example, next(predictions))
        if failure:
            raise failure[0]

    def _example(self, item: Any, number: int = 0, tokenize: Tokenizer | None = None) -> Any:
        """Return an example as it is; parse a text, a list of tokens, a tuple or dict of texts."""
        if isinstance(item, str):
            return self.parse(item, tokenize)
        if type(item) is list and not self.task.has_own_tokenizer and len(self.task.inputs) == 1:
            for token in item:
                if not isinstance(token, str) or token.split() != [token]:
                    raise InputError(f"expected tokens without spaces, got {token!r:.40}")
            return self.parse(" ".join(item), str.split)
        if isinstance(item, Mapping):
            item = _texts_by_name(item, self.task.inputs)
        if type(item) is tuple and all(isinstance(text, str) for text in item):
            names = self.task.inputs
            if len(item) != len(names):
                raise TypeError(
                    f"example {number} has {len(item)} texts; {self.task.name} expects "
                    f"{len(names)}: {', '.join(names)}"
                )
            return self._require_words(
                self.task.parse_texts(item, tokenize or self.tokenizer()), item
            )
        if not _is_example(item):
            raise TypeError(
                f"example {number} is {type(item).__name__}; expected a string, a tuple of strings "
                "for tasks with several texts, or an example as returned by `read` or `parse`."
            )
        return item

    def parse(
        self,
        line: str | tuple[str, ...] | Mapping[str, str],
        tokenize: Tokenizer | None = None,
    ) -> Any:
        """Parse an unlabeled example from a line of text.

        Args:
            line: One example, in the format of `elmore predict`; or a tuple or dict of its texts.
            tokenize: The tokenizer; that of `self.tokenizer` by default.

        Raises:
            InputError: If the line is blank or does not have the expected format.
        """
        if type(line) is tuple or isinstance(line, Mapping):
            return self._example(line, tokenize=tokenize)
        if not isinstance(line, str):
            raise TypeError(
                f"expected one string, got {type(line).__name__}. For several texts, call the task "
                "with the list: task(texts)."
            )
        if not line.strip():
            raise InputError("expected text, got an empty line")
        return self._require_words(self.task.parse(line, tokenize or self.tokenizer()), line)

    def _require_words(self, example: Any, source: object) -> Any:
        if not any(self.task.texts(example)):
            raise InputError(f"no words in {source!r:.60}")
        return example

    def tokenizer(
        self, name: TokenizerName | None = None, language: str | None = None
    ) -> Tokenizer:
        """Return the tokenizer of raw text.

        Args:
            name: `moses`, `whitespace` or `spacy`; by default that of the task's training text or,
                if it is not known, of the biLM's.
            language: ISO 639-1 code, for the rules of the tokenizer; defaults in the same way.

        Raises:
            InputError: If a tokenizer is named, but the task has its own.
        """
        if (name or language) and self.task.has_own_tokenizer:
            raise InputError(
                f"{self.task.name} has a tokenizer of its own, so {name or language} cannot be used"
            )
        default = self.task.tokenization(self.config)
        if default is None and self.encode.layers is not None:
            default = self.encode.layers.embedder.tokenization
        chosen = choose_tokenization(default, name, language)
        return get_tokenizer(chosen.tokenizer, chosen.language)

    def as_json(self, outcome: Outcome) -> dict[str, Any]:
        """Return a prediction as a JSON-serializable dict, or `{"error": message}`."""
        if outcome.error is not None:
            return {"error": outcome.error}
        return self.task.as_json(outcome.example, outcome.prediction, self.config)

    def read(self, path: Path | str) -> list[Any]:
        """Read labeled examples from a file in the standard format of the task.

        Raises:
            InputError: If the file has no examples.
        """
        return require_examples(self.task.read(Path(path), self.config), [path])

    def evaluate(self, examples: Sequence[Any] | Path | str) -> dict[str, float]:
        """Return the scores on labeled examples, or on a file of them.

        Raises:
            InputError: If the examples have no gold labels, or none that the model knows.
        """
        source = "the examples"
        if isinstance(examples, Path | str):
            source = str(examples)
            examples = self.read(examples)
        for i, example in enumerate(examples):
            if not _is_example(example):
                raise TypeError(
                    f"example {i} is {type(example).__name__}; expected a labeled example as "
                    "returned by `read`. To score a file, pass its path."
                )
        for note in self.check_labels(examples, source):
            warn_user(note)
        return self.task.score(examples, self.predict(examples))

    def check_labels(self, examples: Sequence[Any], source: str) -> list[str]:
        """Return notes on gold labels that make scores misleading; see `labels.check_labels`."""
        return check_labels(self.task, self.labels, examples, source)

    def report(self, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, Any]:
        """Return the scores, those of each label, and the confusion matrix of a classifier."""
        tables = {
            "by_label": self.task.scores_by_label(examples, predictions),
            "confusion": self.task.confusion_matrix(examples, predictions),
        }
        return {
            **self.task.score(examples, predictions),
            **{name: table for name, table in tables.items() if table},
        }


def _until_error(items: Iterator[Any], failure: list[InputError]) -> Iterator[Any]:
    """Yield items up to one that cannot be read; keep its error for later."""
    try:
        yield from items
    except InputError as error:
        failure.append(error)


def _texts_by_name(item: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    if set(item) != set(names):
        given = ", ".join(map(str, item)) or "no keys"
        keys = "keys" if len(names) > 1 else "key"
        raise InputError(f"expected the {keys} {' and '.join(names)}, got {given:.80}")
    for name, text in item.items():
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"expected a {name}, got {text!r:.60}")
    return tuple(item[name] for name in names)


def _is_example(value: object) -> bool:
    """Return whether a value may be an example, which is a named tuple in most tasks."""
    if isinstance(value, tuple):
        return _is_named_tuple(value)
    return not isinstance(value, str | bytes | int | float | list | dict | None)


def _is_named_tuple(value: object) -> bool:
    return isinstance(value, tuple) and type(value) is not tuple


def assemble(
    task: Task[Any, Any, Any],
    config: TaskConfig,
    index: WordIndex,
    vectors: WordVectors,
    labels: Labels,
    embedder: Encoder | None,
    device: torch.device,
    *,
    max_cached: int = MAX_CACHED,
) -> TrainedTask:
    """Build a task's model with random weights, and the encoder of its input."""
    words = Words(
        config.words,
        config.elmo,
        index,
        vectors,
        num_layers=embedder.num_layers if embedder else 0,
        elmo_dim=embedder.dim if embedder else 0,
    )
    model = task.build(config, words, labels).to(device)
    encode = WordEncoder(
        index,
        LayerCache(embedder) if embedder else None,
        with_characters=config.words.char_filters > 0,
        device=device,
        max_cached=max_cached,
    )
    return TrainedTask(task, config, labels, model, encode)


def require_examples(examples: list[Any], files: Iterable[Path | str]) -> list[Any]:
    """Return the examples; raise `InputError` if there are none."""
    if not examples:
        raise InputError(f"no examples in {', '.join(map(str, files))}")
    return examples
