"""Word representations of a task: [word vector; character CNN; ELMo], and ELMo at the output.

B sentences, T words, C characters, J layers, D dim of ELMo, W dim of word vectors, M trained and
K frozen word vectors, I and O dim at the input and the output of the task's RNN.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from itertools import chain, count, repeat
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int32
from torch import Tensor, nn
from torch.nn import functional

from elmore.mix import ScalarMix
from elmore.tasks.config import ElmoConfig, WordsConfig
from elmore.tasks.layers import LayerCache, Text
from elmore.tasks.modules.characters import CharCNN
from elmore.tasks.vectors import WordVectors
from elmore.text.characters import encode_words
from elmore.text.sentences import Sentence
from elmore.transfer import to_device

PADDING, UNKNOWN = 0, 1
_CHARACTERS = 32
"""Length to which the character CNN truncates words, in bytes, including the two word markers."""
MAX_CACHED = 256
"""Maximum number of sentences in the encoder's cache; in use, they hardly ever repeat."""


class WordBatch(NamedTuple):
    """A padded batch of sentences."""

    ids: Int[Tensor, "B T"]
    """Rows of `WordTable`."""

    mask: Bool[Tensor, "B T"]
    lengths: Int[Tensor, " B"]
    """On the CPU, because PyTorch's packed sequences need them there."""

    characters: Int[Tensor, "B T C"]
    layers: Float[Tensor, "B J T D"]


class WordIndex:
    """The rows of words in `WordTable`.

    A word is looked up as it is, then in lower case, then with its digits replaced by zeros.
    Otherwise it has the row of unknown words.

    Args:
        new: Words whose vectors are trained.
        known: Words whose vectors are frozen.
    """

    def __init__(self, new: Sequence[str], known: Sequence[str]) -> None:
        self.new, self.known = list(new), list(known)
        # Reversed, so that the first of duplicate words wins.
        rows = enumerate([*self.new, *self.known], start=2)
        self._row = {word: row for row, word in reversed(list(rows))}

    @classmethod
    def from_sentences(
        cls, sentences: Iterable[Sentence], known: Sequence[str], *, min_count: int, train: bool
    ) -> "WordIndex":
        """Choose the words that get a trained vector: frequent words without a pretrained one.

        Rare words with digits share a vector if they have the same shape: `1,847` and `2,310` are
        both `0,000`.

        Args:
            sentences: The training text. Repeated sentences count once.
            known: Words that have a pretrained vector.
            min_count: How often a word must occur to get a trained vector.
            train: Fine-tune the vectors of `known` words that occur in the training text.
        """
        vocabulary = set(known)
        counts = Counter(chain.from_iterable(dict.fromkeys(map(tuple, sentences))))
        forms = {word: _known_form(vocabulary, word) for word in counts}
        frequent = [w for w, n in counts.items() if forms[w] is None and n >= min_count]
        rare = [w for w, n in counts.items() if forms[w] is None and n < min_count]
        forms |= {word: _known_form(vocabulary, _zero_digits(word)) for word in rare}
        shapes: Counter[str] = Counter()
        for word in rare:
            if forms[word] is None:
                shapes[_zero_digits(word)] += counts[word]
        shared = [shape for shape, n in shapes.items() if n >= min_count]
        new = list(dict.fromkeys([*frequent, *shared]))
        if not train:
            return cls(new, known)
        used = {form: None for form in forms.values() if form is not None}
        return cls([*new, *used], [word for word in known if word not in used])

    def __len__(self) -> int:
        return len(self._row)

    def form(self, word: str) -> str | None:
        """Return the form of a word that has a row; None for an unknown word."""
        return _known_form(self._row, word) or _known_form(self._row, _zero_digits(word))

    def row(self, word: str) -> int:
        """Return the row of a word."""
        form = self.form(word)
        return UNKNOWN if form is None else self._row[form]


def _known_form(vocabulary: Container[str], word: str) -> str | None:
    """Return the form of a word that is in the vocabulary: as it is, or in lower case."""
    if word in vocabulary:
        return word
    return word.lower() if word.lower() in vocabulary else None


def _zero_digits(word: str) -> str:
    """Replace digits by 0, as is common since Collobert et al. (2011)."""
    return re.sub(r"\d", "0", word)


