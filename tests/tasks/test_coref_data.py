"""Coreference data. Oracle: clusters read off the brackets by hand."""

from pathlib import Path

import pytest

from elmore.errors import InputError
from elmore.tasks.coref.data import CorefExample, genre_of, read_coreference, split_document
from elmore.tasks.spans import Span

ONTONOTES = """\
#begin document (bc/cctv/00/cctv_0001); part 001
bc/cctv/00/cctv_0001   1   0    The    DT  (TOP(S(NP*  -  -  -  Ann  *  (ARG0*   (3|(4
bc/cctv/00/cctv_0001   1   1    head   NN           *) -  -  -  Ann  *       *)  4)
bc/cctv/00/cctv_0001   1   2    of     IN         (PP* -  -  -  Ann  *       *   -
bc/cctv/00/cctv_0001   1   3    it     PRP      (NP*)) -  -  -  Ann  *       *   (7)|3)
bc/cctv/00/cctv_0001   1   4    slept  VBD       (VP*) -  -  -  Ann  *      (V*) -

bc/cctv/00/cctv_0001   1   0    He     PRP        (NP* -  -  -  Bob  *  *  *   (3)
bc/cctv/00/cctv_0001   1   1    saw    VBD        (VP* -  -  -  Bob  *  *  *   -
bc/cctv/00/cctv_0001   1   2    it     PRP          *) -  -  -  Bob  *  *  *   (7)

#end document
#begin document (GUM_bio_byron); part 000
#end document
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "a.conll"
    path.write_text(text, encoding="utf-8")
    return path


def test_reads_ontonotes(tmp_path: Path) -> None:
    [document] = read_coreference(write(tmp_path, ONTONOTES))
    assert document == CorefExample(
        name="bc/cctv/00/cctv_0001; part 001",
        genre="bc",
        sentences=[["The", "head", "of", "it", "slept"], ["He", "saw", "it"]],
        speakers=["Ann"] * 5 + ["Bob"] * 3,
        clusters=[
            [Span(0, 2)],
            [Span(0, 4), Span(5, 6)],
            [Span(3, 4), Span(7, 8)],
        ],
    )


def test_reads_tabs_crlf_and_nested_mentions_of_a_cluster(tmp_path: Path) -> None:
    brackets = ["(1|(1", "1)", "1)", "(2)|(1)", "_"]
    rows = [f"d\t0\t{i}\tw {i}\t-\t*\t-\t-\t-\t-\t*\t{cell}" for i, cell in enumerate(brackets)]
    text = "\r\n".join(["#begin document (d); part 000", *rows, "#end document", ""])
    [document] = read_coreference(write(tmp_path, text))
    assert document.sentences == [["w 0", "w 1", "w 2", "w 3", "w 4"]]
    # Span 3:4 is in two clusters; only the first is kept.
    assert document.clusters == [[Span(0, 2), Span(0, 3)], [Span(3, 4)]]


def test_genre_is_read_from_the_document_name() -> None:
    assert genre_of("bc/cctv/00/cctv_0001") == "bc"
    assert genre_of("GUM_academic_exposure") == "academic"
    assert genre_of("1023_bleak_house_brat") == ""


def row(brackets: str, columns: int = 12) -> str:
    return " ".join(["d", "0", "0", "word", *["-"] * (columns - 5), brackets])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["#begin document (d); part 000", "a word"], "line 2: expected at least 12 columns"),
        (["#begin document (d); part 000", row("-"), row("-", 13)], "line 3: expected 12 columns"),
        (["#begin document (d); part 000", row("12")], r"line 2: expected coreference such as"),
        (["#begin document (d); part 000", row("(1|x")], r"line 2: .*got '\(1\|x'"),
        (["#begin document (d); part 000", row("(1"), row("2)")], r"line 3: 2\) closes a mention"),
        (["#begin document (d); part 000", row("(1"), "", row("1)")], r"line 2: \(1 is not closed"),
        (["#begin document (d); part 000", row("(1"), "#end document"], r"line 2: \(1 is not"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(InputError, match=rf"a\.conll.*{message}"):
        read_coreference(write(tmp_path, "\n".join(lines) + "\n"))


def test_split_document_keeps_words_speakers_and_mentions() -> None:
    document = CorefExample(
        "d",
        "bc",
        [["a", "b"], ["c"], ["d", "e"], ["f"], ["g"]],
        list("1122334"),
        [[Span(0, 2), Span(2, 3), Span(6, 7)], [Span(4, 5)]],
    )
    assert list(split_document(document, 5)) == [document]
    first, second, third = split_document(document, 2)
    assert first == CorefExample("d", "bc", [["a", "b"]], list("11"), [[Span(0, 2)]])
    assert second.sentences == [["c"], ["d", "e"]]
    assert second.speakers == list("223")
    assert second.clusters == [[Span(0, 1)], [Span(2, 3)]]
    assert third.sentences == [["f"], ["g"]]
    assert third.clusters == [[Span(1, 2)]]


@pytest.mark.parametrize(
    ("file", "documents", "words"), [("ontogum.dev", 30, 28_119), ("litbank", 100, 210_532)]
)
def test_reads_published_files(tasks: Path, file: str, documents: int, words: int) -> None:
    actual = read_coreference(tasks / "coref" / f"{file}.conll.xz")
    assert len(actual) == documents
    assert sum(len(document.speakers) for document in actual) == words
    assert sum(len(s) for document in actual for s in document.sentences) == words
