"""Few labels. Oracles: separable vectors, a classifier that can only guess."""

import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmore.analysis import encoders, few_labels, probe
from elmore.analysis.data_files import find_files
from elmore.analysis.few_labels import (
    FEW_LABELS_FILES,
    Labeled,
    LayerScores,
    measure_few_labels,
    plot_few_labels,
    score_few_labels,
)
from elmore.analysis.probe import LabeledVectors, ProbeScores
from elmore.analysis.results import NotAvailableError
from elmore.embedder import Embedder
from elmore.errors import InputError
from tests.analysis.toy import ToyEmbedder

# Layer 0 is the same for all words; layer 1 tells good from bad, and the words of both.
TOY = ToyEmbedder(
    {
        "good": [[1, 1, 1], [1, 0, 0]],
        "great": [[1, 1, 1], [1, 0, 1]],
        "bad": [[1, 1, 1], [-1, 0, 0]],
        "film": [[1, 1, 1], [0, 1, 0]],
    }
)
SENTENCES = [
    Labeled(["good", "film"], ["positive"]),
    Labeled(["bad", "film"], ["negative"]),
    Labeled(["great", "film"], ["positive"]),
]


def test_the_layer_that_has_the_labels_is_perfect_and_the_other_guesses() -> None:
    train, dev, test = SENTENCES * 30, SENTENCES * 5, SENTENCES * 8
    scores = score_few_labels(TOY, train, dev, test, (30, 60), seeds=(0, 1))
    majority = pytest.approx(200 / 3)
    assert scores == {
        "layer 0": LayerScores(majority, {30: [majority] * 2, 60: [majority] * 2}),
        "layer 1": LayerScores(100, {30: [100, 100], 60: [100, 100]}),
    }


def test_words_are_classified_one_by_one() -> None:
    tagged = [Labeled(x.tokens, ["ADJ", "NOUN"]) for x in SENTENCES]
    scores = score_few_labels(TOY, tagged * 20, tagged, tagged, (40,), seeds=(0,))
    assert scores["layer 0"].test == {40: [50]}
    assert scores["layer 1"].test == {40: [100]}


def test_dev_set_selects_the_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: layer 0 has the labels of the dev set, and layer 1 those of the test set."""
    by_layer = {
        "layer 0": LayerScores(90, {2: [10.0]}),
        "layer 1": LayerScores(80, {2: [99.0]}),
    }
    monkeypatch.setattr(few_labels, "score_few_labels", lambda *_: by_layer)
    monkeypatch.setattr(few_labels, "frozen_encoders", lambda *_: [("toy", TOY, lambda: TOY)])
    write_data(tmp_path)
    result = measure_few_labels("toy", TOY, find_files(tmp_path, FEW_LABELS_FILES))  # type: ignore[arg-type]
    assert result.scores["toy"]["EWT, POS tags, 2 sentences"] == [10.0]
    assert result.details["layers for EWT, POS tags"] == {"toy": "layer 0"}


def test_dev_set_selects_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the labels of dev and test set, which differ."""
    seen = []
    train_probe = probe.train_probe

    def record(*args: Any) -> Any:
        seen.append(args[3].tolist())
        return train_probe(*args)

    monkeypatch.setattr(probe, "train_probe", record)
    dev, test = SENTENCES[:2], SENTENCES
    score_few_labels(TOY, SENTENCES * 20, dev, test, (40,), seeds=(0,))
    assert seen == [[1, 0]] * 2  # positive and negative, for each layer


def test_words_and_labels_must_match() -> None:
    wrong = [Labeled(["good", "bad", "film"], ["ADJ", "NOUN"])]
    with pytest.raises(InputError, match="3 words have 2 labels"):
        score_few_labels(TOY, wrong, SENTENCES, SENTENCES, (1,), seeds=(0,))


def test_label_without_an_example_counts_as_an_error() -> None:
    test = [*SENTENCES, Labeled(["film"], ["neutral"])]
    scores = score_few_labels(TOY, SENTENCES * 20, SENTENCES, test, (40,), seeds=(0,))
    assert scores["layer 1"].test == {40: [75]}


