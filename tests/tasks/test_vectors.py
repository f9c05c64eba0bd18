"""Readers of word vectors. Oracle: the vectors written to each file."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from elmore.errors import InputError
from elmore.tasks.vectors import read_word_vectors

WORDS = ["the", "New_York", "caf\u00e9"]
VECTORS = np.array([[0.5, -1.25], [3, 4], [1e-3, 7]], np.float32)


def text(header: str = "") -> str:
    rows = zip(WORDS, VECTORS, strict=True)
    return header + "".join(f"{word} {a} {b}\n" for word, (a, b) in rows)


def binary() -> bytes:
    rows = zip(WORDS, VECTORS, strict=True)
    body = b"".join(word.encode() + b" " + v.astype("<f4").tobytes() + b"\n" for word, v in rows)
    return b"3 2\n" + body


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "glove.txt").write_text(text())
    (tmp_path / "word2vec.txt").write_text(text("3 2\n"))
    (tmp_path / "glove.txt.gz").write_bytes(gzip.compress(text().encode()))
    (tmp_path / "word2vec.bin").write_bytes(binary())
    np.savez(tmp_path / "joined.npz", words=np.array("\n".join(WORDS)), vec=VECTORS)
    np.savez(tmp_path / "listed.npz", words=np.array(WORDS), vec=VECTORS.astype(np.float64))
    return {path.name: path for path in tmp_path.iterdir()}


def test_all_formats_give_the_same_vectors(files: dict[str, Path]) -> None:
    assert len(files) == 6
    for path in files.values():
        actual = read_word_vectors(path)
        assert actual.words == WORDS, path
        np.testing.assert_array_equal(actual.vectors, VECTORS, err_msg=str(path))
        assert actual.vectors.dtype == np.float32


def test_max_words_keeps_the_first_words(files: dict[str, Path]) -> None:
    for path in files.values():
        assert read_word_vectors(path, max_words=2).words == WORDS[:2], path


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"the 1 2\nof 1 x\n", r"a.txt, line 2: expected a word and 2 numbers"),
        ("b.txt", b"3 2\nthe 1 2\nof 1\n", r"b.txt, line 3: expected a word and 2 numbers"),
        ("c.txt", b"", "holds no word vectors"),
        ("t.txt", b"5 2\nthe 1 2\na 3 4\n", "is truncated: it ends after 2 of 5 words"),
        ("d.bin", b"no header", "expected the number of words and of dimensions"),
        ("h.bin", b"1000000000 300\nthe 12", "ends after 0 of 400000 words"),
        ("i.bin", b"3 1000000000000\nthe 12", "of dimensions, at most 10000, in the first line"),
        ("j.bin", b"3 -1\nthe 12", "of dimensions, at most 10000, in the first line"),
        ("e.bin", b"2 2\nthe " + VECTORS[0].tobytes(), "ends within a word"),
        ("f.bin", b"1 2\nthe \0\0", "ends after 0 of 1 words"),
        ("g.npz", b"not an archive", "expected the arrays `words` and `vec`"),
        ("k.txt", b"the 1 2\nof nan 2\n", "the vector of 'of' contains NaN or infinity"),
    ],
)
def test_damaged_files_are_rejected(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_word_vectors(tmp_path / name)


def test_different_numbers_of_words_and_vectors_are_rejected(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", words=np.array("a\nb"), vec=VECTORS)
    with pytest.raises(InputError, match="got 2 words and vectors of shape"):
        read_word_vectors(tmp_path / "x.npz")


def test_words_may_contain_spaces(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("the 1 2\nNew York 3 4\n. . . 5 6\n")
    assert read_word_vectors(tmp_path / "v.txt").words == ["the", "New York", ". . ."]
