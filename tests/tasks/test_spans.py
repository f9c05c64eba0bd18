"""Spans and tags. Oracles: tags written by hand with the rules of the CoNLL shared tasks."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import InputError
from elmore.tasks.spans import (
    LabeledSpan,
    all_tags,
    decode_tags,
    encode_tags,
    may_follow_bioes,
    may_follow_iob2,
    tag_ids,
)

S = LabeledSpan
ENTITIES = [S("ORG", 0, 1), S("PER", 2, 4), S("PER", 4, 5)]
TAGS = {
    "iob1": ["I-ORG", "O", "I-PER", "I-PER", "B-PER", "O"],
    "iob2": ["B-ORG", "O", "B-PER", "I-PER", "B-PER", "O"],
    "bioes": ["S-ORG", "O", "B-PER", "E-PER", "S-PER", "O"],
}


@pytest.mark.parametrize("scheme", TAGS)
def test_all_schemes_encode_the_same_entities(scheme) -> None:
    assert decode_tags(TAGS[scheme]) == ENTITIES
    assert encode_tags(ENTITIES, 6, scheme) == TAGS[scheme]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["I-A", "I-B"], [S("A", 0, 1), S("B", 1, 2)]),  # another label starts another span
        (["O", "I-A", "I-A"], [S("A", 1, 3)]),
        (["B-A", "B-A"], [S("A", 0, 1), S("A", 1, 2)]),
        (["U-A", "B-A", "L-A"], [S("A", 0, 1), S("A", 1, 3)]),
        (["E-A", "I-A"], [S("A", 0, 1), S("A", 1, 2)]),  # E ends a span
        ([], []),
        (["O", "O"], []),
    ],
)
def test_decoding_follows_the_conll_scorer(tags: list[str], expected: list[S]) -> None:
    assert decode_tags(tags) == expected


def test_invalid_tag_is_rejected() -> None:
    with pytest.raises(InputError, match="expected a tag such as O, B-PER or I-PER, got 'PER'"):
        decode_tags(["O", "PER"])


@st.composite
def sentences(draw: st.DrawFn) -> tuple[list[S], int]:
    spans, position = [], 0
    for _ in range(draw(st.integers(0, 5))):
        start = position + draw(st.integers(0, 2))
        position = start + draw(st.integers(1, 3))
        spans.append(S(draw(st.sampled_from(["A", "B"])), start, position))
    return spans, position + draw(st.integers(0, 2))


@given(sentences(), st.sampled_from(["iob1", "iob2", "bioes"]))
def test_decoding_inverts_encoding(sentence, scheme) -> None:
    spans, length = sentence
    tags = encode_tags(spans, length, scheme)
    assert len(tags) == length
    assert decode_tags(tags) == spans
    may_follow = {"bioes": may_follow_bioes, "iob2": may_follow_iob2}.get(scheme)
    if may_follow:  # the constraints of Viterbi decoding allow encoded tags
        path = [None, *tags, None]
        assert all(may_follow(a, b) for a, b in pairwise(path) if length)


def test_tag_ids_are_padded_and_unseen_labels_are_outside() -> None:
    tags = all_tags({"B", "A"}, "bioes")
    assert tags == ["O", "B-A", "I-A", "E-A", "S-A", "B-B", "I-B", "E-B", "S-B"]
    assert all_tags({"B", "A"}, "iob2") == ["O", "B-A", "I-A", "B-B", "I-B"]
    sentences = [
        [S("A", 1, 4)],
        [S("B", 0, 1), S("unseen", 1, 2)],
        [],
    ]
    ids = tag_ids(sentences, [4, 2, 0], tags, "bioes", padding=-1)
    assert ids.tolist() == [[0, 1, 2, 3], [8, 0, -1, -1], [-1, -1, -1, -1]]
