"""Trained tasks: assembled, saved to a folder, and loaded from it.

DIR/task.json            the task, its labels, its scores
DIR/words.json           the words that have a vector
DIR/model.safetensors    the weights, with the word vectors and without the biLM
DIR/bilm/                the biLM, if it was fine-tuned for the task
"""

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, overload

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from elmore.atomic import atomic_file
from elmore.checkpoint.directory import save_tensors
from elmore.checkpoint.hash import hash_json, hash_weights
from elmore.checkpoint.pretrained import find_model
from elmore.embedder import Embedder, Precision, find_device
from elmore.embedder import load as load_embedder
from elmore.errors import InputError
from elmore.schema import from_mapping, read_json
from elmore.tasks import get_task
from elmore.tasks.config import ElmoConfig, TaskConfig
from elmore.tasks.domain import FOLDER
from elmore.tasks.encoder import Encoder
from elmore.tasks.fit import predict
from elmore.tasks.labels import check_labels
from elmore.tasks.layers import LayerCache
from elmore.tasks.task import Labels, Task, TaskModel
from elmore.tasks.transformer import TransformerEncoder, is_transformer
from elmore.tasks.vectors import WordVectors
from elmore.tasks.words import WordEncoder, WordIndex, Words
from elmore.text.tokenize import (
    Tokenizer,
    TokenizerName,
    choose_tokenization,
    get_tokenizer,
)
from elmore.training.run_folder import RunFolder
from elmore.training.settings import read_settings, read_toml

