"""Sentences in rows of a batch. Oracles: rows read step by step; a linear search."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.inference import layout as layout_module
from elmore.inference.layout import Layout, align, pack

lengths_of_sentences = st.lists(st.integers(0, 40), min_size=1, max_size=60)


def lay_out_tokens(layout: Layout) -> np.ndarray:
    """Return the number of the token at each step, from 1, and 0 for padding: (T, 2, B)."""
    tokens = np.zeros(layout.starts.shape, dtype=np.int64)
    for d in range(2):
        assert not tokens[layout.step[d], d, layout.row].any()
        tokens[layout.step[d], d, layout.row] = np.arange(1, len(layout.row) + 1)
    return tokens


def make_layout(lay_out, lengths: list[int]) -> tuple[Layout, list[list[int]]]:
    tokens = np.arange(1, sum(lengths) + 1)
    sentences = [part.tolist() for part in np.split(tokens, np.cumsum(lengths)[:-1])]
    return lay_out(np.array(lengths, dtype=np.int64)), sentences


@pytest.mark.parametrize("lay_out", [pack, align])
@given(lengths=lengths_of_sentences)
def test_each_direction_contains_every_sentence_in_its_order(lay_out, lengths: list[int]) -> None:
    layout, sentences = make_layout(lay_out, lengths)
    tokens = lay_out_tokens(layout)
    for d in range(2):
        expected = {tuple(s[::-1] if d else s) for s in sentences if s}
        read = set()
        for row in range(tokens.shape[2]):
            sentence: list[int] = []
            for token, start in zip(tokens[:, d, row], layout.starts[:, d, row], strict=True):
                if start:
                    read.add(tuple(sentence))
                    sentence = []
                if token:
                    sentence.append(int(token))
            read.add(tuple(sentence))
        assert read - {()} == expected


@given(lengths_of_sentences)
def test_aligned_sentences_end_at_the_last_step(lengths: list[int]) -> None:
    layout, sentences = make_layout(align, lengths)
    tokens = lay_out_tokens(layout)
    for row, sentence in enumerate(sentences):
        if sentence:
            assert tokens[-1, 0, row] == sentence[-1]
            assert tokens[-1, 1, row] == sentence[0]


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(1, 16))
def test_longest_remaining_sentence_is_added_to_the_shortest_row(sizes: list[int], B: int) -> None:
    lengths = [0] * B
    expected = {}
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        shortest = lengths.index(min(lengths))
        expected[i] = lengths[shortest], shortest
        lengths[shortest] += sizes[i]
    starts, rows, longest = layout_module._assign_rows(np.array(sizes, dtype=np.int64), B)
    assert dict(enumerate(zip(starts.tolist(), rows.tolist(), strict=True))) == expected
    assert longest == max([*lengths, 0])


def test_less_than_a_tenth_of_the_steps_is_padding() -> None:
    rng = np.random.default_rng(0)
    lengths = np.maximum(3, rng.normal(26, 10, 2000).astype(int))
    layout = pack(lengths)
    T, _, B = layout.starts.shape
    assert B == layout_module._MAX_ROWS
    assert lengths.sum() > 0.9 * T * B
    assert T % layout_module._MULTIPLE == 0


def test_very_long_sentence_adds_little_padding() -> None:
    lengths = np.array([100_000] + [20] * 1000)
    layout = pack(lengths)
    assert layout.starts.size < 2 * 2 * lengths.sum()
