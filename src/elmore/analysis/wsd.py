"""Table 5: which sense does a word have? The one whose average vector in SemCor is nearest.

J layers, W words of a sentence, S senses of a lemma, D dim.

Files are those of the unified evaluation framework (Raganato et al., 2017), plain or compressed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import tee
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
from jaxtyping import Float32

from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.text.lines import read_lines

_POS = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}  # 5: adjective satellite
_EQUALLY_NEAR = 1e-5  # what rounding can do to a cosine of averages


class Lexeme(NamedTuple):
    """What has senses in WordNet."""

    lemma: str
    pos: str


class Instance(NamedTuple):
    """One or more words of a sentence that have a sense."""

    lexeme: Lexeme
    words: slice
    senses: tuple[str, ...]
    """Keys such as `art%1:09:00::`. Where there are several, any of them is right."""


class WsdSentence(NamedTuple):
    """A sentence, and those of its words that have a sense."""

    tokens: list[str]
    instances: list[Instance]


class SenseAverages(NamedTuple):
    """The average vectors of each sense in a training text, and the senses of each lexeme there."""

    vectors: dict[str, Float32[np.ndarray, "J D"]]
    senses: dict[Lexeme, list[str]]
    """Most frequent first."""

    def nearest(self, lexeme: Lexeme, vectors: Float32[np.ndarray, "J D"]) -> list[str]:
        """Return, for each layer, the sense of the lexeme with the largest cosine."""
        senses = self.senses[lexeme]
        cosines = _cosines(vectors, np.stack([self.vectors[sense] for sense in senses]))  # (J, S)
        # Layer 0 knows no context: senses seen in the same form only are equally near, and
        # rounding should not choose among them. The first of them is the most frequent.
        near = cosines >= cosines.max(axis=1, keepdims=True) - _EQUALLY_NEAR
        return [senses[first] for first in near.argmax(axis=1)]


def average_senses(embedder: Embedder, sentences: Iterable[WsdSentence]) -> SenseAverages:
    """Average the vectors of each sense over a text, all layers in one pass.

    The text is read as a stream; memory grows with the number of senses alone.
    """
    zero = np.zeros((embedder.num_layers, embedder.dim), dtype=np.float32)
    sums: defaultdict[str, Float32[np.ndarray, "J D"]] = defaultdict(zero.copy)
    counts: Counter[str] = Counter()
    senses: defaultdict[Lexeme, set[str]] = defaultdict(set)
    for instance, vectors in _embed_instances(embedder, sentences):
        senses[instance.lexeme].update(instance.senses)
        counts.update(instance.senses)
        for sense in instance.senses:
            sums[sense] += vectors
    for sense, total in sums.items():
        total /= counts[sense]
    return SenseAverages(
        dict(sums),
        {
            lexeme: sorted(found, key=lambda sense: (-counts[sense], sense))
            for lexeme, found in senses.items()
        },
    )


def disambiguate(
    embedder: Embedder,
    sentences: Iterable[WsdSentence],
    averages: SenseAverages,
    first_senses: Mapping[Lexeme, str],
) -> list[list[str | None]]:
    """Return, for each layer, the sense of each instance, in the order of the text.

    A lexeme that the training text does not have gets its first sense in WordNet; one that is not
    in WordNet either gets None.
    """
    answers: list[Sequence[str | None]] = []
    for instance, vectors in _embed_instances(embedder, sentences):
        if instance.lexeme in averages.senses:
            answers.append(averages.nearest(instance.lexeme, vectors))
        else:
            answers.append([first_senses.get(instance.lexeme)] * embedder.num_layers)
    return [[of_layers[layer] for of_layers in answers] for layer in range(embedder.num_layers)]


def instances_of(sentences: Iterable[WsdSentence]) -> list[Instance]:
    """Return all instances of a text."""
    return [instance for sentence in sentences for instance in sentence.instances]


def f1(answers: Sequence[str | None], instances: Sequence[Instance]) -> float:
    """Return F1: the accuracy, where every instance has an answer."""
    if not instances:
        raise InputError("no instance to score; expected a text with <instance> elements")
    pairs = list(zip(answers, instances, strict=True))
    right = sum(answer in instance.senses for answer, instance in pairs)
    answered = sum(answer is not None for answer in answers)
    # 2 P R / (P + R), with P = right / answered and R = right / all.
    return 2 * right / (answered + len(instances))


def read_first_senses(path: Path) -> dict[Lexeme, str]:
    """Read `index.sense` of WordNet: the first sense of each lexeme."""
    first = {}
    for number, line in enumerate(read_lines(path), start=1):
        match line.split():
            case [key, offset, rank, count] if all(map(str.isdigit, (offset, rank, count))):
                if rank == "1":
                    first[_lexeme_of(key, path, number)] = key
            case _:
                raise InputError(
                    f"{path}, line {number}: {line[:60]!r}; expected a sense key and three "
                    "numbers, as in `art%1:09:00:: 05638987 2 9`"
                )
    return first


def read_wsd(data: Path, keys: Path) -> list[WsdSentence]:
    """Read a text of the unified evaluation framework.

    Args:
        data: `*.data.xml`. A multiword expression counts as its words, at spaces and at `_`.
        keys: `*.gold.key.txt`, the senses of its instances.
    """
    senses = _read_keys(keys)
    sentences: list[WsdSentence] = []
    tokens: list[str] = []
    instances: list[Instance] = []
    for line, element in _elements(data):
        where = f"{data}, line {line}"
        if element.tag == "sentence":
            sentences.append(WsdSentence(tokens, instances))
            tokens, instances = [], []
            element.clear()  # its words are in our lists
        elif element.tag in ("wf", "instance"):
            start = len(tokens)
            tokens += _split(element, where)
            if element.tag == "instance":
                name, lexeme = _read_attributes(element, where)
                if name not in senses:
                    raise InputError(f"{keys}: no sense for {name!r}, an instance in {where}")
                instances.append(Instance(lexeme, slice(start, len(tokens)), senses[name]))
    if not sentences:
        raise InputError(
            f"{data}: no sentence; expected <sentence> elements with <wf> and <instance>"
        )
    return sentences


def _elements(path: Path) -> Iterator[tuple[int, ElementTree.Element]]:
    """Yield the elements of an XML file as they end, each with its line."""
    parser: Any = ElementTree.XMLPullParser(["end"])  # typed for other events than ours
    try:
        for number, line in enumerate(read_lines(path), start=1):
            parser.feed(line + "\n")
            for _, element in parser.read_events():
                yield number, element
        parser.close()
    except ElementTree.ParseError as error:
        raise InputError(
            f"{path}: not well-formed XML ({error}); expected a file such as ALL.data.xml"
        ) from error


def _split(element: ElementTree.Element, where: str) -> list[str]:
    """Return the words of an element; a lone underscore is a word."""
    text = (element.text or "").strip()
    if not text:
        raise InputError(f"{where}: <{element.tag}> is empty; expected a word")
    return text.replace("_", " ").split() or [text]


def _read_attributes(element: ElementTree.Element, where: str) -> tuple[str, Lexeme]:
    missing = [name for name in ("id", "lemma", "pos") if not element.get(name)]
    if missing:
        raise InputError(
            f"{where}: <instance> without {' and '.join(missing)}; "
            'expected <instance id="d0.s0.t0" lemma="art" pos="NOUN">'
        )
    pos = element.attrib["pos"]
    if pos not in _POS.values():
        raise InputError(f"{where}: pos is {pos!r}; expected NOUN, VERB, ADJ or ADV")
    # WordNet's lemmas are in lower case.
    return element.attrib["id"], Lexeme(element.attrib["lemma"].lower(), pos)


def _read_keys(path: Path) -> dict[str, tuple[str, ...]]:
    senses: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(read_lines(path), start=1):
        match line.split():
            case []:
                continue
            case [name, *keys] if keys:
                for key in keys:
                    _lexeme_of(key, path, number)
                senses[name] = tuple(keys)
            case _:
                raise InputError(
                    f"{path}, line {number}: {line[:60]!r}; expected an instance and its senses, "
                    "as in `d0.s0.t0 art%1:09:00::`"
                )
    return senses


def _lexeme_of(key: str, path: Path, number: int) -> Lexeme:
    lemma, _, lexical = key.partition("%")
    if not lemma or lexical[:1] not in _POS or lexical[1:2] != ":":
        raise InputError(
            f"{path}, line {number}: {key[:60]!r} is no sense key; expected one such as "
            "`art%1:09:00::`, with a part of speech from 1 to 5 after the %"
        )
    return Lexeme(lemma, _POS[lexical[0]])


def _embed_instances(
    embedder: Embedder, sentences: Iterable[WsdSentence]
) -> Iterator[tuple[Instance, Float32[np.ndarray, "J D"]]]:
    """Yield each instance with its vectors, the mean over its words."""
    ours, theirs = tee(sentence for sentence in sentences if sentence.instances)
    stream = embedder.stream((sentence.tokens for sentence in theirs), layers="all")
    for sentence, (_, vectors) in zip(ours, stream, strict=True):
        for instance in sentence.instances:
            yield instance, vectors[:, instance.words].mean(axis=1)


def _cosines(
    vectors: Float32[np.ndarray, "J D"], others: Float32[np.ndarray, "S J D"]
) -> Float32[np.ndarray, "J S"]:
    lengths = np.linalg.norm(vectors, axis=-1)[:, None] * np.linalg.norm(others, axis=-1).T
    dots = np.einsum("jd,sjd->js", vectors, others)
    return dots / np.maximum(lengths, np.finfo(np.float32).tiny)
