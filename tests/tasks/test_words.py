"""Word representations. Oracles: expected rows by hand; Eq. (1) of the ELMo paper in NumPy."""

from pathlib import Path

import numpy as np
import pytest
import torch

from elmore.embedder import Embedder, load
from elmore.tasks.config import ElmoConfig, WordsConfig
from elmore.tasks.layers import LayerCache
from elmore.tasks.vectors import WordVectors
from elmore.tasks.words import UNKNOWN, WordEncoder, WordIndex, Words, WordTable

KNOWN = WordVectors(["the", "bank", "Paris"], np.arange(6, dtype=np.float32).reshape(3, 2))
SENTENCES = [["The", "bank", "fails"], ["the"], []]


def test_lookup_falls_back_to_lower_case() -> None:
    text = [["fails", "fails", "once", "Paris", "THE"]]
    index = WordIndex.from_sentences(text, KNOWN.words, min_count=2, train=False)
    assert (index.new, index.known) == (["fails"], KNOWN.words)  # "THE" uses the vector of "the"
    assert index.row("paris") == index.row("never") == UNKNOWN
    assert index.row("The") == index.row("the") != index.row("bank")


def test_rare_numbers_of_the_same_shape_share_a_row() -> None:
    text = [["7:45", "8:15", "1996", "1996", "x9", "once"]]
    index = WordIndex.from_sentences(text, [*KNOWN.words, "00"], min_count=2, train=False)
    assert index.new == ["1996", "0:00"]  # "x0" and "once" occur only once
    assert index.row("1:23") == index.row("7:45") == index.row("0:00") != UNKNOWN
    assert index.row("1996") not in (UNKNOWN, index.row("1:23"))
    assert index.row("42") == index.row("00") != UNKNOWN  # "00" has a pretrained vector
    assert index.row("1847") == index.row("x9") == index.row("once") == UNKNOWN


def test_repeated_sentences_count_once() -> None:
    text = [["once", "twice"], ["once", "twice"], ["twice"]]
    assert WordIndex.from_sentences(text, [], min_count=2, train=False).new == ["twice"]


def test_frequent_numbers_have_their_own_row() -> None:
    text = [["42", "42", "7PM", "8PM"]]
    index = WordIndex.from_sentences(text, ["00", "0pm"], min_count=2, train=True)
    assert index.new == ["42", "0pm"]  # "0pm" is fine-tuned, "00" is not
    assert index.row("42") != index.row("43") == index.row("00")
    assert index.row("9pm") == index.row("9PM") == index.row("0pm")


@pytest.mark.parametrize("train", [False, True])
def test_pretrained_vectors_are_trained_only_if_enabled_and_in_the_text(train: bool) -> None:
    index = WordIndex.from_sentences(
        [["fails", "fails", "Paris", "THE"]], KNOWN.words, min_count=2, train=train
    )
    words = Words(WordsConfig(), ElmoConfig(place="none"), index, KNOWN, num_layers=0, elmo_dim=0)
    learned = set()
    for word, vector in {"The": [0, 1], "bank": [2, 3], "Paris": [4, 5]}.items():
        words.zero_grad()
        actual = words.table(torch.tensor([[index.row(word)]]))
        assert actual[0, 0].tolist() == vector
        actual.sum().backward()
        if words.table.new.grad.any():
            learned.add(word)
    assert learned == ({"The", "Paris"} if train else set())
    assert "known" not in words.table.state_dict()


def test_table_works_without_frozen_vectors() -> None:
    vectors = torch.randn(4, 5)
    table = WordTable(vectors, torch.zeros(0, 5))
    assert torch.equal(table(torch.tensor([[0, 3]]))[0], vectors[[0, 3]])