TASK, WORDS, WEIGHTS = "task.json", "words.json", "model.safetensors"
_FROZEN_VECTORS = "words.table.known"
"""Name of the frozen word vectors in the weight file."""


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
    def __call__(self, inputs: Sequence[Any], /) -> list[dict[str, Any]]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, inputs: Iterable[Any], /) -> Iterator[dict[str, Any]]: ...
    def __call__(
        self, inputs: Iterable[Any], /, *more: str
    ) -> dict[str, Any] | list[dict[str, Any]] | Iterator[dict[str, Any]]:
        """Return predictions as JSON-serializable dicts.

        task(text)                  one dict
        task(premise, hypothesis)   one dict, for tasks with more than one text
        task(texts)                 one dict per item of a list
        task(iterable)              an iterator, which reads the iterable in batches; see `pipe`

        A text has the format of a line of `elmore predict`. Items of lists and iterables are texts,
        or tuples for tasks with more than one text.

        Raises:
            InputError: If a text does not have this format.
        """
        if isinstance(inputs, str) or _is_named_tuple(inputs):
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
            inputs: Texts, or tuples for tasks with more than one text.
            batch_size: Number of inputs that are processed together.

        Raises:
            InputError: If a text is invalid, after the predictions for the texts before it.
        """
        for i, outcome in enumerate(self.outcomes(inputs, batch_size=batch_size)):
            if outcome.error is not None:
                raise InputError(f"input {i}: {outcome.error}")
            yield self.as_json(outcome)

    def predict(self, examples: Sequence[Any]) -> list[Any]:
        """Return one prediction per example; strings and tuples of strings are parsed first."""
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
        """Yield one outcome per input; an invalid text does not stop the rest.

        Args:
            inputs: Texts, tuples of texts, examples, or errors for lines that could not be read.
            tokenize: Tokenizer of the texts; that of `self.tokenizer` by default.
            batch_size: Number of inputs that are processed together.
        """
        numbered = enumerate(inputs)
        while batch := list(islice(numbered, batch_size)):
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

    def _example(self, item: Any, number: int = 0, tokenize: Tokenizer | None = None) -> Any:
        """Return an example as it is; parse a text or a tuple of texts."""
        if isinstance(item, str):
            return self.parse(item, tokenize)
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
                f"example {number} is {type(item).__name__}; expected a string, or an example as "
                "returned by `read` or `parse`. Parse a list of tokens first: "
                'task.parse(" ".join(tokens), task.tokenizer("whitespace")).'
            )
        return item

    def parse(self, line: str | tuple[str, ...], tokenize: Tokenizer | None = None) -> Any:
        """Parse an unlabeled example from a line of text.

        Args:
            line: One example, in the format of `elmore predict`; or a tuple of its texts.
            tokenize: The tokenizer; that of `self.tokenizer` by default.

        Raises:
            InputError: If the line is blank or does not have the expected format.
        """
        if type(line) is tuple:
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
            language: ISO 639-1 code, for the rules of the tokenizer; the default is chosen alike.

        Raises:
            InputError: If a tokenizer is named, but the task has its own.
        """
        if name and self.task.has_own_tokenizer:
            raise InputError(
                f"{self.task.name} has a tokenizer of its own, so {name} cannot be used"
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
            warnings.warn(note, stacklevel=2)
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

    def save_model(self, folder: Path) -> str:
        """Write the words and the weights; return the hash of the trained task, for task.json."""
        index = self.encode.index
        with atomic_file(folder / WORDS) as temporary:
            words = {"new": index.new, "known": index.known}
            temporary.write_text(json.dumps(words, ensure_ascii=False), encoding="utf-8")
        weights = {**self.model.state_dict(), _FROZEN_VECTORS: self.model.words.table.known}
        weights = {name: x.detach().cpu().contiguous() for name, x in weights.items()}
        save_tensors(weights, folder / WEIGHTS)
        return _hash(folder, self.labels, index, weights)


def _is_example(value: object) -> bool:
    """Return whether a value may be an example, which is a named tuple in most tasks."""
    if isinstance(value, tuple):
        return _is_named_tuple(value)
    return not isinstance(value, str | bytes | int | float | list | dict | None)


def _is_named_tuple(value: object) -> bool:
    return isinstance(value, tuple) and type(value) is not tuple


def load(
    folder: Path | str,
    *,
    task: str | Task[Any, Any, Any] | None = None,
    device: str = "auto",
    bilm: Path | str | Embedder | None = None,
    precision: Precision | None = None,
) -> TrainedTask:
    """Load a trained task.

    Args:
        folder: A folder written by `train_task` or `elmore train`.
        task: A task of your own, or its `module:name`. Required for a run that was trained with
            one, because loading a folder never imports code that the folder names.
        device: `auto`, `cpu`, `cuda` or `cuda:1`.
        bilm: Path of the biLM, if it has moved since training; or the biLM itself, so that several
            tasks share one.
        precision: Precision of the biLM, `fp32`, `bf16` or `int8`; by default that of the training.

    Raises:
        InputError: If the folder holds no trained task, or the biLM does not fit it.
    """
    if not isinstance(folder, PathLike | str):
        raise TypeError(f"expected the folder of a trained task, got {type(folder).__name__}")
    if not isinstance(bilm, PathLike | str | Embedder | None):
        raise TypeError(f"bilm: expected the path of a biLM, got {type(bilm).__name__}")
    folder = Path(folder)
    facts = _read_facts(folder / TASK)
    if task is None and ":" in (trained_with := facts["task"]):
        raise InputError(
            f"{folder} was trained with a task of yours, {trained_with}; pass it as task (--task "
            "on the command line), if you trust it"
        )
    task = task or facts["task"]
    task = get_task(task) if isinstance(task, str) else task
    config = read_settings(task.config, RunFolder(folder, TASK).settings)
    saved_words = read_json(folder / WORDS, "the words of a task")
    words = from_mapping(_SavedWords, saved_words, str(folder / WORDS))
    index = WordIndex(words.new, words.known)
    try:
        weights = load_file(folder / WEIGHTS)
        frozen = weights.pop(_FROZEN_VECTORS)
    except (SafetensorError, FileNotFoundError, KeyError) as error:
        raise InputError(f"{folder / WEIGHTS} is missing or damaged ({error})") from error
    finetuned = str(folder / FOLDER) if config.elmo.finetune else None
    bilm = bilm or finetuned
    if config.elmo.place != "none" and not bilm and not _exists(config.elmo.model):
        raise InputError(
            f"{folder} needs the biLM that it was trained with, {config.elmo.model}, which "
            + (
                "does not exist; if the biLM has moved, pass its new path"
                if Path(config.elmo.model).is_absolute()
                else "is not installed; install its package with pip, or pass the path of the biLM"
            )
        )
    embedder: Encoder | None
    if isinstance(bilm, Embedder):
        embedder = bilm if config.elmo.place != "none" else None
    else:
        embedder = load_bilm(config.elmo, device, bilm, precision)
    expected = facts.get("bilm")  # not in tasks of older versions
    if embedder and expected and embedder.weights_hash != expected:
        raise InputError(
            f"{folder} was trained with another biLM than {bilm or config.elmo.model}: the hash of "
            f"its weights was {expected}, not {embedder.weights_hash}. Load the task with the biLM "
            "it was trained with."
        )
    vectors = frozen.numpy()
    if len(vectors) != len(words.known):
        raise InputError(
            f"{folder} is damaged: {WORDS} has {len(words.known)} words with frozen vectors, "
            f"{WEIGHTS} has {len(vectors)}"
        )
    known, labels = WordVectors(index.known, vectors), facts["labels"]
    actual_hash = _hash(folder, labels, index, {**weights, _FROZEN_VECTORS: frozen})
    if facts.get("hash") not in (None, actual_hash):
        raise InputError(
            f"{folder} is damaged: settings, labels ({TASK}), words ({WORDS}) or weights "
            f"({WEIGHTS}) differ from those that elmore wrote. Copy the folder again, or train "
            f"again. If you changed the settings yourself, delete hash from {TASK}."
        )
    try:
        trained = assemble(task, config, index, known, labels, embedder, find_device(device))
    except KeyError as error:
        raise InputError(f"{folder / TASK} is damaged: it has no labels {error}") from error
    try:
        trained.model.load_state_dict(weights)
    except RuntimeError as error:
        detail = str(error).splitlines()[-1].strip()  # there is one line per weight
        raise InputError(
            f"{folder} was trained with another biLM, or by another version: {detail}"
        ) from error
    trained.model.eval()
    return trained


load_task = load


def read_bilm_hash(folder: Path | str) -> str | None:
    """Return the hash of the biLM that a task was trained with; None for a baseline."""
    return _read_facts(Path(folder) / TASK).get("bilm")


@dataclass(frozen=True, kw_only=True, slots=True)
class _SavedWords:
    """The contents of words.json; see `WordIndex`."""

    new: tuple[str, ...]
    known: tuple[str, ...]


def _hash(
    folder: Path, labels: Labels, index: WordIndex, weights: Mapping[str, torch.Tensor]
) -> str:
    """Return a hash of what predictions depend on, except the biLM, which has its own."""
    settings = read_toml(RunFolder(folder, TASK).settings)
    settings.get("elmo", {}).pop("model", None)  # the biLM may move
    return hash_json([settings, labels, [index.new, index.known], hash_weights(weights)])


def _read_facts(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(
            f"{path.parent} holds no trained task; expected a folder written by `elmore train`"
        )
    facts = read_json(path, "a trained task")
    labels = facts.get("labels")
    has_labels = isinstance(labels, dict) and all(map(_is_list_of_strings, labels.values()))
    if not isinstance(facts.get("task"), str) or not has_labels:
        raise InputError(f"{path} is damaged: expected the name of a task and its labels")
    return facts


def _exists(model: str) -> bool:
    try:
        return find_model(model).exists()
    except InputError:  # not on the Hugging Face Hub either
        return False


def _is_list_of_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def assemble(
    task: Task[Any, Any, Any],
    config: TaskConfig,
    index: WordIndex,
    vectors: WordVectors,
    labels: Labels,
    embedder: Encoder | None,
    device: torch.device,
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
    )
    return TrainedTask(task, config, labels, model, encode)


def load_bilm(
    config: ElmoConfig,
    device: str,
    model: Path | str | None = None,
    precision: Precision | None = None,
) -> Encoder | None:
    """Load `model`, or the biLM that the settings name; return None for a baseline.

    The folder of a transformer is accepted, too.
    """
    if config.place == "none":
        return None
    source, precision = model or config.model, precision or config.precision
    path = find_model(source)
    if is_transformer(path):
        return TransformerEncoder(path, device=device, precision=precision)
    return load_embedder(source, device=device, precision=precision)


def require_examples(examples: list[Any], files: Iterable[Path | str]) -> list[Any]:
    """Return the examples; raise `InputError` if there are none."""
    if not examples:
        raise InputError(f"no examples in {', '.join(map(str, files))}")
    return examples
