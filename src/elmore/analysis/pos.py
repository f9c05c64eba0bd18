"""Table 6: how well does a linear classifier read the part of speech from one layer?

J layers, N words of a text, W of a sentence, D dim.
"""

import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float16, Int64
from torch import Tensor, nn

from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.text.lines import read_lines

TagSet = Literal["xpos", "upos"]
"""`xpos` are a treebank's own tags, in English those of the Penn Treebank; `upos` are universal."""

_COLUMNS = 10
_TAG_COLUMN = {"upos": 3, "xpos": 4}
_WORD = re.compile(r"\d+")
_NO_WORD = re.compile(r"\d+[-.]\d+")  # 3-4: how words 3 and 4 are written; 3.1: an unwritten word
_UNKNOWN = -1  # a tag that training did not have: never predicted, so always wrong


class TaggedSentence(NamedTuple):
    """A sentence and the tag of each word."""

    tokens: list[str]
    tags: list[str]


class TaggedWords(NamedTuple):
    """The words of a text: their vectors, one tensor a layer, and their tags."""

    layers: list[Float16[Tensor, "N D"]]
    tags: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeConfig:
    """How the classifier is trained. It has no size: one weight for each dimension and tag."""

    batch_size: int = 256
    """Words in a step."""

    learning_rate: float = 3e-3
    """Of Adam."""

    max_epochs: int = 50
    """The most passes over the training text."""

    patience: int = 5
    """Passes without a better accuracy on the development text before training ends."""

    seed: int = 0
    """Of the order of the words."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_epochs", "patience"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")


def read_conllu(path: Path, tag_set: TagSet = "xpos") -> list[TaggedSentence]:
    """Read the words and tags of a CoNLL-U file, plain or compressed."""
    sentences: list[TaggedSentence] = []
    tokens: list[str] = []
    tags: list[str] = []
    for number, line in enumerate(read_lines(path), start=1):
        if line.startswith("#"):
            continue
        if line:
            word = _read_word(line, tag_set, f"{path}, line {number}")
            if word:
                tokens.append(word[0])
                tags.append(word[1])
        elif tokens:
            sentences.append(TaggedSentence(tokens, tags))
            tokens, tags = [], []
    if tokens:  # the last sentence, without the blank line that should follow it
        sentences.append(TaggedSentence(tokens, tags))
    if not sentences:
        raise InputError(f"{path}: no word; expected CoNLL-U, a word a line")
    return sentences


def _read_word(line: str, tag_set: TagSet, where: str) -> tuple[str, str] | None:
    """Return a word and its tag, or None for a line that stands for no word of its own."""
    fields = line.split("\t")
    if len(fields) != _COLUMNS:
        raise InputError(
            f"{where}: {len(fields)} columns; expected {_COLUMNS}, separated by tabs (CoNLL-U)"
        )
    if _NO_WORD.fullmatch(fields[0]):
        return None
    if not _WORD.fullmatch(fields[0]):
        raise InputError(
            f"{where}: {fields[0][:40]!r} in the first column; expected the number of a word, "
            "as 3, 3-4 or 3.1"
        )
    form, tag = fields[1], fields[_TAG_COLUMN[tag_set]]
    if not form:
        raise InputError(f"{where}: the second column is empty; expected a word")
    if tag in ("", "_"):
        other = "upos" if tag_set == "xpos" else "xpos"
        raise InputError(f"{where}: {form!r} has no {tag_set} tag; does the file have {other}?")
    return form, tag


def embed_words(embedder: Embedder, sentences: Iterable[TaggedSentence]) -> TaggedWords:
    """Compute the vectors of a text once, for the probes of all layers.

    In half precision: a treebank of 200,000 words then takes 600 MB at 512 dimensions.
    """
    ours, theirs = tee(sentences)
    stream = embedder.stream((sentence.tokens for sentence in theirs), layers="all")
    layers: list[list[Float16[np.ndarray, "W D"]]] = [[] for _ in range(embedder.num_layers)]
    tags: list[str] = []
    for sentence, (_, vectors) in zip(ours, stream, strict=True):
        tags += sentence.tags
        for rows, layer in zip(layers, vectors.astype(np.float16), strict=True):
            rows.append(layer)
    empty = np.zeros((0, embedder.dim), dtype=np.float16)
    return TaggedWords([torch.from_numpy(np.concatenate([empty, *rows])) for rows in layers], tags)


def probe_pos(
    train: TaggedWords,
    dev: TaggedWords,
    test: TaggedWords,
    config: ProbeConfig | None = None,
) -> list[float]:
    """Return, for each layer, the accuracy on the test text of a linear softmax classifier.

    Args:
        train: What the classifier learns from. Its tags are the ones that can be predicted.
        dev: Decides when training ends.
        test: What is measured.
        config: How the classifier is trained.
    """
    for name, words in (("train", train), ("dev", dev), ("test", test)):
        if not words.tags:
            raise InputError(f"no word in {name}; expected tagged sentences")
    number = {tag: k for k, tag in enumerate(sorted(set(train.tags)))}
    tags = [
        torch.tensor([number.get(tag, _UNKNOWN) for tag in words.tags])
        for words in (train, dev, test)
    ]
    accuracies = []
    for layer in zip(train.layers, dev.layers, test.layers, strict=True):
        x = _standardize(*layer)
        probe = train_probe(x[0], tags[0], x[1], tags[1], config or ProbeConfig())
        accuracies.append(accuracy(probe, x[2], tags[2]))
    return accuracies


def train_probe(
    x: Float[Tensor, "N D"],
    tags: Int64[Tensor, " N"],
    dev_x: Float[Tensor, "M D"],
    dev_tags: Int64[Tensor, " M"],
    config: ProbeConfig,
) -> nn.Linear:
    """Train a softmax classifier; return that of the epoch that is best on the dev text."""
    probe = nn.Linear(x.shape[1], int(tags.max()) + 1)
    # The loss is convex, so any start will do, and this one takes nothing from a global seed.
    nn.init.zeros_(probe.weight)
    nn.init.zeros_(probe.bias)
    optimizer = torch.optim.Adam(probe.parameters(), lr=config.learning_rate)
    order = torch.Generator().manual_seed(config.seed)
    best, best_accuracy, worse = probe, -1.0, 0
    for _ in range(config.max_epochs):
        for rows in torch.randperm(len(x), generator=order).split(config.batch_size):
            loss = nn.functional.cross_entropy(probe(x[rows]), tags[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        reached = accuracy(probe, dev_x, dev_tags)
        if reached > best_accuracy:
            best, best_accuracy, worse = copy.deepcopy(probe), reached, 0
        else:
            worse += 1
        if worse == config.patience:
            break
    return best


@torch.inference_mode()
def accuracy(probe: nn.Linear, x: Float[Tensor, "N D"], tags: Int64[Tensor, " N"]) -> float:
    """Return the share of words whose tag has the highest score."""
    return (probe(x).argmax(dim=-1) == tags).double().mean().item()


def _standardize(
    train: Float16[Tensor, "N D"], *others: Float16[Tensor, "_ D"]
) -> list[Float[Tensor, "_ D"]]:
    """Give each dimension mean 0 and variance 1 in training, so that one learning rate fits all.

    What is linear in the result is linear in the layer.
    """
    std, mean = torch.std_mean(train.float(), dim=0, correction=0)
    std = std.clamp(min=1e-6)  # a dimension that never changes
    return [(words.float() - mean).div_(std) for words in (train, *others)]
