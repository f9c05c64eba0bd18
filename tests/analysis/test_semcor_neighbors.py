"""Table 4. Oracles: neighbors of tiny texts by hand; the neighbor that the paper shows."""

from pathlib import Path

import numpy as np
import pytest

from elmore.analysis.data_files import find_files
from elmore.analysis.results import NotAvailableError
from elmore.analysis.semcor_neighbors import NEIGHBOR_FILES, measure_neighbors
from elmore.embedder import Embedder


def write_semcor(folder: Path, *sentences: str) -> None:
    words = (
        "<sentence>\n" + "".join(f"<wf>{word}</wf>\n" for word in sentence.split()) + "</sentence>"
        for sentence in sentences
    )
    (folder / "semcor.data.xml").write_text("\n".join(["<corpus>", *words, "</corpus>"]))
    (folder / "semcor.gold.key.txt").write_text("")


def test_neighbors_are_those_with_the_largest_cosine(embedder: Embedder, tmp_path: Path) -> None:
    queries = ["Ruiz made a play", "A play for Garson"]
    others = ["They play well", "a good play", "no"]
    write_semcor(tmp_path, *queries, *others)
    result = measure_neighbors(embedder, find_files(tmp_path, NEIGHBOR_FILES))
    assert result.details == {"sentences": 5}
    free, first, second = result.scores.items()
    assert (first[0], second[0]) == ("Ruiz made a [play]", "A [play] for Garson")

    words = sorted({word for text in (*queries, *others) for word in text.split()} - {"play"})
    vectors = embedder.word_vectors(["play", *words]).astype(float)
    cosines = vectors[1:] @ vectors[0] / np.linalg.norm(vectors[1:], axis=1)
    assert list(free[1].values()) == [words[i] for i in np.argsort(-cosines)[:3]]

    for (row, neighbors), query in zip((first, second), queries, strict=True):
        target = embedder.embed([query.split()], layers="top")[0][query.split().index("play")]
        cosines = {}
        for text in {*queries, *others} - {query}:
            tokens = text.split()
            for i, vector in enumerate(embedder.embed([tokens], layers="top")[0]):
                marked = " ".join([*tokens[:i], f"[{tokens[i]}]", *tokens[i + 1 :]])
                cosines[marked] = vector @ target / np.linalg.norm(vector)
        assert list(neighbors.values()) == sorted(cosines, key=cosines.get, reverse=True)[:3], row


def test_text_without_the_sentences_of_the_paper_is_not_measured(
    embedder: Embedder, tmp_path: Path
) -> None:
    write_semcor(tmp_path, "Ruiz made a play", "A play for nobody")
    with pytest.raises(NotAvailableError, match="no sentence with 'Garson' and 'play'"):
        measure_neighbors(embedder, find_files(tmp_path, NEIGHBOR_FILES))
