"""Tokenized sentences to vectors, batch by batch: how depends on where the biLM is.

B sentences, J layers, T tokens, W words of a sentence, N words of a batch, D dim.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import accumulate, chain, pairwise
from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from elmore.bilm.model import BiLM, BiLMState
from elmore.bilm.packed import PackedBiLM
from elmore.bilm.streams import StreamedBiLM, pack
from elmore.bilm.word_table import WordTable
from elmore.text.sentences import BOS_WORD, EOS_WORD, frame, group_by_length
from elmore.transfer import Fetcher, to_device

Batch = tuple[Iterable[list[str]], Iterable[Float[np.ndarray, "..."]]]
"""Some sentences, and the vectors of each: (J, W, D), or (W, D) for one layer."""

Twin = BiLM | PackedBiLM | StreamedBiLM

Pick = Callable[[Float[Tensor, "B J T D"]], Tensor]
"""All layers to those that are wanted, (B, J, T, D) or (B, T, D), in the type that is wanted."""

# Sentences of so many batches are sorted by length together. More hardly make it faster, and the
# vectors of all of them wait for their turn.
_BATCHES_SORTED = 2
_BATCHES_AHEAD = 2  # on which a GPU works while the caller has the one before


class Flat(NamedTuple):
    """Some sentences, one after the other: thousands of lists would keep the host busy."""

    words: list[str]
    lengths: list[int]


def in_sequence(
    sentences: Iterable[list[str]], bilm: Twin, words: WordTable, pick: Pick
) -> Iterator[Batch]:
    """Embed one sentence after the other, each from the state that the one before left."""
    state: BiLMState | None = None
    for tokens in sentences:
        with torch.inference_mode(), _evaluating(bilm):  # not while the next sentence is read
            rows = to_device(words(frame(tokens)), words.vectors.device)
            x, mask = words.vectors[rows][None], torch.ones_like(rows, dtype=torch.bool)[None]
            layers, state = bilm.contextualize(x, mask, state)
            picked = pick(layers[:, :, 1:-1])[0].cpu()
        yield [tokens], [picked.numpy().copy()]  # a view would keep all layers in memory


def in_groups(
    sentences: Iterable[list[str]],
    bilm: BiLM | PackedBiLM,
    words: WordTable,
    pick: Pick,
    max_words: int,
) -> Iterator[Batch]:
    """Embed sentences of like length together, so that there is little padding."""
    for window in _windows(sentences, max_words * _BATCHES_SORTED):
        found: dict[int, np.ndarray] = {}
        with _evaluating(bilm):
            for rows in group_by_length([len(tokens) + 2 for tokens in window], max_words):
                some = [window[row] for row in rows]
                found |= zip(rows, _run(some, bilm, words, pick), strict=True)
        # One by one, so that what the caller has dropped is gone.
        yield window, (found.pop(row) for row in range(len(window)))


@torch.inference_mode()
def _run(
    sentences: Sequence[list[str]], bilm: BiLM | PackedBiLM, words: WordTable, pick: Pick
) -> list[Float[np.ndarray, "..."]]:
    """Embed some sentences together."""
    rows = torch.from_numpy(words([BOS_WORD, EOS_WORD, *chain.from_iterable(sentences)]))
    lengths = [len(tokens) for tokens in sentences]
    layers = bilm.contextualize_words(words.vectors, rows[2:], torch.tensor(lengths), rows[:2])
    picked = pick(layers[None])[0]  # (J, N, D) or (N, D)
    # Copies: a view of one sentence would keep those of all in memory.
    return [part.numpy().copy() for part in picked.split(lengths, dim=-2)]


def in_streams(
    sentences: Iterable[list[str]],
    bilm: StreamedBiLM,
    words: WordTable,
    pick: Pick,
    max_words: int,
) -> Iterator[Batch]:
    """Embed sentences in streams, and prepare a batch while the ones before it are computed."""
    ahead: deque[tuple[Flat, Sequence[int], Future[np.ndarray]]] = deque()
    with Fetcher() as fetcher:
        for some in _flat_windows(sentences, max_words):
            vectors = _run_streams(some, bilm, words, pick)
            ahead.append((some, vectors.shape, fetcher.start(vectors)))
            if len(ahead) > _BATCHES_AHEAD:
                yield _finish(*ahead.popleft())
        while ahead:
            yield _finish(*ahead.popleft())


@torch.inference_mode()
def _run_streams(
    some: Flat, bilm: StreamedBiLM, words: WordTable, pick: Pick
) -> Float[Tensor, "*J N D"]:
    """Return the vectors of all words, a sentence after the other, whatever the shape says."""
    found = words([BOS_WORD, EOS_WORD, *some.words])
    marks, rows = found[:2].tolist(), found[2:]
    streams = pack(rows, some.lengths, bos=marks[0], eos=marks[1])
    with _evaluating(bilm):
        layers = bilm(words.vectors, rows, streams)  # (J, N, D)
    return by_sentence(pick(layers[None])[0], some.lengths)


def by_sentence(layers: Float[Tensor, "*J N D"], lengths: Sequence[int]) -> Float[Tensor, "*J N D"]:
    """Put all layers of a sentence before those of the next: [a b c; A B C] -> [a b A; B c C]."""
    *several, N, D = layers.shape
    J = math.prod(several)
    n = to_device(np.array(lengths), layers.device)
    sentence = torch.arange(len(n), device=n.device).repeat_interleave(J * n, output_size=J * N)
    first = (n.cumsum(0) - n)[sentence]
    inside = torch.arange(J * N, device=n.device) - J * first
    j, word = inside // n[sentence], inside % n[sentence]
    return layers.reshape(J * N, D)[j * N + first + word].view_as(layers)


def _finish(some: Flat, shape: Sequence[int], copied: "Future[np.ndarray]") -> Batch:
    *several, _, D = shape
    J = math.prod(several)
    of_one = (*several, -1, D)
    rows = copied.result().reshape(-1, D)
    bounds = list(pairwise(accumulate(some.lengths, initial=0)))
    return (
        (some.words[a:b] for a, b in bounds),
        (rows[J * a : J * b].reshape(of_one) for a, b in bounds),
    )


def _windows(sentences: Iterable[list[str]], max_words: int) -> Iterator[list[list[str]]]:
    """Cut a stream of sentences into lists of about `max_words` words."""
    window: list[list[str]] = []
    count = 0
    for tokens in sentences:
        window.append(tokens)
        count += len(tokens) + 2
        if count >= max_words:
            yield window
            window, count = [], 0
    if window:
        yield window


def _flat_windows(sentences: Iterable[list[str]], max_words: int) -> Iterator[Flat]:
    """Cut a stream of sentences as `_windows` does."""
    words: list[str] = []
    lengths: list[int] = []
    count = 0
    for tokens in sentences:
        words += tokens
        lengths.append(len(tokens))
        count += len(tokens) + 2
        if count >= max_words:
            yield Flat(words, lengths)
            words, lengths, count = [], [], 0
    if lengths:
        yield Flat(words, lengths)


_evaluated: WeakKeyDictionary[nn.Module, tuple[int, bool]] = WeakKeyDictionary()
"""How many threads evaluate a biLM, and whether it was training before the first of them."""
_lock = Lock()


@contextmanager
def _evaluating(bilm: nn.Module) -> Iterator[None]:
    """Switch dropout off for a moment: a task may be training this very biLM."""
    with _lock:
        count, training = _evaluated.get(bilm, (0, bilm.training))
        _evaluated[bilm] = count + 1, training
        bilm.eval()
    try:
        yield
    finally:
        with _lock:
            count, training = _evaluated.pop(bilm)
            if count > 1:
                _evaluated[bilm] = count - 1, training
            else:
                bilm.train(training)
