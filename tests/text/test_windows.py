"""Oracle: bilm-tf's packing in plain lists, given the same order of sentences."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from elmore.text.characters import encode_words
from elmore.text.corpus import Corpus, TextConfig, encode_corpus
from elmore.text.windows import Windows
from tests.oracles.packing import pack

SENTENCES = [[f"w{i % 7}{j % 5}" for j in range(i % 9 + 1)] for i in range(40)]
LINES = TextConfig(tokenizer="whitespace", sentences="lines")


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    (tmp_path / "text.txt").write_text("\n".join(" ".join(words) for words in SENTENCES))
    return encode_corpus([tmp_path / "text.txt"], tmp_path / "cache", LINES, workers=1)


def windows(corpus: Corpus, **changes) -> Windows:
    vocabulary = corpus.vocabulary(max_size=changes.pop("vocab_size", 1000), min_count=1)
    settings = {"max_characters": 12, "rows": 3, "steps": 4, "seed": 5}
    return Windows(corpus, targets=corpus.targets(vocabulary), **settings | changes)


def spelled(corpus: Corpus, ids: torch.Tensor) -> list[list[str]]:
    words = corpus.words()
    return [[words[i] for i in row] for row in ids.tolist()]


def read_words(corpus: Corpus, batch) -> list[list[list[str]]]:
    """What a batch reads, found again by its characters."""
    by_ids = {
        tuple(ids.tolist()): w
        for w, ids in zip(corpus.words(), encode_words(corpus.words(), 12), strict=True)
    }
    distinct = [by_ids.get(tuple(ids)) for ids in batch.distinct.tolist()]
    return [[[distinct[i] for i in row] for row in direction] for direction in batch.words.tolist()]


@pytest.mark.parametrize("direction", [0, 1])
def test_windows_are_those_of_bilm_tf(corpus: Corpus, direction: int) -> None:
    order = [
        sentence
        for epoch in range(2)
        for sentence in np.random.default_rng([5, epoch, direction]).permutation(40)
    ]
    expected = pack((SENTENCES[i] for i in order), rows=3, steps=4, backward=direction == 1)
    stream = windows(corpus)
    assert len(expected) > 30
    for read, predicted in expected:
        batch = stream.next()
        assert read_words(corpus, batch)[direction] == read
        assert spelled(corpus, batch.targets[direction]) == predicted


def test_every_word_is_predicted_once_an_epoch_in_both_directions(corpus: Corpus) -> None:
    stream = windows(corpus, rows=1, steps=1)
    for direction, marker in ((0, "</S>"), (1, "<S>")):
        expected = Counter(word for words in SENTENCES for word in [*words, marker])
        stream = windows(corpus, rows=1, steps=1)
        for _ in range(3):
            found = Counter(
                spelled(corpus, stream.next().targets[direction])[0][0]
                for _ in range(corpus.num_tokens)
            )
            assert found == expected


def test_epochs_and_directions_and_seeds_differ(corpus: Corpus) -> None:
    def first(seed: int, direction: int) -> list:
        return windows(corpus, seed=seed).next().targets[direction].tolist()

    assert first(5, 0) == first(5, 0)
    assert first(5, 0) != first(6, 0)
    stream = windows(corpus, rows=1, steps=corpus.num_tokens)
    assert stream.next().targets[0].tolist() != stream.next().targets[0].tolist()


@pytest.mark.parametrize("before", [0, 1, 13, 60])
def test_a_stream_goes_on_from_its_state(corpus: Corpus, before: int) -> None:
    stream = windows(corpus)
    for _ in range(before):
        stream.next()
    resumed = windows(corpus, state=stream.state())
    for _ in range(20):
        for a, b in zip(stream.next(), resumed.next(), strict=True):
            assert torch.equal(a, b)


def test_rows_can_be_shared_out(corpus: Corpus) -> None:
    whole, first, rest = windows(corpus), windows(corpus), windows(corpus)
    for _ in range(10):
        batch, a, b = whole.next(), first.next(slice(0, 1)), rest.next(slice(1, 3))
        assert torch.equal(torch.cat([a.targets, b.targets], dim=1), batch.targets)
        assert read_words(corpus, a)[0] + read_words(corpus, b)[0] == read_words(corpus, batch)[0]


def test_words_beyond_the_vocabulary_are_read_but_not_predicted(corpus: Corpus) -> None:
    batch = windows(corpus, vocab_size=6).next()
    full = windows(corpus).next()
    assert torch.equal(batch.distinct, full.distinct)
    assert torch.equal(batch.targets, torch.where(full.targets < 6, full.targets, 2))


def test_a_sentence_starts_from_zero_unless_told_otherwise(corpus: Corpus) -> None:
    stream, carried = windows(corpus), windows(corpus, carry_state=True)
    for _ in range(20):
        batch = stream.next()
        first = [
            [[word == marker for word in row] for row in direction]
            for direction, marker in zip(read_words(corpus, batch), ("<S>", "</S>"), strict=True)
        ]
        assert batch.continues.tolist() == [[[not f for f in row] for row in d] for d in first]
        assert carried.next().continues.all()
