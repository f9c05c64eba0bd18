"""POS probing. Oracles: words by hand, linearly separable vectors."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from elmore.analysis.data_files import find_files
from elmore.analysis.pos import (
    POS_FILES,
    embed_words,
    measure_pos,
    probe_pos,
    read_conllu,
    shuffle_tags,
)
from elmore.analysis.probe import LabeledVectors, ProbeConfig
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.tasks.tag.data import TagExample
from tests.analysis.toy import write_pos


def row(number: str, form: str, upos: str = "_", xpos: str = "_") -> str:
    return "\t".join([number, form, "_", upos, xpos, "_", "_", "_", "_", "_"]) + "\n"


CONLLU = (
    "# newdoc\n"
    + "# text = I don't _ .\n"
    + row("1", "I", "PRON", "PRP")
    + row("2-3", "don't")
    + row("2", "do", "AUX", "VBP")
    + row("3", "n't", "PART", "RB")
    + row("3.1", "know", "VERB", "VB")
    + row("4", "_", "PUNCT", "NFP")
    + "\n\n# text = Go\n"
    + row("1", "Go", "VERB", "VB")
)


@pytest.fixture
def conllu(tmp_path: Path) -> Path:
    path = tmp_path / "en.conllu"
    path.write_text(CONLLU, encoding="utf-8")
    return path


def test_words_and_tags_are_read(conllu: Path) -> None:
    tokens = ["I", "do", "n't", "_"]
    assert read_conllu(conllu) == [
        TagExample(tokens, ["PRP", "VBP", "RB", "NFP"]),
        TagExample(["Go"], ["VB"]),
    ]
    assert read_conllu(conllu, "upos") == [
        TagExample(tokens, ["PRON", "AUX", "PART", "PUNCT"]),
        TagExample(["Go"], ["VERB"]),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\tGo\tgo\n", "expected a word id and nine more columns separated by tabs"),
        (row("x", "Go", "VERB", "VB"), "expected a word id .* got 'x Go"),
        (row("1", "", "VERB", "VB"), "expected a word in column 2"),
        (row("1", "Go", "VERB"), "'Go' has no xpos tag; try upos"),
    ],
)
def test_malformed_line_is_rejected(conllu: Path, line: str, message: str) -> None:
    conllu.write_text(CONLLU + line, encoding="utf-8")
    with pytest.raises(InputError, match=rf"en\.conllu, line 13: {message}"):
        read_conllu(conllu)


def test_file_without_words_is_rejected(conllu: Path) -> None:
    conllu.write_text("# text = \n\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"en\.conllu: no words; expected CoNLL-U"):
        read_conllu(conllu)


def test_vectors_equal_those_of_the_embedder(embedder: Embedder) -> None:
    sentences = [
        TagExample(["He", "sat"], ["PRP", "VBD"]),
        TagExample([], []),
        TagExample(["by", "the", "bank"], ["IN", "DT", "NN"]),
    ]
    words = embed_words(embedder, iter(sentences))
    assert words.labels == ["PRP", "VBD", "IN", "DT", "NN"]
    assert len(words.layers) == embedder.num_layers
    for layer, vectors in enumerate(words.layers):
        expected = embedder.embed([s.tokens for s in sentences], layers=layer)
        np.testing.assert_allclose(vectors, np.concatenate(expected), rtol=1e-3, atol=1e-4)


TAGS = ["DT", "JJ", "NN", "VB"]
CENTERS = 4 * torch.eye(4, 6)
SMALL_DATA = ProbeConfig(batch_size=16, learning_rate=0.01, patience=10)


def sample_words(per_tag: int, layers: int = 1, noise: float = 0.3) -> LabeledVectors:
    """Sample vectors around the center of their tag."""
    sampled = []
    for _ in range(layers):
        x = CENTERS.repeat_interleave(per_tag, dim=0)
        sampled.append((x + noise * torch.randn_like(x)).half())
    return LabeledVectors(sampled, [tag for tag in TAGS for _ in range(per_tag)])


def test_linearly_separable_tags_are_learned() -> None:
    train, dev, test = sample_words(100), sample_words(20), sample_words(50)
    assert probe_pos(train, dev, test, SMALL_DATA) == [1.0]


def test_each_layer_has_its_own_probe() -> None:
    """On a layer of zeros, a probe can only predict the most frequent tag."""
    train, dev, test = (sample_words(n, layers=2) for n in (50, 20, 25))
    for text in (train, dev, test):
        text.layers[0].zero_()
        text.labels[:5] = ["NN"] * 5  # label noise: these vectors belong to DT
    zeros, separable = probe_pos(train, dev, test, SMALL_DATA)
    assert zeros == 30 / 100
    assert separable == 95 / 100


def test_accuracy_is_invariant_to_scale_and_shift_of_a_layer() -> None:
    texts = [sample_words(n, layers=1, noise=2.0) for n in (60, 20, 40)]
    scaled = [LabeledVectors([100 * x.float() - 7 for x in t.layers], t.labels) for t in texts]
    [original], [transformed] = (probe_pos(*words, ProbeConfig()) for words in (texts, scaled))
    assert 0.5 < original < 1
    assert transformed == pytest.approx(original, abs=0.02)


def test_tag_that_is_not_in_training_counts_as_an_error() -> None:
    train, dev, test = sample_words(50), sample_words(10), sample_words(10)
    test.labels[0] = "UH"
    assert probe_pos(train, dev, test, SMALL_DATA) == [39 / 40]


def test_probe_on_shuffled_tags_falls_to_the_majority_class() -> None:
    """Vectors determine the tags, but not once these are shuffled; 40 % of the words are NN."""
    texts = [sample_words(n) for n in (400, 100, 100)]
    for text in texts:
        first = [i for i, tag in enumerate(text.labels) if tag == "DT"]
        text.labels[first[0] : first[0] + 6 * len(first) // 10] = ["NN"] * (6 * len(first) // 10)
        text.layers[0][first[0] : first[0] + 6 * len(first) // 10] = CENTERS[2].half()
    train, dev, test = texts
    config = ProbeConfig(batch_size=64)
    assert probe_pos(train, dev, test, config) == [1.0]
    shuffled = [shuffle_tags(text, seed=0) for text in (train, dev)]
    assert sorted(shuffled[0].labels) == sorted(train.labels)
    [accuracy] = probe_pos(*shuffled, test, config)
    assert accuracy == pytest.approx(0.4, abs=0.02)


def test_scores_have_the_majority_class_and_the_control(embedder: Embedder, tmp_path: Path) -> None:
    """A treebank in which the word determines the tag; the most frequent is NN, with 3 of 5."""
    words = [("cat", "NN"), ("dog", "NN"), ("runs", "VBZ"), ("mouse", "NN"), ("a", "DT")]
    rows = (row(str(i), *word) for i, word in enumerate(((w, "X", t) for w, t in words), start=1))
    sentence = "".join(rows) + "\n"
    for name in ("train", "dev", "test"):
        (tmp_path / f"en-{name}.conllu").write_text(sentence * 10)
    result = measure_pos(
        embedder, find_files(tmp_path, POS_FILES), ProbeConfig(batch_size=5, learning_rate=0.05)
    )
    assert result.scores.pop("majority class") == {"accuracy": 60}
    assert list(result.scores) == ["layer 0", "layer 1", "layer 2"]
    for scores in result.scores.values():
        assert scores["accuracy"] == 100
        assert scores["shuffled tags"] <= 80  # one of the five words may be right by chance
    assert result.details == {"test words": 50, "most frequent tag": "NN"}


@pytest.mark.parametrize(("num_layers", "num_findings"), [(1, 0), (2, 1)])
def test_first_and_top_layer_are_compared_only_if_they_differ(
    tmp_path: Path, num_layers: int, num_findings: int
) -> None:
    write_pos(tmp_path / "pos")
    config = replace(BiLMConfig.tiny(), num_layers=num_layers)
    embedder = Embedder(BiLM(config), device="cpu")
    result = measure_pos(embedder, find_files(tmp_path / "pos", POS_FILES))
    assert len(result.findings) == num_findings


def test_empty_text_and_invalid_settings_are_rejected() -> None:
    text, empty = sample_words(5), LabeledVectors([torch.zeros(0, 6).half()], [])
    with pytest.raises(InputError, match="no examples in dev"):
        probe_pos(text, empty, text, SMALL_DATA)
    with pytest.raises(InputError, match="patience must be at least 1, got 0"):
        ProbeConfig(patience=0)
