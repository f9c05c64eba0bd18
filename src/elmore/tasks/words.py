"""(5) Words to what a task's RNN reads: [word vector; characters; ELMo], and ELMo at its output.

B sentences, T words, C characters, J layers, D dim of ELMo, I and O widths of the two results.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from itertools import count, repeat
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int32
from torch import Tensor, nn
from torch.nn import functional

from elmore.mix import ScalarMix
from elmore.tasks.config import ElmoConfig, WordsConfig
from elmore.tasks.layers import LayerTable, Text
from elmore.tasks.modules.characters import CharCNN
from elmore.tasks.vectors import WordVectors
from elmore.text.characters import encode_words
from elmore.text.sentences import Sentence
from elmore.transfer import to_device

PADDING, UNKNOWN = 0, 1
_CHARACTERS = 32
"""Bytes of a word, with its two markers, that the task's own CNN reads."""
_SENTENCES_KEPT = 250_000
"""So many sentences are remembered as numbers; then they are forgotten, and all spellings too."""


class WordBatch(NamedTuple):
    """A padded batch of sentences."""

    ids: Int[Tensor, "B T"]
    """Rows of the table of word vectors."""

    mask: Bool[Tensor, "B T"]
    lengths: Int[Tensor, " B"]
    """On the CPU, where PyTorch's packed sequences want them."""

    characters: Int[Tensor, "B T C"]
    layers: Float[Tensor, "B J T D"]


class WordIndex:
    """Words to rows: as they are written, else in lower case, else with zeros for digits.

    What is not found in any of these forms has the row of unknown words.

    Args:
        new: Words whose vectors are learned.
        known: Words whose vectors are given.
    """

    def __init__(self, new: Sequence[str], known: Sequence[str]) -> None:
        self.new, self.known = list(new), list(known)
        # The first of equal words counts, so they are numbered from the last.
        rows = enumerate([*self.new, *self.known], start=2)
        self._row = {word: row for row, word in reversed(list(rows))}

    @classmethod
    def of_training(
        cls, sentences: Iterable[Sentence], known: Sequence[str], *, min_count: int, train: bool
    ) -> "WordIndex":
        """Let the words of the training text be learned: frequent ones that have no vector.

        Numbers that are too rare share a row with those that look alike: `1,847` is `0,000`.

        Args:
            sentences: The training text.
            known: Words that have a vector.
            min_count: What is frequent.
            train: Go on learning the vectors of its other words, too.
        """
        given = set(known)
        counts = Counter(word for words in sentences for word in words)
        found = {word: _spelling_in(given, word) for word in counts}
        frequent = [w for w, n in counts.items() if found[w] is None and n >= min_count]
        rare = [w for w, n in counts.items() if found[w] is None and n < min_count]
        found |= {word: _zeros_in(given, word) for word in rare}
        alike: Counter[str] = Counter()
        for word in rare:
            if found[word] is None:
                alike[_zeros(word)] += counts[word]
        shared = [form for form, n in alike.items() if n >= min_count]
        new = list(dict.fromkeys([*frequent, *shared]))
        if not train:
            return cls(new, known)
        used = {word: None for word in found.values() if word is not None}
        return cls([*new, *used], [word for word in known if word not in used])

    def row(self, word: str) -> int:
        """Return the row of a word."""
        form = _spelling_in(self._row, word) or _zeros_in(self._row, word)
        return UNKNOWN if form is None else self._row[form]


def _spelling_in(given: Container[str], word: str) -> str | None:
    """Return a word as it is written among those given, or there in lower case."""
    if word in given:
        return word
    return word.lower() if word.lower() in given else None


def _zeros_in(given: Container[str], word: str) -> str | None:
    """Return its form with zeros, if that is given."""
    return _spelling_in(given, _zeros(word))


def _zeros(word: str) -> str:
    """Return a word with 0 for each of its digits, as is usual since Collobert et al. (2011)."""
    return re.sub(r"\d", "0", word)


class WordEncoder:
    """Sentences to a batch of all that a task may want to know of their words."""

    def __init__(
        self,
        index: WordIndex,
        layers: LayerTable | None,
        *,
        with_characters: bool,
        device: torch.device,
    ) -> None:
        self.index = index
        self.layers = layers
        self.device = device
        self._with_characters = with_characters
        # Words come again and again, so their characters stay on the device; row 0 is padding.
        self._spelling: dict[str, int] = {}
        self._spellings = torch.zeros(1, _CHARACTERS, dtype=torch.long, device=device)
        # So do sentences, with every epoch.
        self._sentences: dict[tuple[str, ...], Int32[np.ndarray, "2 T"]] = {}

    def __call__(
        self, sentences: Sequence[Sentence], parts: Sequence[Text] | None = None
    ) -> WordBatch:
        """Encode sentences; one without words becomes one of padding alone.

        Args:
            sentences: The words of each.
            parts: The sentences that each consists of, where it is a text of several: the biLM
                reads them one by one.
        """
        counts = torch.tensor([len(words) for words in sentences])
        B, T = len(sentences), max(1, int(counts.max()))
        rows = np.full((2, B, T), PADDING)
        for b, of_sentence in enumerate(self._rows(sentences)):
            rows[:, b, : of_sentence.shape[1]] = of_sentence
        ids, spellings = to_device(rows, self.device)
        return WordBatch(
            ids,
            to_device(torch.arange(T) < counts[:, None], self.device),
            counts.clamp(min=1),
            self._spellings[spellings] if self._with_characters else ids.new_zeros(B, T, 0),
            torch.zeros(B, 0, T, 0, device=self.device)
            if self.layers is None
            else self.layers(parts or [[words] for words in sentences]),
        )

    def _rows(self, sentences: Sequence[Sentence]) -> list[Int32[np.ndarray, "2 T"]]:
        """Return of each sentence the rows of its words, and those of their characters."""
        keys = list(map(tuple, sentences))
        new = [key for key in dict.fromkeys(keys) if key not in self._sentences]
        if len(self._sentences) + len(new) > _SENTENCES_KEPT:
            new = list(dict.fromkeys(keys))
            self._forget()
        if self._with_characters:
            self._learn_to_spell(new)
        for key in new:
            ids, spellings = map(self.index.row, key), map(self._spelling.get, key, repeat(0))
            self._sentences[key] = np.array([[*ids], [*spellings]], dtype=np.int32)
        return [self._sentences[key] for key in keys]

    def _forget(self) -> None:
        """Make room: text without end has words without end."""
        self._sentences.clear()
        self._spelling.clear()
        self._spellings = self._spellings[:1].clone()

    def _learn_to_spell(self, sentences: Iterable[Sentence]) -> None:
        unseen = sorted({word for words in sentences for word in words} - self._spelling.keys())
        if unseen:
            self._spelling |= zip(unseen, count(len(self._spellings)))
            new = to_device(encode_words(unseen, _CHARACTERS), self.device)
            self._spellings = torch.cat([self._spellings, new])


