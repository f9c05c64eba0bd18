"""CoNLL-2012 columns to documents with clusters of mentions.

#begin document (bc/cctv/00/cctv_0001); part 000
bc/cctv/00/cctv_0001  0  0  Ada   NNP  ...  speaker_1  *  (12)
bc/cctv/00/cctv_0001  0  1  said  VBD  ...  speaker_1  *  -
bc/cctv/00/cctv_0001  0  2  she   PRP  ...  speaker_1  *  (12)

#end document
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from elmore.errors import InputError
from elmore.tasks.conll2012 import WORD, Document, Row, read_documents
from elmore.tasks.treebank import unescape

_NAME = re.compile(r"\((?P<name>.*)\);(?: part (?P<part>\d+))?")
_MARK = re.compile(r"(?P<opens>\()?(?P<cluster>[^()|\s]+?)(?P<closes>\))?")
_SPEAKER = 9


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


def read_coreference(path: Path) -> list[CorefExample]:
    """Read a file of CoNLL-2012 columns; each part of a document is an example."""
    return [_example(path, document) for document in read_documents(path)]


def _example(path: Path, document: Document) -> CorefExample:
    found = _NAME.match(document.name)
    name, part = found.group("name", "part") if found else (document.name, None)
    rows = [row for sentence in document.sentences for row in sentence]
    clusters: defaultdict[str, Cluster] = defaultdict(list)
    start = 0
    # A span of two clusters, a slip of the annotators, belongs to the first alone.
    cluster_of: dict[Mention, str] = {}
    for sentence in document.sentences:
        for mention, cluster in _mentions(path, sentence, start):
            cluster_of.setdefault(mention, cluster)
        start += len(sentence)
    for mention, cluster in sorted(cluster_of.items()):
        clusters[cluster].append(mention)
    return CorefExample(
        f"{name}; part {part}" if part else name,
        genre_of(name),
        [[unescape(row.columns[WORD]) for row in sentence] for sentence in document.sentences],
        [row.columns[_SPEAKER] for row in rows],
        list(clusters.values()),
    )


def _mentions(path: Path, sentence: Iterable[Row], start: int) -> Iterator[tuple[Mention, str]]:
    """Yield mentions and their clusters: `(3|(4)` opens one of cluster 3 and has one of 4."""
    opened: defaultdict[str, list[tuple[int, Row]]] = defaultdict(list)
    for position, row in enumerate(sentence, start):
        column = row.columns[-1]
        for mark in column.split("|") if column not in ("-", "_") else ():
            found = _MARK.fullmatch(mark)
            if found is None or not (found["opens"] or found["closes"]):
                raise InputError(
                    f"{path}, line {row.number}: expected coreference such as (12, 12), (12) or - "
                    f"in the last column, got {column!r:.60}"
                )
            cluster = found["cluster"]
            if found["opens"]:
                opened[cluster].append((position, row))
            if found["closes"]:
                if not opened[cluster]:
                    raise InputError(
                        f"{path}, line {row.number}: {mark} closes a mention that was never opened"
                    )
                first, _ = opened[cluster].pop()
                yield Mention(first, position + 1), cluster
    for cluster, left in opened.items():
        if left:
            raise InputError(
                f"{path}, line {left[-1][1].number}: ({cluster} is not closed; expected {cluster}) "
                "before the sentence ends"
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