class WordEncoder:
    """Encodes sentences as a `WordBatch`.

    Args:
        index: The rows of words.
        layers: The biLM; None for a baseline.
        with_characters: Whether the task has a character CNN.
        device: Device of the batches.
        max_cached: Maximum number of sentences in the cache, which is cleared when it is full.
    """

    def __init__(
        self,
        index: WordIndex,
        layers: LayerCache | None,
        *,
        with_characters: bool,
        device: torch.device,
        max_cached: int = MAX_CACHED,
    ) -> None:
        self.index = index
        self.layers = layers
        self.device = device
        self._with_characters = with_characters
        self._max_cached = max_cached
        # Words and sentences repeat in every epoch, so they are cached. Row 0 is padding.
        self._spelling: dict[str, int] = {}
        self._spellings = torch.zeros(1, _CHARACTERS, dtype=torch.long, device=device)
        self._sentences: dict[tuple[str, ...], Int32[np.ndarray, "2 T"]] = {}

    def __call__(
        self, sentences: Sequence[Sentence], parts: Sequence[Text] | None = None
    ) -> WordBatch:
        """Encode a batch of sentences; an empty sentence becomes padding.

        Args:
            sentences: The words of each sequence.
            parts: If the sequences consist of several sentences, those sentences, which the biLM
                reads independently.
        """
        counts = torch.tensor([len(words) for words in sentences])
        B, T = len(sentences), max(1, int(counts.max()))
        rows = np.full((2, B, T), PADDING)
        for b, sentence_rows in enumerate(self._rows(sentences)):
            rows[:, b, : sentence_rows.shape[1]] = sentence_rows
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
        """Return for each sentence the word rows and the spelling rows of its words."""
        keys = list(map(tuple, sentences))
        new = [key for key in dict.fromkeys(keys) if key not in self._sentences]
        if len(self._sentences) + len(new) > self._max_cached:
            new = list(dict.fromkeys(keys))
            self._clear_cache()
        if self._with_characters:
            self._add_spellings(new)
        for key in new:
            ids, spellings = map(self.index.row, key), map(self._spelling.get, key, repeat(0))
            self._sentences[key] = np.array([[*ids], [*spellings]], dtype=np.int32)
        return [self._sentences[key] for key in keys]

    def _clear_cache(self) -> None:
        self._sentences.clear()
        self._spelling.clear()
        self._spellings = self._spellings[:1].clone()

    def _add_spellings(self, sentences: Iterable[Sentence]) -> None:
        unseen = sorted({word for words in sentences for word in words} - self._spelling.keys())
        if unseen:
            self._spelling |= zip(unseen, count(len(self._spellings)))
            # No warning about long words: their word vector and ELMo still tell them apart.
            new = to_device(encode_words(unseen, _CHARACTERS, warn=False), self.device)
            self._spellings = torch.cat([self._spellings, new])


class WordTable(nn.Module):
    """Trained and frozen word vectors, in one table.

    Args:
        new: Initial values of the trained vectors, which are the first rows.
        known: Frozen vectors. They are not part of the state dict.
    """

    known: Float[Tensor, "K W"]

    def __init__(self, new: Float[Tensor, "M W"], known: Float[Tensor, "K W"]) -> None:
        super().__init__()
        self.new = nn.Parameter(new)
        self.register_buffer("known", known, persistent=False)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T W"]:
        """Look up the vectors of words."""
        N = len(self.new)
        is_new = ids < N
        # padding_idx excludes padding and frozen words from the gradient.
        new = functional.embedding(ids.where(is_new, PADDING), self.new, padding_idx=PADDING)
        if not len(self.known):
            return new
        known = functional.embedding((ids - N).clamp(min=0), self.known)
        return torch.where(is_new[..., None], new, known)


def _initial_vectors(
    index: WordIndex, vectors: WordVectors
) -> tuple[Float[Tensor, "M W"], Float[Tensor, "K W"]]:
    """Return the initial values of trained vectors, and the frozen vectors.

    Trained words without a pretrained vector get a random one.
    """
    pretrained = torch.from_numpy(vectors.vectors)
    row = {word: i for i, word in reversed(list(enumerate(vectors.words)))}
    std = pretrained.std().item() if len(pretrained) > 1 else 0.1
    new = torch.randn(len(index.new) + 2, pretrained.shape[1]) * std
    new[PADDING] = 0
    for i, word in enumerate(index.new, start=2):
        if word in row:
            new[i] = pretrained[row[word]]
    return new, pretrained[torch.tensor([row[word] for word in index.known], dtype=torch.long)]


class Words(nn.Module):
    """Word vectors, character CNN and ELMo of a task (section 3.3).

    Args:
        words: Settings of word vectors and character CNN.
        elmo: Settings of ELMo.
        index: The rows of words.
        vectors: Pretrained vectors.
        num_layers: Number of layers of the biLM (J); 0 without one.
        elmo_dim: Dimension of the layers (D).
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
        self.table = WordTable(*_initial_vectors(index, vectors))
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
        """Dimension of the input of the task's RNN (I)."""
        self.out_dim = elmo_dim * ("output" in self.mixes)
        """Dimension of ELMo at the output of the task's RNN (O); 0 for none."""

    def forward(self, batch: WordBatch) -> tuple[Float[Tensor, "B T I"], Float[Tensor, "B T O"]]:
        """Return the input of the task's RNN, and the ELMo vectors to append to its output."""
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
        """Return lambda * ||w||^2, summed over all mixes (section 3.3)."""
        zero = self.table.new.new_zeros(())
        return self.lambda_ * sum((mix.penalty() for mix in self.mixes.values()), zero)  # type: ignore[operator]