class WordTable(nn.Module):
    """Vectors of words: given ones, which stay as they are, and learned ones.

    Args:
        new: Where the learned ones begin.
        known: The given ones. They are no part of the module's state: they do not change.
    """

    known: Float[Tensor, "K W"]

    def __init__(self, new: Float[Tensor, "M W"], known: Float[Tensor, "K W"]) -> None:
        super().__init__()
        self.new = nn.Parameter(new)
        self.register_buffer("known", known, persistent=False)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T W"]:
        """Look words up."""
        N = len(self.new)
        is_new = ids < N
        # What is padding to a table has no part in its gradient.
        new = functional.embedding(ids.where(is_new, PADDING), self.new, padding_idx=PADDING)
        if not len(self.known):
            return new
        known = functional.embedding((ids - N).clamp(min=0), self.known)
        return torch.where(is_new[..., None], new, known)


def _first_vectors(
    index: WordIndex, vectors: WordVectors
) -> tuple[Float[Tensor, "M W"], Float[Tensor, "K W"]]:
    """Return the first vectors of learned words, drawn where none is given, and those of others."""
    given = torch.from_numpy(vectors.vectors)
    row = {word: i for i, word in reversed(list(enumerate(vectors.words)))}
    spread = given.std().item() if len(given) > 1 else 0.1
    new = torch.randn(len(index.new) + 2, given.shape[1]) * spread
    new[PADDING] = 0
    for place, word in enumerate(index.new, start=2):
        if word in row:
            new[place] = given[row[word]]
    return new, given[torch.tensor([row[word] for word in index.known], dtype=torch.long)]


class Words(nn.Module):
    """What a word is to a task (section 3.3).

    Args:
        words: Its own vector, and its characters.
        elmo: Where ELMo enters.
        index: The rows of the table.
        vectors: The vectors of the words that have one, learned further or not.
        num_layers: Of the biLM (J); 0 without one.
        elmo_dim: Their width (D).
    """

    def __init__(
        self,
        words: WordsConfig,
        elmo: ElmoConfig,
        index: WordIndex,
        vectors: WordVectors,
        *,
        num_layers: int,
        elmo_dim: int,
    ) -> None:
        super().__init__()
        self.table = WordTable(*_first_vectors(index, vectors))
        self.characters = (
            CharCNN(dim=words.char_dim, width=words.char_width, num_filters=words.char_filters)
            if words.char_filters
            else None
        )
        self.mixes = nn.ModuleDict(
            {
                place: ScalarMix(num_layers, weights=elmo.layers, layer_norm=elmo.layer_norm)
                for place in ("input", "output")
                if elmo.place in (place, "both")
            }
        )
        self.lambda_ = elmo.penalty
        self.dropout = nn.Dropout(words.dropout)
        self.elmo_dropout = nn.Dropout(elmo.dropout)
        self.in_dim = (
            self.table.new.shape[1] + words.char_filters + elmo_dim * ("input" in self.mixes)
        )
        """Width of what the task's RNN reads (I)."""
        self.out_dim = elmo_dim * ("output" in self.mixes)
        """Width of what is put beside its output (O); 0 for nothing."""

    def forward(self, batch: WordBatch) -> tuple[Float[Tensor, "B T I"], Float[Tensor, "B T O"]]:
        """Return what the task's RNN reads, and what is put beside its output."""
        parts = [self.table(batch.ids)]
        if self.characters is not None:
            parts.append(self.characters(batch.characters))
        parts = [self.dropout(torch.cat(parts, dim=-1))]
        if "input" in self.mixes:
            parts.append(self._elmo("input", batch))
        at_output = parts[0].new_zeros(*batch.ids.shape, 0)
        if "output" in self.mixes:
            at_output = self._elmo("output", batch)
        return torch.cat(parts, dim=-1) * batch.mask[..., None], at_output

    def _elmo(self, place: str, batch: WordBatch) -> Float[Tensor, "B T D"]:
        mixed: Tensor = self.mixes[place](batch.layers)
        return self.elmo_dropout(mixed) * batch.mask[..., None]

    def penalty(self) -> Float[Tensor, ""]:
        """Return lambda * ||w||^2 of all mixes (section 3.3)."""
        zero = self.table.new.new_zeros(())
        return self.lambda_ * sum((mix.penalty() for mix in self.mixes.values()), zero)  # type: ignore[operator]
