"""Oracles: files read by hand, words that can be told apart, one step of Adam in numpy."""

from pathlib import Path

import numpy as np
import pytest
import torch

from elmore.analysis.pos import (
    ProbeConfig,
    TaggedSentence,
    TaggedWords,
    accuracy,
    embed_words,
    probe_pos,
    read_conllu,
    train_probe,
)
from elmore.embedder import Embedder
from elmore.errors import InputError


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
        TaggedSentence(tokens, ["PRP", "VBP", "RB", "NFP"]),
        TaggedSentence(["Go"], ["VB"]),
    ]
    assert read_conllu(conllu, "upos") == [
        TaggedSentence(tokens, ["PRON", "AUX", "PART", "PUNCT"]),
        TaggedSentence(["Go"], ["VERB"]),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\tGo\tgo\n", "3 columns; expected 10, separated by tabs"),
        (row("1", "Go").replace("\t", " "), "1 columns; expected 10"),
        (row("x", "Go", "VERB", "VB"), "'x' in the first column; expected the number of a word"),
        (row("1", "", "VERB", "VB"), "the second column is empty; expected a word"),
        (row("1", "Go", "VERB"), "'Go' has no xpos tag; does the file have upos"),
    ],
)
def test_malformed_lines_are_refused(conllu: Path, line: str, message: str) -> None:
    conllu.write_text(CONLLU + line, encoding="utf-8")
    with pytest.raises(InputError, match=rf"en\.conllu, line 13: {message}"):
        read_conllu(conllu)


def test_a_file_without_words_is_refused(conllu: Path) -> None:
    conllu.write_text("# text = \n\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"en\.conllu: no word; expected CoNLL-U"):
        read_conllu(conllu)


def test_vectors_are_those_of_the_embedder(embedder: Embedder) -> None:
    sentences = [
        TaggedSentence(["He", "sat"], ["PRP", "VBD"]),
        TaggedSentence([], []),
        TaggedSentence(["by", "the", "bank"], ["IN", "DT", "NN"]),
    ]
    words = embed_words(embedder, iter(sentences))
    assert words.tags == ["PRP", "VBD", "IN", "DT", "NN"]
    assert len(words.layers) == embedder.num_layers
    for layer, vectors in enumerate(words.layers):
        expected = embedder.embed([s.tokens for s in sentences], layers=layer)
        np.testing.assert_allclose(vectors, np.concatenate(expected), rtol=1e-3, atol=1e-4)
    assert [len(vectors) for vectors in embed_words(embedder, []).layers] == [0] * 3


TAGS = ["DT", "JJ", "NN", "VB"]
CENTERS = 4 * torch.eye(4, 6)
FEW_WORDS = ProbeConfig(batch_size=16, learning_rate=0.01, patience=10)


def words(per_tag: int, layers: int = 1, spread: float = 0.3) -> TaggedWords:
    """Draw words around the center of their tag."""
    drawn = []
    for _ in range(layers):
        x = CENTERS.repeat_interleave(per_tag, dim=0)
        drawn.append((x + spread * torch.randn_like(x)).half())
    return TaggedWords(drawn, [tag for tag in TAGS for _ in range(per_tag)])


def test_what_is_linearly_separable_is_learned() -> None:
    train, dev, test = words(100), words(20), words(50)
    assert probe_pos(train, dev, test, FEW_WORDS) == [1.0]


def test_each_layer_has_its_own_probe() -> None:
    """A layer of zeros tells nothing: the most frequent tag is the best guess."""
    train, dev, test = words(50, layers=2), words(20, layers=2), words(25, layers=2)
    for text in (train, dev, test):
        text.layers[0].zero_()
        text.tags[:5] = ["NN"] * 5  # words that look like a determiner
    guessed, learned = probe_pos(train, dev, test, FEW_WORDS)
    assert guessed == 30 / 100
    assert learned == 95 / 100


def test_scale_and_shift_of_a_layer_do_not_matter() -> None:
    texts = [words(n, layers=1, spread=2.0) for n in (60, 20, 40)]
    moved = [TaggedWords([100 * x.float() - 7 for x in t.layers], t.tags) for t in texts]
    [plain], [other] = probe_pos(*texts), probe_pos(*moved)
    assert 0.5 < plain < 1
    assert other == pytest.approx(plain, abs=0.02)


def test_a_tag_that_training_did_not_have_is_never_right() -> None:
    train, dev, test = words(50), words(10), words(10)
    test.tags[0] = "UH"
    assert probe_pos(train, dev, test, FEW_WORDS) == [39 / 40]


def test_the_same_seed_gives_the_same_bits() -> None:
    x, tags = torch.randn(500, 6), torch.randint(3, (500,))
    runs = []
    for seed in (0, 0, 1):
        torch.rand(1)  # what else uses the global seed has no influence
        runs.append(train_probe(x, tags, x, tags, ProbeConfig(seed=seed, batch_size=32)).weight)
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_the_first_step_is_that_of_adam_on_a_softmax() -> None:
    """From zero every tag has probability 1/K, and Adam's first step has the gradient's sign."""
    x, tags = torch.randn(40, 6), torch.arange(40) % 3
    config = ProbeConfig(max_epochs=1, batch_size=40, learning_rate=0.01)
    probe = train_probe(x, tags, x, tags, config)
    gradient = (1 / 3 - np.eye(3)[tags.numpy()]).T @ x.numpy() / 40  # (K, D)
    np.testing.assert_allclose(probe.weight.detach(), -0.01 * np.sign(gradient), rtol=1e-3)


def test_training_ends_without_progress_and_returns_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, tags = torch.randn(40, 6), torch.arange(40) % 3
    never_right = torch.full((40,), -1)
    measured = []

    def measure(*args) -> float:
        measured.append(accuracy(*args))
        return measured[-1]

    monkeypatch.setattr("elmore.analysis.pos.accuracy", measure)
    best = train_probe(x, tags, x, never_right, ProbeConfig(patience=2))
    assert measured == [0.0] * 3
    first = train_probe(x, tags, x, never_right, ProbeConfig(max_epochs=1))
    assert torch.equal(best.weight, first.weight)


def test_empty_texts_and_settings_are_refused() -> None:
    text, empty = words(5), TaggedWords([torch.zeros(0, 6).half()], [])
    with pytest.raises(InputError, match="no word in dev"):
        probe_pos(text, empty, text)
    with pytest.raises(InputError, match="patience must be at least 1, got 0"):
        ProbeConfig(patience=0)
