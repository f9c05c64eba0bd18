"""Nearest neighbors. Oracle: the sorted cosines of all words of the corpus."""

import numpy as np
import pytest

from elmore.analysis.neighbors import Occurrence, nearest_neighbors, parse_query
from elmore.bilm.model import BiLM
from elmore.embedder import Embedder
from elmore.errors import InputError

CORPUS = [
    ["They", "put", "on", "a", "play"],
    ["The", "coach", "changed", "the", "play"],
    [],
    ["A", "play", "in", "two", "acts"],
    ["play"],
]
QUERIES = [
    Occurrence(["He", "wrote", "a", "play"], 3),
    Occurrence(["They", "put", "on", "a", "play"], 1),
]


@pytest.mark.parametrize("layer", ["top", "average", 0, 1, 2])
@pytest.mark.parametrize("k", [1, 4, 100])
def test_neighbors_have_the_largest_cosines(embedder: Embedder, layer, k: int) -> None:
    vectors = embedder.embed(CORPUS, layers=layer)
    results = nearest_neighbors(embedder, QUERIES, CORPUS, k=k, layer=layer)
    for query, neighbors in zip(QUERIES, results, strict=True):
        target = embedder.embed([query.tokens], layers=layer)[0][query.position]
        expected = [
            (v @ target / np.linalg.norm(v) / np.linalg.norm(target), line, position)
            for line, sentence in enumerate(vectors)
            if CORPUS[line] != query.tokens
            for position, v in enumerate(sentence)
        ]
        expected.sort(key=lambda e: -e[0])
        assert len(neighbors) == min(k, len(expected))
        for neighbor, (similarity, line, position) in zip(neighbors, expected, strict=False):
            assert neighbor.similarity == pytest.approx(similarity, abs=1e-5)
            if layer != 0:  # layer 0 is context-independent, so equal words are tied
                assert (neighbor.line, neighbor.occurrence.position) == (line, position)
                assert neighbor.occurrence.tokens == CORPUS[line]


def test_word_in_brackets_is_the_query() -> None:
    query = parse_query("They put on a [play] last night.")
    assert query.tokens == ["They", "put", "on", "a", "play", "last", "night", "."]
    assert query.word == "play"
    assert str(query) == "They put on a [play] last night ."


@pytest.mark.parametrize(
    ("text", "excerpt"),
    [
        ("She wrote a [play] .", "   She wrote a [play] ."),
        ("[play] it again , you", "               [play] it again , you"),
        (
            "After the war he began to write a [play] in verse about his years abroad",
            "... to write a [play] in verse ...",
        ),
        ("antidisestablishmentarian [play]", "           ... [play]"),
    ],
)
def test_excerpts_are_aligned_and_contain_whole_words(text: str, excerpt: str) -> None:
    assert parse_query(text).excerpt(14) == excerpt


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no brackets", "expected one word in brackets, found 0"),
        ("[two] [words]", "found 2"),
        ("[put on] a play", "expected one word in the brackets, found 2: put on"),
        ("[ ] a play", "found 0"),
        ("the [bank]s paid", r"hold a part of the word 'banks'.*: \[banks\]"),
        ("the un[happy] bank", r"hold a part of the word 'unhappy'.*: \[unhappy\]"),
        ("[대한민국]의 수도", r"hold a part of the word '대한민국의'.*: \[대한민국의\]"),
    ],
)
def test_invalid_query_is_rejected(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_query(text, language="ko" if "수도" in text else None)


@pytest.mark.parametrize(
    "text", ["The [bank]'s rates.", "([bank])", "bank/[bank]-rates", "[bank]."]
)
def test_brackets_may_touch_punctuation(text: str) -> None:
    assert parse_query(text).word == "bank"


def test_query_strings_are_tokenized_like_the_text_of_the_embedder(bilm: BiLM) -> None:
    """Oracle: a query tokenized for Korean, which keeps Hangul words whole."""
    korean = Embedder(bilm, device="cpu", language="ko")
    query = Occurrence(["서울에", "산다", "."], 0)
    expected = nearest_neighbors(korean, [query], CORPUS)
    assert nearest_neighbors(korean, ["[서울에] 산다."], CORPUS) == expected
    with pytest.raises(
        TypeError, match=r"expected a list of queries, got one string \('a \[b\]'\)"
    ):
        nearest_neighbors(korean, "a [b]", CORPUS)


@pytest.mark.parametrize("layer", ["all", "last", 3, -1, True])
def test_invalid_layers_are_rejected(embedder: Embedder, layer) -> None:
    with pytest.raises(InputError, match=r"^layer must be top, average or a number from 0 to 2"):
        nearest_neighbors(embedder, QUERIES, CORPUS, layer=layer)


def test_k_must_be_positive(embedder: Embedder) -> None:
    with pytest.raises(InputError, match="k must be at least 1, got 0"):
        nearest_neighbors(embedder, QUERIES, CORPUS, k=0)
