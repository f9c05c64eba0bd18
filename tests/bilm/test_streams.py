"""Oracles: the biLM as it is, a sentence at a time; a place-by-place reading of the streams; the
shortest stream, looked for among all."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmore.bilm import streams as streams_module
from elmore.bilm.streams import StreamedBiLM, pack
from elmore.bilm.word_table import WordTable
from elmore.checkpoint.pretrained import read_pretrained
from elmore.text.characters import encode_words
from elmore.text.sentences import batch_sentences
from tests.oracles.releases import VARIANTS, write_release

BOS, EOS = 1000, 1001
SENTENCES = [["rates"], ["the", "bank", "of", "the", "river", "."] * 9, [], ["Banks", "fail"]]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_each_direction_reads_every_sentence_from_its_mark(lengths: list[int]) -> None:
    words = np.arange(sum(lengths))
    packed = pack(words, lengths, bos=BOS, eos=EOS)
    sentences = [part.tolist() for part in np.split(words, np.cumsum(lengths)[:-1])]
    for d, mark in enumerate((BOS, EOS)):
        expected = {(mark, *(s[::-1] if d else s)) for s in sentences if s}
        found = set()
        for b in range(packed.words.shape[2]):
            read: list[int] = []
            for word, goes_on in zip(packed.words[:, d, b], packed.continues[:, d, b], strict=True):
                if not goes_on:
                    found.add(tuple(read))
                    read = []
                read.append(int(word))
            found.add(tuple(read))
        assert expected <= found
        assert found - expected <= {(), (0,)}  # and nothing but empty places


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_words_are_where_they_are_said_to_be(lengths: list[int]) -> None:
    words = np.arange(sum(lengths))
    packed = pack(words, lengths, bos=BOS, eos=EOS)
    T = len(packed.words)
    np.testing.assert_array_equal(packed.words[packed.place, 0, packed.stream], words)
    np.testing.assert_array_equal(packed.words[T - packed.place, 1, packed.stream], words)


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(1, 16))
def test_the_longest_sentence_left_goes_to_the_shortest_stream(sizes: list[int], B: int) -> None:
    lengths = [0] * B
    expected = {}
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        shortest = lengths.index(min(lengths))
        expected[i] = lengths[shortest], shortest
        lengths[shortest] += sizes[i]
    starts, numbers, longest = streams_module._share_out(np.array(sizes, dtype=np.int64), B)
    found = zip(starts.tolist(), numbers.tolist(), strict=True)
    assert dict(enumerate(found)) == expected
    assert longest == max(1, *lengths, 0)


def test_few_places_are_empty() -> None:
    draw = np.random.default_rng(0)
    lengths = np.maximum(3, draw.normal(26, 10, 2000).astype(int)).tolist()
    packed = pack(np.arange(sum(lengths)), lengths, bos=BOS, eos=EOS)
    T, _, B = packed.words.shape
    assert B == streams_module._MAX_STREAMS
    assert sum(lengths) + len(lengths) > 0.9 * T * B
    assert T % streams_module._MULTIPLE == 0


def test_a_very_long_sentence_makes_streams_few() -> None:
    lengths = [100_000] + [20] * 1000
    packed = pack(np.arange(sum(lengths)), lengths, bos=BOS, eos=EOS)
    assert packed.words.size < 2 * 2 * sum(lengths)


@pytest.mark.parametrize("variant", VARIANTS)
@torch.inference_mode()
def test_streams_give_what_sentences_give(variant: str, tmp_path: Path) -> None:
    release = write_release(tmp_path, VARIANTS[variant])
    bilm, vocabulary, *_ = read_pretrained(release.weights_file)
    width = bilm.config.max_characters
    encode = vocabulary.encode_words if vocabulary else lambda words: encode_words(words, width)
    twin = StreamedBiLM(bilm.eval())
    table = WordTable(twin, encode, torch.device("cpu"))
    bos, eos, *_ = rows = table(["<S>", "</S>", *(w for words in SENTENCES for w in words)])
    lengths = [len(words) for words in SENTENCES]
    packed = pack(rows[2:], lengths, bos=int(bos), eos=int(eos))
    found = twin(table.vectors, rows[2:], packed).split(lengths, dim=1)
    for words, layers in zip(SENTENCES, found, strict=True):
        expected = bilm(*batch_sentences([words], encode)).layers[0, :, 1:-1]
        torch.testing.assert_close(layers, expected, rtol=0, atol=2e-6)
