"""Table 5: word sense disambiguation by the nearest average vector of a sense in SemCor.

J layers, W words of a sentence, S senses of a lexeme, D dim.

Files are those of the unified evaluation framework (Raganato et al., 2017), optionally compressed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import tee
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
from jaxtyping import Float32

from elmore.analysis.data_files import find_file
from elmore.analysis.results import NotAvailableError, Result, finding, layer_rows
from elmore.checkpoint.pretrained import extracted
from elmore.errors import InputError
from elmore.progress import with_progress
from elmore.tasks.encoder import Encoder
from elmore.text.lines import read_lines

WSD_FILES = ("semcor.data.xml", "semcor.gold.key.txt", "index.sense", "Evaluation_Datasets")
"""Files in the folder of the data; `Evaluation_Datasets` is a folder or an archive."""

TEST_SETS = ("senseval2", "senseval3", "semeval2007", "semeval2013", "semeval2015")

_POS = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}  # 5: adjective satellite
_TIE = 1e-5  # smaller differences of cosines may be rounding errors


class Lexeme(NamedTuple):
    """A lemma and its part of speech, the unit that has senses in WordNet."""

    lemma: str
    pos: str


class Instance(NamedTuple):
    """One or more words of a sentence to disambiguate."""

    lexeme: Lexeme
    words: slice
    senses: tuple[str, ...]
    """Correct sense keys such as `art%1:09:00::`. Predicting any of them is correct."""


class WsdSentence(NamedTuple):
    """A sentence and its instances."""

    tokens: list[str]
    instances: list[Instance]


class SenseAverages(NamedTuple):
    """Average vectors of the senses in a training text."""

    vectors: dict[str, Float32[np.ndarray, "J D"]]
    """Average vector of each sense."""

    senses: dict[Lexeme, list[str]]
    """Senses of each lexeme in the training text, most frequent first."""

    def nearest(self, lexeme: Lexeme, vectors: Float32[np.ndarray, "J D"]) -> list[str]:
        """Return, for each layer, the sense of the lexeme with the largest cosine."""
        senses = self.senses[lexeme]
        cosines = _cosines(vectors, np.stack([self.vectors[sense] for sense in senses]))  # (J, S)
        # Layer 0 is context-independent, so ties are common there. The most frequent sense wins
        # a tie, not the one with the luckier rounding error.
        is_nearest = cosines >= cosines.max(axis=1, keepdims=True) - _TIE
        return [senses[first] for first in is_nearest.argmax(axis=1)]


def measure_wsd(embedder: Encoder, files: Sequence[Path]) -> Result:
    """Return the F1 in percent of each layer, and of WordNet's first sense, on each test set.

    Senses are learned from SemCor. `ALL` is the concatenation of the test sets.

    Args:
        embedder: The model.
        files: The files in the order of `WSD_FILES`.
    """
    scores, details = score_layers(embedder, files)
    findings = []
    if embedder.num_layers > 2:  # otherwise, there is only one biLSTM layer
        lower, top = scores["layer 1"]["ALL"], scores[layer_rows(embedder.num_layers)[-1]]["ALL"]
        claim = "The top layer is better at word senses than the first biLSTM layer"
        findings.append(finding(claim, top > lower, f"F1 {top:.1f} and {lower:.1f} on ALL"))
    return Result(scores, details, tuple(findings))


def score_layers(
    embedder: Encoder, files: Sequence[Path]
) -> tuple[dict[str, dict[str, float]], dict[str, int]]:
    """Return the scores of each layer of any encoder, and numbers of instances and senses."""
    data, keys, index, test_sets = files
    first_senses = read_first_senses(index)
    texts = _read_test_sets(test_sets)
    semcor = read_wsd(data, keys)
    averages = average_senses(
        embedder, with_progress(semcor, "SemCor sentences embedded", len(semcor))
    )
    rows = ["first sense", *layer_rows(embedder.num_layers)]
    scores: dict[str, dict[str, float]] = {row: {} for row in rows}
    all_instances: list[Instance] = []
    all_answers: dict[str, list[str | None]] = {row: [] for row in rows}
    for name, text in texts.items():
        instances = instances_of(text)
        first = [first_senses.get(instance.lexeme) for instance in instances]
        answers = [first, *disambiguate(embedder, text, averages, first_senses)]
        all_instances += instances
        for row, senses in zip(rows, answers, strict=True):
            scores[row][name] = 100 * f1(senses, instances)
            all_answers[row] += senses
    for row, senses in all_answers.items():
        scores[row] = {"ALL": 100 * f1(senses, all_instances), **scores[row]}
    return scores, {"instances": len(all_instances), "senses in SemCor": len(averages[0])}


def _read_test_sets(path: Path) -> dict[str, list[WsdSentence]]:
    with extracted(path) as folder:
        try:
            return {
                name: read_wsd(
                    find_file(folder, f"**/{name}/{name}.data.xml"),
                    find_file(folder, f"**/{name}/{name}.gold.key.txt"),
                )
                for name in TEST_SETS
            }
        except NotAvailableError as error:
            raise InputError(f"{path}: {error}; expected {', '.join(TEST_SETS)}") from None


def average_senses(embedder: Encoder, sentences: Iterable[WsdSentence]) -> SenseAverages:
    """Average the vectors of each sense over a text, for all layers in one pass.

    Memory grows only with the number of senses, so the text may be larger than memory.
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
            lexeme: sorted(of_lexeme, key=lambda sense: (-counts[sense], sense))
            for lexeme, of_lexeme in senses.items()
        },
    )


