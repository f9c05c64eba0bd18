"""Word vocabularies. Oracle: ids by hand."""

from pathlib import Path

import pytest

from elmore.errors import InputError
from elmore.text.sentences import batch_sentences
from elmore.text.vocabulary import Vocabulary

WORDS = ["<S>", "</S>", "<UNK>", "the", "bank"]


def test_input_ids_are_line_numbers_from_one() -> None:
    vocabulary = Vocabulary(WORDS)
    assert [vocabulary.word_to_id(w) for w in WORDS] == [0, 1, 2, 3, 4]
    assert vocabulary.encode_words(["bank", "river", "<S>"]).tolist() == [5, 3, 1]


def test_unknown_word_has_an_id_that_is_not_padding() -> None:
    batch = batch_sentences([["river", "bank"], ["the"]], Vocabulary(WORDS).encode_words)
    assert batch.ids.tolist() == [[1, 3, 5, 2], [1, 4, 2, 0]]
    assert batch.mask.sum(dim=1).tolist() == [4, 3]


def test_written_file_is_read_back(tmp_path: Path) -> None:
    Vocabulary(WORDS).write(tmp_path / "v.txt")
    assert list(Vocabulary.read(tmp_path / "v.txt")) == WORDS


def test_last_line_of_the_benchmark_vocabulary_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("\n".join([*WORDS, "!!!MAXTERMID"]))
    assert list(Vocabulary.read(tmp_path / "v.txt")) == WORDS


@pytest.mark.parametrize("missing", ["<S>", "</S>", "<UNK>"])
def test_missing_special_word_is_rejected(tmp_path: Path, missing: str) -> None:
    (tmp_path / "v.txt").write_text("\n".join(w for w in WORDS if w != missing))
    with pytest.raises(InputError, match=f"v.txt: the vocabulary lacks {missing}"):
        Vocabulary.read(tmp_path / "v.txt")


def test_duplicate_word_is_rejected() -> None:
    with pytest.raises(InputError, match="lists 'the' more than once"):
        Vocabulary([*WORDS, "the"])
