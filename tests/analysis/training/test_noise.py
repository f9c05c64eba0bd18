"""Disturbed text. Oracles: edit distances by hand, counts of changed letters, str methods."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.analysis.training.noise import KINDS, NOISES, disturb, write_disturbed
from elmore.errors import InputError
from elmore.tasks.ner.data import read_entities

SENTENCE = "Ada Lovelace visited the Royal Society in London on 2 June 1838 , and met Mr. Babbage ."
TEXT = SENTENCE.split()
LONG = TEXT * 20
words = st.lists(st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1), max_size=12)


@given(words, st.sampled_from(list(KINDS)), st.floats(0, 1), st.integers(0, 3))
def test_number_of_words_does_not_change(
    text: list[str], kind: str, rate: float, seed: int
) -> None:
    disturbed = disturb(text, kind, rate, seed)
    assert len(disturbed) == len(text)
    assert all(
        word.split() == [word]
        for word, old in zip(disturbed, text, strict=True)
        if old.split() == [old]
    )
    assert disturb(text, kind, rate, seed) == disturbed
    assert disturb(text, kind, 0, seed) == text
    for old, new in zip(text, disturbed, strict=True):
        if not any(map(str.isalpha, old)):
            assert new == old


def test_case_changes_the_given_share_of_letters() -> None:
    letters = sum(letter.isalpha() for word in LONG for letter in word)
    for rate in (0.05, 0.1, 1):
        disturbed = disturb(LONG, "case", rate)
        assert [word.lower() for word in disturbed] == [word.lower() for word in LONG]
        changed = sum(
            a != b for x, y in zip(LONG, disturbed, strict=True) for a, b in zip(x, y, strict=True)
        )
        assert changed == round(rate * letters)
    assert disturb(LONG, "case", 1) == [word.swapcase() for word in LONG]
    assert disturb(["ß", "ŉ", "1"], "case", 1) == ["ß", "ŉ", "1"]


def one_edit_apart(x: str, y: str) -> bool:
    """Return whether a swap, deletion, insertion or substitution makes y of x."""
    edits = {x[:i] + x[i + 1 :] for i in range(len(x))}
    edits |= {x[:i] + x[i + 1] + x[i] + x[i + 2 :] for i in range(len(x) - 1)}
    edits |= {x[:i] + c + x[i:] for i in range(len(x) + 1) for c in set(y)}
    edits |= {x[:i] + c + x[i + 1 :] for i in range(len(x)) for c in set(y)}
    return y in edits


def test_typos_are_single_edits_and_of_all_kinds() -> None:
    disturbed = disturb(LONG, "typos", 0.02, seed=1)
    changed = [(x, y) for x, y in zip(LONG, disturbed, strict=True) if x != y]
    letters = sum(letter.isalpha() for word in LONG for letter in word)
    assert 0.8 * 0.02 * letters <= len(changed) <= round(0.02 * letters)
    single = [pair for pair in changed if one_edit_apart(*pair)]
    assert len(single) >= 0.8 * len(changed)  # some words have two typos
    assert any(len(y) < len(x) for x, y in single)
    assert any(len(y) > len(x) for x, y in single)
    assert any(sorted(x) == sorted(y) for x, y in single)
    assert any(len(x) == len(y) and sorted(x) != sorted(y) for x, y in single)


def test_every_typo_changes_its_word() -> None:
    for seed in range(200):
        [word] = disturb(["Aa"], "typos", 0.5, seed)
        assert word not in ("", "Aa")
    assert disturb(["a"], "typos", 1) in (["a"], ["aa"])  # no other letter to draw


def test_unseen_words_keep_length_case_and_punctuation() -> None:
    disturbed = disturb(LONG, "unseen words", 0.1)
    changed = [(x, y) for x, y in zip(LONG, disturbed, strict=True) if x != y]
    letters = sum(letter.isalpha() for word in LONG for letter in word)
    replaced = sum(letter.isalpha() for x, _ in changed for letter in x)
    assert 0.1 * letters <= replaced < 0.1 * letters + 10
    for x, y in changed:
        assert y not in TEXT
        assert [a.isupper() for a in x] == [b.isupper() for b in y]
        assert [a for a in x if not a.isalpha()] == [b for b in y if not b.isalpha()]


@pytest.mark.parametrize("kind", KINDS)
def test_more_noise_disturbs_the_same_words_and_more(kind: str) -> None:
    less, more = (
        {n for n, word in enumerate(disturb(LONG, kind, rate)) if word != LONG[n]}
        for rate in (0.05, 0.1)
    )
    assert less < more


def test_columns_tags_and_document_marks_stay(tmp_path: Path) -> None:
    rows = [("Ada", "B-PER"), ("Lovelace", "I-PER"), ("in", "O"), ("in", "O"), ("Rome", "B-LOC")]
    text = "-DOCSTART- -X- O\n\n" + "".join(f"{word} NNP {tag}\n" for word, tag in rows) + "\n"
    (tmp_path / "a.conll").write_text(text * 3)
    before = read_entities(tmp_path / "a.conll")
    for noise in NOISES:
        write_disturbed(tmp_path / "a.conll", tmp_path / "b.conll", noise.kind, 0.5)
        after = read_entities(tmp_path / "b.conll")
        assert [e.entities for e in after] == [e.entities for e in before]
        assert [len(e.tokens) for e in after] == [len(e.tokens) for e in before]
        assert after != before
        assert (tmp_path / "b.conll").read_text().count("-DOCSTART- -X- O") == 3
    write_disturbed(tmp_path / "a.conll", tmp_path / "b.conll", "typos", 0)
    assert (tmp_path / "b.conll").read_text() == text * 3


@pytest.mark.parametrize(("kind", "rate"), [("fog", 0.1), ("typos", -0.1), ("case", 5)])
def test_unknown_noise_is_rejected(kind: str, rate: float) -> None:
    with pytest.raises(InputError, match=r"unknown kind of noise 'fog'|rate must be from 0 to 1"):
        disturb(TEXT, kind, rate)
