"""Table 6: part-of-speech tagging with a linear probe on a single layer.

J layers, W words of a sentence, D dim.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from elmore.analysis.probe import LabeledVectors, ProbeConfig, probe_layers
from elmore.analysis.results import Result, finding, layer_rows
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.progress import with_progress
from elmore.tasks.tag.data import TagExample, read_tags

TagSet = Literal["xpos", "upos"]
"""`xpos`: the tags of the treebank, Penn Treebank tags in English; `upos`: universal tags."""

POS_FILES = ("*train.conllu", "*dev.conllu", "*test.conllu")
"""Files in the folder of the treebank."""


def measure_pos(
    embedder: Embedder, files: Sequence[Path], config: ProbeConfig | None = None
) -> Result:
    """Return the accuracy in percent of a linear probe on each layer.

    As a control, probes are also trained on shuffled tags. They cannot do better than to predict
    the most frequent tag, unless the probe or the evaluation is flawed.

    Args:
        embedder: The model.
        files: The files in the order of `POS_FILES`.
        config: How a probe is trained.
    """
    config = config or ProbeConfig()
    texts = [read_conllu(file) for file in files]
    train, dev, test = (
        embed_words(embedder, with_progress(text, "treebank sentences embedded", len(text)))
        for text in texts
    )
    accuracies = probe_pos(train, dev, test, config)
    control = probe_pos(
        shuffle_tags(train, config.seed), shuffle_tags(dev, config.seed), test, config
    )
    [(majority_tag, _)] = Counter(train.labels).most_common(1)
    majority = test.labels.count(majority_tag) / len(test.labels)
    scores = {"majority class": {"accuracy": 100 * majority}}
    for row, *both in zip(layer_rows(embedder.num_layers), accuracies, control, strict=True):
        scores[row] = {"accuracy": 100 * both[0], "shuffled tags": 100 * both[1]}
    findings = []
    if embedder.num_layers > 2:  # otherwise, there is only one biLSTM layer
        first, top = 100 * accuracies[1], 100 * accuracies[-1]
        claim = "The first biLSTM layer is better at parts of speech than the top layer"
        findings.append(finding(claim, first > top, f"accuracy {first:.1f} and {top:.1f}"))
    details = {"test words": len(test.labels), "most frequent tag": majority_tag}
    return Result(scores, details, tuple(findings))


def read_conllu(path: Path, tag_set: TagSet = "xpos") -> list[TagExample]:
    """Read the words and tags of a CoNLL-U file, optionally compressed.

    Raises:
        InputError: If the file is not CoNLL-U, has no words, or a word has no tag.
    """
    sentences = read_tags(path, column=tag_set)
    if not sentences:
        raise InputError(f"{path}: no words; expected CoNLL-U, one word per line")
    return sentences


def embed_words(embedder: Embedder, sentences: Iterable[TagExample]) -> LabeledVectors:
    """Compute the vectors of all layers of a text.

    They are stored as float16, so a treebank of 200,000 words takes 600 MB at 512 dimensions.
    """
    sentences = list(sentences)
    vectors = embedder.embed((sentence.tokens for sentence in sentences), dtype="float16")
    layers = zip(*vectors, strict=True)  # vectors has one array (J, W, D) per sentence
    return LabeledVectors(
        [torch.from_numpy(np.concatenate(layer)) for layer in layers],
        [tag for sentence in sentences for tag in sentence.tags],
    )


def shuffle_tags(words: LabeledVectors, seed: int) -> LabeledVectors:
    """Return the same vectors with the tags in a random order."""
    order = np.random.default_rng(seed).permutation(len(words.labels))
    return LabeledVectors(words.layers, [words.labels[i] for i in order])


def probe_pos(
    train: LabeledVectors, dev: LabeledVectors, test: LabeledVectors, config: ProbeConfig
) -> list[float]:
    """Train a linear probe on each layer; return their accuracies on the test text."""
    scores = probe_layers(train, dev, test, config)
    return [score.test for score in with_progress(scores, "probes trained", len(train.layers))]
