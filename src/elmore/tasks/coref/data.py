"""CoNLL-2012 columns to documents with clusters of mentions.

#begin document (bc/cctv/00/cctv_0001); part 000
bc/cctv/00/cctv_0001  0  0  Ada   NNP  ...  speaker_1  *  (12)
bc/cctv/00/cctv_0001  0  1  said  VBD  ...  speaker_1  *  -
bc/cctv/00/cctv_0001  0  2  she   PRP  ...  speaker_1  *  (12)

#end document
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from elmore.errors import InputError
from elmore.text.lines import read_lines

_BEGIN = re.compile(r"#begin document \((?P<name>.*)\);(?: part (?P<part>\d+))?\s*$")
_MARK = re.compile(r"(?P<opens>\()?(?P<cluster>[^()|\s]+?)(?P<closes>\))?")
_WORD, _SPEAKER, _COLUMNS = 3, 9, 12
"""Of a line: where the word is, the speaker, and how many columns there are at least."""


class Mention(NamedTuple):
    """Words of a document from `start` up to, not including, `end`."""

    start: int
    end: int


Cluster = list[Mention]


class CorefExample(NamedTuple):
    """A document, and which of its words mean the same."""

    name: str
    genre: str
    """Empty if its name does not tell."""

    sentences: list[list[str]]
    speakers: list[str]
    """Of each word."""

    clusters: list[Cluster]


def read_documents(path: Path) -> list[CorefExample]:
    """Read a file of CoNLL-2012 columns; each part of a document is an example."""
    examples: list[CorefExample] = []
    document: _Document | None = None
    for number, line in enumerate(read_lines(path), 1):
        where = f"{path}, line {number}"
        if line.startswith("#begin document"):
            if document is not None:
                raise InputError(f"{where}: expected `#end document` before the next one begins")
            document = _Document(line, where)
        elif document is None:
            if line.strip():
                raise InputError(
                    f"{where}: expected `#begin document (NAME); part 000`, got {line!r:.60}"
                )
        elif line.startswith("#end document"):
            document.end_sentence()
            if document.sentences:
                examples.append(document.example())
            document = None
        elif line.strip():
            document.add_word(line, where)
        else:
            document.end_sentence()
    if document is not None:
        raise InputError(f"{path} ends without `#end document`")
    return examples


class _Document:
    """A document while it is read."""

    def __init__(self, line: str, where: str) -> None:
        found = _BEGIN.match(line)
        if found is None:
            raise InputError(
                f"{where}: expected `#begin document (NAME); part 000`, got {line!r:.60}"
            )
        self.name = found["name"] + (f"; part {found['part']}" if found["part"] else "")
        self.genre = genre_of(found["name"])
        self.sentences: list[list[str]] = []
        self.speakers: list[str] = []
        self._sentence: list[str] = []
        self._columns = 0
        self._open: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        # A span of two clusters, a slip of the annotators, belongs to the first alone.
        self._cluster: dict[Mention, str] = {}

    def add_word(self, line: str, where: str) -> None:
        """Read the columns of a word."""
        # Tabs where there are any: a word may then hold a space.
        columns = line.split("\t") if "\t" in line else line.split()
        expected = self._columns if self._sentence else max(_COLUMNS, len(columns))
        if len(columns) != expected or not columns[_WORD]:
            raise InputError(
                f"{where}: expected {self._columns or f'at least {_COLUMNS}'} columns with the "
                f"word in the fourth and coreference in the last, got {len(columns)}: {line!r:.60}"
            )
        self._columns = len(columns)
        self._sentence.append(columns[_WORD])
        self.speakers.append(columns[_SPEAKER])
        self._mark(columns[-1].strip(), where)

    def _mark(self, column: str, where: str) -> None:
        """Open and close mentions: `(3|(4)` opens one of cluster 3 and has one of cluster 4."""
        if column in ("-", "_"):
            return
        position = len(self.speakers) - 1
        for mark in column.split("|"):
            found = _MARK.fullmatch(mark)
            if found is None or not (found["opens"] or found["closes"]):
                raise InputError(
                    f"{where}: expected coreference such as (12, 12), (12) or - in the last "
                    f"column, got {column!r:.60}"
                )
            cluster = found["cluster"]
            if found["opens"]:
                self._open[cluster].append((position, where))
            if found["closes"]:
                if not self._open[cluster]:
                    raise InputError(f"{where}: {mark} closes a mention that was never opened")
                start, _ = self._open[cluster].pop()
                self._cluster.setdefault(Mention(start, position + 1), cluster)

    def end_sentence(self) -> None:
        """Begin a new sentence, if this one has words."""
        for cluster, opened in self._open.items():
            if opened:
                raise InputError(
                    f"{opened[-1][1]}: ({cluster} is not closed; expected {cluster}) before the "
                    "sentence ends"
                )
        if self._sentence:
            self.sentences.append(self._sentence)
        self._sentence, self._columns = [], 0

    def example(self) -> CorefExample:
        """Return the document, its clusters in the order of the text."""
        clusters: defaultdict[str, Cluster] = defaultdict(list)
        for mention, cluster in sorted(self._cluster.items()):
            clusters[cluster].append(mention)
        return CorefExample(
            self.name, self.genre, self.sentences, self.speakers, list(clusters.values())
        )


def genre_of(name: str) -> str:
    """Return the genre that a document's name tells: bc/cctv/00 -> bc, GUM_bio_byron -> bio."""
    if name.startswith("GUM_"):
        return name.split("_")[1]
    return name.split("/")[0] if "/" in name else ""


def cut(document: CorefExample, max_sentences: int) -> Iterator[CorefExample]:
    """Cut a document into parts of equal numbers of sentences, none over the limit."""
    count = len(document.sentences)
    parts = -(-count // max_sentences)
    ends = list(accumulate(map(len, document.sentences), initial=0))
    for part in range(parts):
        first, last = count * part // parts, count * (part + 1) // parts
        start, end = ends[first], ends[last]
        inside = [
            [Mention(m.start - start, m.end - start) for m in cluster if start <= m.start < end]
            for cluster in document.clusters
        ]
        yield CorefExample(
            document.name,
            document.genre,
            document.sentences[first:last],
            document.speakers[start:end],
            [cluster for cluster in inside if cluster],
        )
