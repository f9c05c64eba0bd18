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
from elmore.tasks.columns import Row
from elmore.tasks.conll2012 import WORD, Document, read_documents
from elmore.tasks.spans import Span
from elmore.tasks.treebank import unescape

_NAME = re.compile(r"\((?P<name>.*)\);(?: part (?P<part>\d+))?")
_MARK = re.compile(r"(?P<opens>\()?(?P<cluster>[^()|\s]+?)(?P<closes>\))?")
_SPEAKER = 9


Cluster = list[Span]
"""Mentions of the same entity, as spans of the words of a document."""

PredictedCluster = dict[Span, float]
"""Mentions of the same entity, with the probability of the antecedent that was chosen for each.

For the first mention, it is the probability that it has no antecedent.
"""


class CorefExample(NamedTuple):
    """A document and its clusters of mentions."""

    name: str
    genre: str
    """Empty if the name does not contain it."""

    sentences: list[list[str]]
    speakers: list[str]
    """The speaker of each word."""

    clusters: list[Cluster]
    text: str = ""
    """The raw text, if the example was not read from a file of tokens."""


def read_coreference(path: Path) -> list[CorefExample]:
    """Read CoNLL-2012 columns; each part of a document is one example.

    Raises:
        InputError: If the brackets of mentions do not match.
    """
    return [_example(path, document) for document in read_documents(path)]


def _example(path: Path, document: Document) -> CorefExample:
    match = _NAME.match(document.name)
    name, part = match.group("name", "part") if match else (document.name, None)
    rows = [row for sentence in document.sentences for row in sentence]
    clusters: defaultdict[str, Cluster] = defaultdict(list)
    start = 0
    # A span that was annotated with two clusters by mistake belongs to the first one.
    cluster_of: dict[Span, str] = {}
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


def _mentions(path: Path, sentence: Iterable[Row], start: int) -> Iterator[tuple[Span, str]]:
    """Yield mentions and their clusters.

    `(3|(4)` opens a mention of cluster 3 and is a one-word mention of cluster 4.
    """
    open_mentions: defaultdict[str, list[tuple[int, Row]]] = defaultdict(list)
    for position, row in enumerate(sentence, start):
        column = row.columns[-1]
        for mark in column.split("|") if column not in ("-", "_") else ():
            match = _MARK.fullmatch(mark)
            if match is None or not (match["opens"] or match["closes"]):
                raise InputError(
                    f"{path}, line {row.number}: expected coreference such as (12, 12), (12) or - "
                    f"in the last column, got {column!r:.60}"
                )
            cluster = match["cluster"]
            if match["opens"]:
                open_mentions[cluster].append((position, row))
            if match["closes"]:
                if not open_mentions[cluster]:
                    raise InputError(
                        f"{path}, line {row.number}: {mark} closes a mention that was never opened"
                    )
                first, _ = open_mentions[cluster].pop()
                yield Span(first, position + 1), cluster
    for cluster, unclosed in open_mentions.items():
        if unclosed:
            _, row = unclosed[-1]
            raise InputError(
                f"{path}, line {row.number}: ({cluster} is not closed; expected {cluster}) "
                "before the sentence ends"
            )


def genre_of(name: str) -> str:
    """Return the genre in a document's name: bc/cctv/00 -> bc, GUM_bio_byron -> bio."""
    if name.startswith("GUM_"):
        return name.split("_")[1]
    return name.split("/")[0] if "/" in name else ""


def split_document(document: CorefExample, max_sentences: int) -> Iterator[CorefExample]:
    """Split a document into parts of up to `max_sentences` sentences, of about equal size."""
    count = len(document.sentences)
    parts = -(-count // max_sentences)
    ends = list(accumulate(map(len, document.sentences), initial=0))
    for part in range(parts):
        first, last = count * part // parts, count * (part + 1) // parts
        start, end = ends[first], ends[last]
        clusters = [
            [Span(m.start - start, m.end - start) for m in cluster if start <= m.start < end]
            for cluster in document.clusters
        ]
        yield CorefExample(
            document.name,
            document.genre,
            document.sentences[first:last],
            document.speakers[start:end],
            [cluster for cluster in clusters if cluster],
        )
