"""Held-out sentences: a part of the training text, or a separate text."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Int

from elmore.errors import InputError
from elmore.text.corpus import BOS, EOS, Corpus, TextConfig, read_sentences
from elmore.training.run_folder import Report


def split_heldout(
    corpus: Corpus, share: float, max_count: int
) -> tuple[list[list[str]], Int[np.ndarray, " S"]]:
    """Hold out random sentences; return their words, and the indices of the training sentences.

    Repetitions of held-out sentences are excluded from training.
    """
    count = min(max_count, int(share * corpus.num_sentences))
    if count == 0:
        return [], np.arange(corpus.num_sentences)
    order = np.random.default_rng(0).permutation(corpus.num_sentences)
    words, tokens, starts = corpus.words(), corpus.tokens, corpus.starts
    encoded = [tokens[starts[i] : starts[i + 1]] for i in np.sort(order[:count])]
    heldout = {sentence.tobytes() for sentence in encoded}
    is_heldout = (sentence in heldout for sentence in _encoded_sentences(corpus))
    training = np.flatnonzero(~np.fromiter(is_heldout, bool, corpus.num_sentences))
    return [[words[token] for token in sentence[1:-1]] for sentence in encoded], training


def read_heldout(path: Path, config: TextConfig, corpus: Corpus, report: Report) -> list[list[str]]:
    """Read held-out sentences; report how many of them are in the training text, too."""
    sentences = list(read_sentences(path, config))
    if not sentences:
        raise InputError(f"{path} has no sentences; expected held-out text")
    if shared := count_shared(corpus, sentences):
        note = (
            f"{shared:,} of the {len(sentences):,} held-out sentences are also in the training "
            "text, so perplexity will be too low"
        )
        report({"note": note})
    return sentences


def count_shared(corpus: Corpus, sentences: Sequence[Sequence[str]]) -> int:
    """Return the number of sentences that the corpus contains."""
    ids = {word: i for i, word in enumerate(corpus.words())}
    encoded = [
        np.array([BOS, *(ids[word] for word in words), EOS], np.uint32).tobytes()
        for words in sentences
        if all(word in ids for word in words)
    ]
    shared = set(encoded).intersection(_encoded_sentences(corpus))
    return sum(sentence in shared for sentence in encoded)


def _encoded_sentences(corpus: Corpus) -> Iterator[bytes]:
    """Yield the token ids of each sentence as bytes, which can be compared and hashed."""
    tokens = corpus.tokens.data
    return (bytes(tokens[start:end]) for start, end in pairwise(corpus.starts))