def test_each_seed_draws_its_own_sample_and_larger_ones_contain_smaller_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The label of each training sentence is its number."""
    samples: list[set[str]] = []

    def record(train: LabeledVectors, *_: object) -> list[ProbeScores]:
        samples.append({*train.labels})
        return [ProbeScores(0, 0)] * 2

    monkeypatch.setattr(few_labels, "probe_layers", record)
    train = [Labeled(["film"], [str(n)]) for n in range(50)]
    for _ in range(2):
        score_few_labels(TOY, train, SENTENCES, SENTENCES, (5, 20), seeds=(3, 4))
    assert samples[:4] == samples[4:]  # the same in every call
    small, other_small, large, other_large = samples[:4]
    assert [len(sample) for sample in samples[:4]] == [5, 5, 20, 20]
    assert small < large
    assert other_small < other_large
    assert small != other_small
    assert large != other_large


def test_no_sentences_are_an_error() -> None:
    with pytest.raises(InputError, match="no labeled sentences"):
        score_few_labels(TOY, SENTENCES, [], SENTENCES, (2,))


def write_data(folder: Path) -> None:
    """Write trees, three for each sentence, a treebank and word vectors."""
    for name in ("sst", "pos", "vectors"):
        (folder / name).mkdir()
    trees = "(4 (3 good) (2 film))\n(0 (1 bad) (2 film))\n(2 (2 the) (2 film))\n"
    words = "".join(
        f"{n}\t{form}\t_\t{tag}\t_\t_\t_\t_\t_\t_\n"
        for n, (form, tag) in enumerate((("good", "ADJ"), ("film", "NOUN")), 1)
    )
    for part in ("train", "dev", "test"):
        (folder / "sst" / f"{part}.txt.xz").write_bytes(lzma.compress(trees.encode() * 60))
        (folder / "pos" / f"en-{part}.conllu").write_text(f"{words}\n" * 60)
    vectors = np.array([[1, 0], [-1, 0], [0, 1]], np.float16)
    np.savez(folder / "vectors" / "a.100d.npz", words="good\nbad\nfilm", vec=vectors)


def test_encoders_are_compared_on_both_tasks(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neutral sentences are left out, and words and sentences are separable by their vectors.

    Of larger sizes, all sentences are used: 120 of the trees and 60 of the treebank.
    """
    write_data(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(encoders, "_PACKAGE", "no_such_package")
        with pytest.raises(NotAvailableError, match="not installed; run pip install"):
            measure_few_labels("tiny", embedder, find_files(tmp_path, FEW_LABELS_FILES))
    monkeypatch.setattr(encoders, "find_transformers", lambda: {"all-MiniLM-L6-v2": tmp_path})
    monkeypatch.setattr(encoders, "TransformerEncoder", lambda *_, **__: TOY)
    result = measure_few_labels("tiny", embedder, find_files(tmp_path, FEW_LABELS_FILES))
    columns = [
        *(f"SST, two classes, {n} sentences" for n in (100, 120)),
        *(f"EWT, POS tags, {n} sentences" for n in (10, 30, 60)),
    ]
    assert list(result.scores) == ["GloVe", "ELMo (tiny)", "all-MiniLM-L6-v2"]
    for row in ("GloVe", "all-MiniLM-L6-v2"):
        assert result.scores[row] == {column: [100.0] * 5 for column in columns}
    assert list(result.scores["ELMo (tiny)"]) == columns
    layers = {"GloVe": "layer 0", "all-MiniLM-L6-v2": "layer 1"}
    for task in ("SST, two classes", "EWT, POS tags"):
        assert result.details[f"layers for {task}"].items() >= layers.items()
    [plot] = plot_few_labels(result)
    assert all(text in plot.svg for text in ("labeled sentences", "all-MiniLM-L6-v2", ">120<"))
