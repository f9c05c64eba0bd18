"""Word vectors that tasks share. Oracle: the vectors of each task."""

import json
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elmore.tasks.shared_vectors import SharedVectors, read_shared_vectors
from elmore.tasks.words import WordIndex

FILE = ["the", "of", "in", "lived", "a", "left", "for", "early"]
"""Words of a file of word vectors, in its order."""

VECTORS = dict(
    zip(FILE, np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32), strict=True)
)


def part(trained: set[str]) -> tuple[WordIndex, np.ndarray]:
    """Return the words and frozen vectors of a task that fine-tunes some of the words."""
    known = [word for word in FILE if word not in trained]
    return WordIndex(sorted(trained), known), np.stack([VECTORS[word] for word in known])


subsets = st.sets(st.sampled_from(FILE), max_size=7)


@given(subsets, subsets)
def test_tasks_of_one_file_share_its_words_in_their_order(
    first: set[str], second: set[str]
) -> None:
    shared = SharedVectors()
    shared.add("first", *part(first))
    shared.add("second", *part(second))
    assert "first" in shared
    assert "second" in shared
    assert set(shared.words) == {*FILE} - (first & second)
    for trained in (first, second):
        index, _ = part(trained)
        assert [word for word in shared.words if word not in trained] == index.known


def test_frequent_words_that_one_task_fine_tunes_keep_their_place() -> None:
    shared = SharedVectors()
    shared.add("first", *part({"in", "lived"}))
    shared.add("second", *part({"left", "for", "early"}))
    assert shared.words == FILE
    assert "second" in shared


def test_tasks_of_other_files_do_not_share() -> None:
    shared = SharedVectors()
    shared.add("first", *part({"in"}))
    index, vectors = part(set())
    shared.add("other vectors", index, vectors + 1)
    shared.add("other width", index, vectors[:, :2])
    shared.add(
        "a word more", WordIndex(index.new, [*FILE, "zzz"]), np.vstack([vectors, vectors[:1]])
    )
    shared.add("a word less", WordIndex([], FILE[:-1]), vectors[:-1])
    shared.add("no vectors", WordIndex(FILE, []), vectors[:0])
    for name in ("other vectors", "other width", "a word more", "a word less"):
        assert name not in shared
    shared.add("last", *part({"the"}))
    assert "last" in shared
    assert shared.words == FILE


def test_saved_vectors_are_those_of_words_without_a_trained_one(tmp_path: Path) -> None:
    shared = SharedVectors()
    shared.add("first", *part({"in"}))
    shared.add("second", *part({"the"}))
    shared.save(FILE[:5], tmp_path, dtype="float32")
    assert json.loads((tmp_path / "words.json").read_text()) == {"words": FILE[:5]}
    words, vectors = read_shared_vectors(tmp_path, {"the", "left", "unknown"})
    assert words == ["of", "in", "lived", "a"]
    np.testing.assert_array_equal(vectors, np.stack([VECTORS[word] for word in words]))
