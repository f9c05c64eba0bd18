"""Oracles: list.index, and what the peers got wrong when a marker was missing."""

from pathlib import Path

import pytest

from elmore.errors import InputError
from elmore.text.vocabulary import Vocabulary

WORDS = ["<S>", "</S>", "<UNK>", "the", "bank"]


def test_numbers_are_lines_and_ids_one_more() -> None:
    vocabulary = Vocabulary(WORDS)
    assert [vocabulary.number(w) for w in WORDS] == [0, 1, 2, 3, 4]
    assert vocabulary.encode_words(["bank", "river", "<S>"]).tolist() == [5, 3, 1]


def test_an_unknown_word_is_never_padding() -> None:
    batch = Vocabulary(WORDS).encode_sentences([["river", "bank"], ["the"]])
    assert batch.ids.tolist() == [[1, 3, 5, 2], [1, 4, 2, 0]]
    assert batch.mask.sum(dim=1).tolist() == [4, 3]


def test_files_go_round(tmp_path: Path) -> None:
    Vocabulary(WORDS).write(tmp_path / "v.txt")
    assert list(Vocabulary.read(tmp_path / "v.txt")) == WORDS


def test_the_benchmarks_last_line_is_no_word(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("\n".join([*WORDS, "!!!MAXTERMID"]))
    assert list(Vocabulary.read(tmp_path / "v.txt")) == WORDS


@pytest.mark.parametrize("missing", ["<S>", "</S>", "<UNK>"])
def test_a_missing_marker_is_an_error(tmp_path: Path, missing: str) -> None:
    (tmp_path / "v.txt").write_text("\n".join(w for w in WORDS if w != missing))
    with pytest.raises(InputError, match=f"v.txt: the vocabulary lacks {missing}"):
        Vocabulary.read(tmp_path / "v.txt")


def test_a_word_twice_is_an_error() -> None:
    with pytest.raises(InputError, match="lists 'the' more than once"):
        Vocabulary([*WORDS, "the"])
