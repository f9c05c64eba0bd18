"""Sentences that are not learned from: kept aside, or read and looked for in the training text."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from elmore.errors import InputError
from elmore.text.corpus import BOS, EOS, Corpus, TextConfig, sentences_of
from elmore.text.lines import read_lines
from elmore.training.run_folder import Report

_TOKENS_AT_ONCE = 1 << 22


def split_heldout(corpus: Corpus, share: float, at_most: int) -> tuple[list[list[str]], np.ndarray]:
    """Keep some sentences aside; return their words, and the numbers of all others."""
    count = min(at_most, int(share * corpus.num_sentences))
    order = np.random.default_rng(0).permutation(corpus.num_sentences)
    aside, rest = np.sort(order[:count]), np.sort(order[count:])
    words = corpus.words() if count else []
    starts = corpus.starts
    sentences = [
        [words[token] for token in corpus.tokens[starts[i] + 1 : starts[i + 1] - 1]] for i in aside
    ]
    return sentences, rest


def read_heldout(path: Path, config: TextConfig, corpus: Corpus, report: Report) -> list[list[str]]:
    """Read held-out sentences; say so if some are in the training text."""
    sentences = list(sentences_of(read_lines(path, replace_invalid=config.replace_invalid), config))
    if not sentences:
        raise InputError(f"{path} holds no sentences; expected held-out text")
    shared = count_shared(corpus, sentences)
    if shared:
        report(
            {
                "note": f"{shared:,} of the {len(sentences):,} held-out sentences are in the "
                "training text too: perplexity will look better than it is"
            }
        )
    return sentences


def count_shared(corpus: Corpus, sentences: Sequence[Sequence[str]]) -> int:
    """Count the sentences that the corpus holds word for word, by hashes, in one pass."""
    number = {word: i for i, word in enumerate(corpus.words())}
    known = [
        np.array([BOS, *(number[word] for word in words), EOS])
        for words in sentences
        if all(word in number for word in words)
    ]
    if not known:
        return 0
    longest = max(map(len, known))
    factors = np.random.default_rng(0).integers(1, 2**63, longest, dtype=np.uint64)
    wanted = np.array(
        [np.sum(tokens.astype(np.uint64) * factors[: len(tokens)]) for tokens in known]
    )
    found: set[int] = set()
    for hashes in _sentence_hashes(corpus, factors):
        found.update(hashes[np.isin(hashes, wanted)].tolist())
    return sum(int(value) in found for value in wanted)


def _sentence_hashes(corpus: Corpus, factors: np.ndarray) -> Iterator[np.ndarray]:
    """Yield, for blocks of sentences, the sum of tokens times the factor of their place."""
    starts = corpus.starts
    first = 0
    while first < corpus.num_sentences:
        last = int(np.searchsorted(starts, starts[first] + _TOKENS_AT_ONCE, side="right")) - 1
        last = max(first + 1, last)
        begins = starts[first:last] - starts[first]
        tokens = corpus.tokens[starts[first] : starts[last]].astype(np.uint64)
        place = np.arange(len(tokens)) - np.repeat(begins, corpus.lengths[first:last])
        weight = factors[np.minimum(place, len(factors) - 1)]
        hashes = np.add.reduceat(tokens * weight, begins)
        yield hashes[corpus.lengths[first:last] <= len(factors)]
        first = last
