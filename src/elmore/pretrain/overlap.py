"""Does held-out text occur in the training text? A question of hashes, in one pass."""

from collections.abc import Iterator, Sequence

import numpy as np

from elmore.text.corpus import BOS, EOS, Corpus

_TOKENS_AT_ONCE = 1 << 22


def count_shared(corpus: Corpus, sentences: Sequence[Sequence[str]]) -> int:
    """Count the sentences that the corpus holds word for word."""
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