def disambiguate(
    embedder: Encoder,
    sentences: Iterable[WsdSentence],
    averages: SenseAverages,
    first_senses: Mapping[Lexeme, str],
) -> list[list[str | None]]:
    """Return, for each layer, the predicted sense of each instance, in the order of the text.

    A lexeme that does not occur in the training text gets its first sense in WordNet, or None if
    it is not in WordNet.
    """
    predictions: list[Sequence[str | None]] = []  # by instance, then by layer
    for instance, vectors in _embed_instances(embedder, sentences):
        if instance.lexeme in averages.senses:
            predictions.append(averages.nearest(instance.lexeme, vectors))
        else:
            predictions.append([first_senses.get(instance.lexeme)] * embedder.num_layers)
    return [[by_layer[layer] for by_layer in predictions] for layer in range(embedder.num_layers)]


def instances_of(sentences: Iterable[WsdSentence]) -> list[Instance]:
    """Return all instances of a text."""
    return [instance for sentence in sentences for instance in sentence.instances]


def f1(answers: Sequence[str | None], instances: Sequence[Instance]) -> float:
    """Return F1, which equals accuracy if every instance has an answer."""
    if not instances:
        raise InputError("no instance to score; expected a text with <instance> elements")
    pairs = list(zip(answers, instances, strict=True))
    correct = sum(answer in instance.senses for answer, instance in pairs)
    answered = sum(answer is not None for answer in answers)
    # 2 P R / (P + R), with P = correct / answered and R = correct / all.
    return 2 * correct / (answered + len(instances))


def read_first_senses(path: Path) -> dict[Lexeme, str]:
    """Read the first sense of each lexeme from WordNet's `index.sense`."""
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
        data: `*.data.xml`. Multiword expressions are split into words at spaces and at `_`.
        keys: `*.gold.key.txt`, the senses of the instances.

    Raises:
        InputError: If a file is malformed, or an instance has no sense.
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
            element.clear()  # frees memory
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
    """Yield each element of an XML file at its end tag, with its line number."""
    parser: Any = ElementTree.XMLPullParser(["end"])  # its stubs do not distinguish event types
    try:
        for number, line in enumerate(read_lines(path), start=1):
            parser.feed(line + "\n")
            for _, element in parser.read_events():
                yield number, element
        parser.close()
    except ElementTree.ParseError as error:
        raise InputError(
            f"{path} is not well-formed XML ({error}); expected a file such as ALL.data.xml"
        ) from error


def _split(element: ElementTree.Element, where: str) -> list[str]:
    """Split the text of an element into words; a lone underscore is a word."""
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
    # WordNet's lemmas are lowercase.
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
            f"{path}, line {number}: {key[:60]!r} is not a sense key; expected one such as "
            "`art%1:09:00::`, with a part of speech from 1 to 5 after the %"
        )
    return Lexeme(lemma, _POS[lexical[0]])


def _embed_instances(
    embedder: Encoder, sentences: Iterable[WsdSentence]
) -> Iterator[tuple[Instance, Float32[np.ndarray, "J D"]]]:
    """Yield each instance with the mean vector of its words, for each layer."""
    annotated, to_embed = tee(sentence for sentence in sentences if sentence.instances)
    embedded = embedder.stream(sentence.tokens for sentence in to_embed)
    for sentence, (_, vectors) in zip(annotated, embedded, strict=True):
        for instance in sentence.instances:
            yield instance, vectors[:, instance.words].mean(axis=1)


def _cosines(
    vectors: Float32[np.ndarray, "J D"], others: Float32[np.ndarray, "S J D"]
) -> Float32[np.ndarray, "J S"]:
    norms = np.linalg.norm(vectors, axis=-1)[:, None] * np.linalg.norm(others, axis=-1).T
    dots = np.einsum("jd,sjd->js", vectors, others)
    return dots / np.maximum(norms, np.finfo(np.float32).tiny)
