"""Training windows. Oracle: bilm-tf's packing in plain Python, given the same sentence order."""

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
NUM_TARGETS = sum(len(words) + 1 for words in SENTENCES)  # words and one boundary token each
LINES = TextConfig(tokenizer="whitespace", sentences="lines")


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    (tmp_path / "text.txt").write_text("\n".join(" ".join(words) for words in SENTENCES))
    return encode_corpus([tmp_path / "text.txt"], tmp_path / "cache", LINES, workers=1)


def windows(corpus: Corpus, **changes) -> Windows:
    vocabulary = corpus.vocabulary(max_size=changes.pop("vocab_size", 1000), min_count=1)
    settings = {"max_characters": 12, "rows": 3, "steps": 4, "seed": 5}
    return Windows(corpus, targets=corpus.targets(vocabulary), **settings | changes)


def decode(corpus: Corpus, ids: torch.Tensor) -> list[list[str]]:
    words = corpus.words()
    return [[words[i] for i in row] for row in ids.tolist()]


def input_words(corpus: Corpus, batch) -> list[list[list[str]]]:
    """Decode the input of a batch from its character ids."""
    by_ids = {
        tuple(ids.tolist()): w
        for w, ids in zip(corpus.words(), encode_words(corpus.words(), 12), strict=True)
    }
    distinct = [by_ids.get(tuple(ids)) for ids in batch.distinct.tolist()]
    return [[[distinct[i] for i in row] for row in direction] for direction in batch.words.tolist()]


@pytest.mark.parametrize("direction", [0, 1])
def test_windows_equal_bilm_tf(corpus: Corpus, direction: int) -> None:
    order = [
        sentence
        for epoch in range(2)
        for sentence in np.random.default_rng([5, epoch, direction]).permutation(40)
    ]
    expected = pack((SENTENCES[i] for i in order), rows=3, steps=4, backward=direction == 1)
    sequence = windows(corpus)
    assert len(expected) > 30
    for inputs, targets in expected:
        batch = sequence.next()
        assert input_words(corpus, batch)[direction] == inputs
        assert decode(corpus, batch.targets[direction]) == targets


def test_every_word_is_a_target_once_per_epoch_and_direction(corpus: Corpus) -> None:
    for direction, boundary in ((0, "</S>"), (1, "<S>")):
        expected = Counter(word for words in SENTENCES for word in [*words, boundary])
        sequence = windows(corpus, rows=1, steps=1)
        for _ in range(3):
            targets = Counter(
                decode(corpus, sequence.next().targets[direction])[0][0] for _ in range(NUM_TARGETS)
            )
            assert targets == expected


def test_order_depends_on_the_seed_and_the_epoch(corpus: Corpus) -> None:
    def first_targets(seed: int) -> list:
        return windows(corpus, seed=seed).next().targets[0].tolist()

    assert first_targets(5) == first_targets(5)
    assert first_targets(5) != first_targets(6)
    sequence = windows(corpus, rows=1, steps=NUM_TARGETS)
    assert sequence.next().targets[0].tolist() != sequence.next().targets[0].tolist()


@pytest.mark.parametrize("before", [0, 1, 13, 60])
def test_windows_resume_from_a_saved_state(corpus: Corpus, before: int) -> None:
    sequence = windows(corpus)
    for _ in range(before):
        sequence.next()
    resumed = windows(corpus, state=sequence.state())
    for _ in range(20):
        for a, b in zip(sequence.next(), resumed.next(), strict=True):
            assert torch.equal(a, b)


def test_slices_of_rows_concatenate_to_the_batch(corpus: Corpus) -> None:
    full, first, rest = windows(corpus), windows(corpus), windows(corpus)
    for _ in range(10):
        batch, a, b = full.next(), first.next(slice(0, 1)), rest.next(slice(1, 3))
        assert torch.equal(torch.cat([a.targets, b.targets], dim=1), batch.targets)
        assert (
            input_words(corpus, a)[0] + input_words(corpus, b)[0] == input_words(corpus, batch)[0]
        )


def test_out_of_vocabulary_words_are_inputs_but_not_targets(corpus: Corpus) -> None:
    batch = windows(corpus, vocab_size=6).next()
    full = windows(corpus).next()
    assert torch.equal(batch.distinct, full.distinct)
    assert torch.equal(batch.targets, torch.where(full.targets < 6, full.targets, 2))


def test_state_is_reset_at_each_sentence_unless_carried(corpus: Corpus) -> None:
    reset, carried = windows(corpus), windows(corpus, carry_state=True)
    for _ in range(20):
        batch = reset.next()
        expected = [
            [[word != boundary for word in row] for row in direction]
            for direction, boundary in zip(input_words(corpus, batch), ("<S>", "</S>"), strict=True)
        ]
        assert batch.keep_state.tolist() == expected
        assert carried.next().keep_state.all()