def build(embedder: Embedder | None, **elmo: object) -> tuple[Words, WordEncoder]:
    index = WordIndex(["fails"], KNOWN.words)
    config = WordsConfig(char_filters=4, dropout=0)
    words = Words(
        config,
        ElmoConfig(dropout=0, **elmo),
        index,
        KNOWN,
        num_layers=embedder.num_layers if embedder else 0,
        elmo_dim=embedder.dim if embedder else 0,
    )
    table = LayerCache(embedder) if embedder else None
    encode = WordEncoder(index, table, with_characters=True, device=torch.device("cpu"))
    return words, encode


@pytest.mark.parametrize(
    ("place", "widths"),
    [("none", (6, 0)), ("input", (38, 0)), ("output", (6, 32)), ("both", (38, 32))],
)
def test_elmo_is_concatenated_at_the_configured_places(
    model: Path, place, widths: tuple[int, int]
) -> None:
    words, encode = build(load(model, device="cpu") if place != "none" else None, place=place)
    at_input, at_output = words(encode(SENTENCES))
    assert (words.in_dim, words.out_dim) == widths
    assert at_input.shape == (3, 3, widths[0])
    assert at_output.shape == (3, 3, widths[1])
    # Padding is zero.
    assert not at_input[1, 1:].any()
    assert not at_input[2].any()
    assert not at_output[1:, 1:].any()


@pytest.mark.parametrize("layers", ["learned", "average", "top"])
def test_elmo_matches_equation_1(model: Path, layers) -> None:
    elmo = load(model, device="cpu")
    words, encode = build(elmo, place="input", layers=layers)
    mix = words.mixes["input"]
    w = np.array([0.2, -1.0, 0.7])
    with torch.no_grad():
        mix.gamma.fill_(0.6)
        if layers == "learned":
            mix.w.copy_(torch.from_numpy(w))
    at_input, _ = words(encode(SENTENCES))
    s = {
        "learned": np.exp(w) / np.exp(w).sum(),
        "average": np.full(3, 1 / 3),
        "top": np.array([0, 0, 1]),
    }[layers]
    expected = 0.6 * np.einsum("j,jtd->td", s, elmo.embed([SENTENCES[0]])[0])
    np.testing.assert_allclose(at_input[0, :, -32:].detach(), expected, rtol=1e-4, atol=1e-5)
    penalty = words.penalty().item()
    assert penalty == pytest.approx(0.001 * (w**2).sum() if layers == "learned" else 0)


def test_encoding_does_not_depend_on_the_batch() -> None:
    words, encode = build(None, place="none")
    together, _ = words(encode(SENTENCES))
    for i, sentence in enumerate(SENTENCES):
        separate, _ = words(encode([sentence]))
        torch.testing.assert_close(together[i, : max(1, len(sentence))], separate[0])


@pytest.mark.parametrize("max_cached", [0, 2, 100])
def test_cache_does_not_change_the_encoding(max_cached: int) -> None:
    """Oracle: an encoder with an empty cache."""
    index, device = WordIndex(["fails"], KNOWN.words), torch.device("cpu")
    encode = WordEncoder(index, None, with_characters=True, device=device, max_cached=max_cached)
    a, b, c = [["the", "Cat"], ["new"], []], [["new"], ["the", "dog"], ["new"]], [["Cat"] * 5]
    for sentences in (a, b, a, c, b):
        _, fresh = build(None, place="none")
        actual, expected = encode(sentences), fresh(sentences)
        for name in ("ids", "mask", "lengths", "characters"):
            assert torch.equal(getattr(actual, name), getattr(expected, name)), name
        distinct = len({tuple(words) for words in sentences})
        assert len(encode._sentences) <= max(max_cached, distinct)
        if not max_cached:  # only the words of the current batch are cached
            assert len(encode._spellings) == 1 + len({w for words in sentences for w in words})


def test_long_words_are_truncated_without_a_warning() -> None:
    """Oracle: pytest, which turns warnings into errors."""
    encode = WordEncoder(WordIndex([], []), None, with_characters=True, device=torch.device("cpu"))
    characters = encode([["x" * 40]]).characters
    assert characters.shape == (1, 1, 32)
    assert characters.all()
