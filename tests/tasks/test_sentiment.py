"""Sentiment. Oracles: handwritten and generated trees, BCN in NumPy, a tiny learnable dataset."""

import lzma
import random
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

import elmore
from elmore.errors import InputError
from elmore.tasks import get_task, load_task, read_task_config
from elmore.tasks.classify.config import BCNConfig
from elmore.tasks.classify.model import BCN
from elmore.tasks.config import ElmoConfig, WordsConfig
from elmore.tasks.domain import domain_text
from elmore.tasks.sentiment.data import SCALE, SentimentExample, parse_tree, read_sentiment
from elmore.tasks.vectors import WordVectors
from elmore.tasks.words import WordEncoder, WordIndex, Words
from elmore.text.tokenize import get_tokenizer
from tests.cli.conftest import assert_rejected
from tests.tasks.conftest import train_on

TREE = "(4 (2 (2 The) (2 film)) (4 (3 (2 is) (4 great)) (2 .)))"
SENTIMENT = get_task("sentiment")


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    path = tmp_path / "trees.txt"
    path.write_text(f"{TREE}\n\n(1 (2 A) (1 bore))\n(2 (2 A) (2 film))\n{TREE}\n")
    return path


def test_parses_a_tree() -> None:
    tokens, phrases = parse_tree(TREE)
    assert tokens == ["The", "film", "is", "great", "."]
    assert [(label, " ".join(tokens[start:end])) for label, start, end in phrases] == [
        ("neutral", "The"),
        ("neutral", "film"),
        ("neutral", "The film"),
        ("neutral", "is"),
        ("very positive", "great"),
        ("positive", "is great"),
        ("neutral", "."),
        ("very positive", "is great ."),
        ("very positive", "The film is great ."),
    ]


def test_parses_random_trees() -> None:
    """Oracle: a recursive generator of trees, which also returns their phrases."""
    rng = random.Random(0)

    def random_tree(depth: int) -> tuple[str, list[str], list[tuple[int, tuple[str, ...]]]]:
        label = rng.randrange(5)
        if depth == 0 or rng.random() < 0.2:
            word = rng.choice(["a", "b", "...", "'s", "8\u00a01/2"])
            return f"({label} {word})", [word], [(label, (word,))]
        children = [random_tree(depth - 1) for _ in range(rng.choice([1, 2, 3]))]
        words = [word for _, inner, _ in children for word in inner]
        phrases = [phrase for _, _, inner in children for phrase in inner]
        return (
            f"({label} {' '.join(text for text, _, _ in children)})",
            words,
            [*phrases, (label, tuple(words))],
        )

    for _ in range(50):
        text, words, phrases = random_tree(4)
        tokens, actual = parse_tree(text)
        assert tokens == words
        expected = [(SCALE[label], words) for label, words in phrases]
        assert [(label, tuple(tokens[start:end])) for label, start, end in actual] == expected


def test_reads_sentences_and_phrases(trees: Path) -> None:
    sentences = read_sentiment(trees, classes=5)
    assert [(" ".join(e.tokens), e.label) for e in sentences] == [
        ("The film is great .", "very positive"),
        ("A bore", "negative"),
        ("A film", "neutral"),
        ("The film is great .", "very positive"),
    ]
    phrases = read_sentiment(trees, classes=5, phrases=True)
    assert len(phrases) == len({(tuple(e.tokens), e.label) for e in phrases}) == 13
    long = read_sentiment(trees, classes=5, phrases=True, min_phrase=3)
    assert [" ".join(e.tokens) for e in long] == [
        "is great .",
        "The film is great .",
        "A bore",  # shorter than three words, but a whole sentence
        "A film",
    ]


def test_words_of_phrases_are_counted_in_their_sentence_only(tmp_path: Path) -> None:
    path = tmp_path / "trees.txt"
    path.write_text("(3 (2 It) (3 (3 is) (3 superb)))\n(3 (3 is) (3 superb))\n")
    task = get_task("sentiment")
    config = read_task_config("sentiment", changes=["data.min_phrase=1"])
    examples = task.read(path, config, training=True)
    assert len(examples) == 5
    counted = {tuple(words) for e in examples for words in task.vocabulary_texts(e)}
    assert counted == {("It", "is", "superb"), ("is", "superb")}


def test_two_classes_skip_neutral_examples(trees: Path) -> None:
    actual = read_sentiment(trees, classes=2)
    assert [e.label for e in actual] == ["positive", "negative", "positive"]
    phrases = read_sentiment(trees, classes=2, phrases=True)
    assert {" ".join(e.tokens) for e in phrases} == {
        "great", "is great", "is great .", "The film is great .", "bore", "A bore",
    }  # fmt: skip


def test_phrases_are_read_only_for_training(trees: Path) -> None:
    config = read_task_config("sentiment", None, ["data.min_phrase=1"])
    assert len(SENTIMENT.read(trees, config)) == 4
    assert len(SENTIMENT.read(trees, config, training=True)) == 13


def test_bilm_is_finetuned_on_whole_sentences(tmp_path: Path) -> None:
    """Phrases would leak held-out sentences into the training text."""
    words = [chr(ord("a") + i % 26) + str(i) for i in range(40)]
    lines = (f"(3 (2 the) (3 (3 (2 {word}) (2 is)) (3 (2 so) (2 good))))" for word in words)
    (tmp_path / "trees.txt").write_text("\n".join([*lines, f"(3 (2 the) (3 {words[0]}))"]))
    (tmp_path / "more.txt").write_text(f"(3 (2 the) (3 {words[0]}))")
    files = [tmp_path / "trees.txt", tmp_path / "more.txt"]
    text = domain_text(SENTIMENT, files, SENTIMENT.config())
    assert text == [*(f"the {word} is so good" for word in words), f"the {words[0]}"]
    with pytest.raises(InputError, match="1 distinct sentences are too few"):
        domain_text(SENTIMENT, files[1:], SENTIMENT.config())


def test_reads_labeled_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines.tsv.xz"
    path.write_bytes(
        lzma.compress(b"4\tIt works .\nVery negative\tIt does n't -LRB- yet -RRB- .\n")
    )
    assert read_sentiment(path, classes=5, phrases=True) == [
        SentimentExample(["It", "works", "."], "very positive"),
        SentimentExample(["It", "does", "n't", "(", "yet", ")", "."], "very negative"),
    ]


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize(
    "labels", [["0", "1"], ["0", "1", "2"], ["1", "5"], ["Sports", "Politics", "negative"]]
)
def test_labels_that_are_not_on_the_scale_are_names(
    tmp_path: Path, classes: Literal[2, 5], labels: list[str]
) -> None:
    path = tmp_path / "lines.tsv"
    path.write_text("".join(f"{label}\tsome text\n" for label in labels))
    examples = read_sentiment(path, classes=classes)
    assert [e.label for e in examples] == labels
    assert SENTIMENT.labels(examples) == {"classes": sorted(labels, key=lambda x: (x[0] != "n", x))}


def test_numbers_next_to_names_of_the_scale_are_rejected(trees: Path, tmp_path: Path) -> None:
    path = tmp_path / "lines.tsv"
    path.write_text("1\tgood\n0\tbad\n\n")
    examples = [*read_sentiment(path, classes=5), *read_sentiment(trees, classes=5)]
    with pytest.raises(InputError, match="the label 0 is not clear next to 'negative'"):
        SENTIMENT.labels(examples)


def test_reads_a_table_with_a_header(tmp_path: Path) -> None:
    """The format of NSMC, which has rows without a review."""
    path = tmp_path / "ratings.txt"
    path.write_text('\ufeffid\tdocument\tlabel\n7\tIt works.\t1\n8\t\t1\n9\t(no) "fun\t0\n')
    actual = read_sentiment(path, classes=5, tokenize=get_tokenizer())
    assert actual == [
        SentimentExample(["It", "works", "."], "1"),
        SentimentExample(["(", "no", ")", '"', "fun"], "0"),
    ]
    path.write_text("text\tlabel\nIt works\tgood\nNot\n")
    with pytest.raises(InputError, match=r"ratings.txt, line 3: expected the columns of the head"):
        read_sentiment(path, classes=5)


def test_raw_text_is_tokenized_like_the_text_of_the_bilm(
    run, tmp_path: Path, bilm: elmore.BiLM
) -> None:
    """Oracle: the Korean rules of Moses, which keep Hangul words whole."""
    embedder = elmore.Embedder(bilm, device="cpu", tokenizer="moses", language="ko")
    embedder.save(tmp_path / "ko")
    data, folder = tmp_path / "nsmc.tsv", tmp_path / "run"
    good, bad = "\uc7ac\ubbf8\uc788\ub2e4", "\uc9c0\ub8e8\ud558\ub2e4"
    data.write_text(f"1\t\uc601\ud654 {good}!\n0\t\uc601\ud654 {bad}.\n" * 2, encoding="utf-8")
    settings = ("--set", "training.epochs=1", "--set", "network.hidden=4")
    command = ("train", "sentiment", "--train", data, "--dev", data, "-m", tmp_path / "ko")
    result = run(*command, "-o", folder, *settings, "--set", "words.min_count=1")
    assert result.code == 0, result.err
    trained = load_task(folder, device="cpu")
    assert {good, bad, "!"} <= set(trained.encode.index.new)
    answer = trained(f"{good}!")
    assert answer["tokens"] == [good, "!"]
    assert answer["probabilities"].keys() == {"0", "1"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("(3 (2 It) (3 works)", r"as many \) as \("),
        ("(3 (2 It) (3 works)))", "nothing after it"),
        ("(7 (2 It) (3 works))", "label from 0 to 4 after .*'7'"),
        ("(3 (2 It) works)", "'works' in its own parentheses"),
        ("(3 It (3 works))", r"'\(' in its own parentheses"),
        ("(3 (2 It) (3))", "a phrase between parentheses"),
        ("(", "label from 0 to 4"),
        ("It works .", "expected a tree such as"),
        ("\tIt works .", "expected a tree such as"),
        ("3\t ", "expected a tree such as"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(f"{TREE}\n{line}\n")
    with pytest.raises(InputError, match=rf"bad\.txt, line 2: .*{message}"):
        read_sentiment(path, classes=5)


@pytest.mark.parametrize(
    "change", ["data.classes=3", "data.min_phrase=0", "network.hidden=0", "network.dropout=1.0"]
)
def test_invalid_settings_are_rejected(change: str) -> None:
    with pytest.raises(InputError, match=change.split("=")[0].split(".")[1]):
        read_task_config("sentiment", None, [change])


def bcn(classifier: str = "relu") -> tuple[BCN, WordEncoder]:
    index = WordIndex(list("abcdef"), [])
    known = WordVectors([], np.zeros((0, 6), np.float32))
    words = Words(WordsConfig(), ElmoConfig(place="none"), index, known, num_layers=0, elmo_dim=0)
    model = BCN(BCNConfig(hidden=4, classifier=classifier), words, ["negative", "positive"])
    encode = WordEncoder(index, None, with_characters=False, device=torch.device("cpu"))
    return model.eval(), encode


def test_network_matches_the_equations() -> None:
    """Oracle: the equations of the paper in NumPy; the LSTMs are PyTorch's."""
    model, encode = bcn()
    tokens = ["a", "b", "f", "a"]

    def lstm(layer: torch.nn.LSTM, x: np.ndarray) -> np.ndarray:
        return layer(torch.from_numpy(x)[None])[0][0].numpy()

    def linear(layer: torch.nn.Linear, x: np.ndarray) -> np.ndarray:
        return x @ layer.weight.numpy().T + layer.bias.numpy()

    def softmax(x: np.ndarray, axis: int) -> np.ndarray:
        return np.exp(x) / np.exp(x).sum(axis, keepdims=True)

    with torch.no_grad():
        w = model.words.table.new[[encode.index.row(t) for t in tokens]].numpy()
        X = lstm(model.encode.rnn, np.maximum(linear(model.project, w), 0))
        A = X @ X.T
        C = softmax(A, 0).T @ X  # columns sum to 1
        Z = lstm(model.integrate.rnn, np.concatenate([X, X - C, X * C], -1))
        beta = softmax(linear(model.attentive_pool.score, Z)[:, 0], 0)
        pooled = np.concatenate([Z.max(0), Z.mean(0), Z.min(0), beta @ Z])
        for layer in (model.classify[1], model.classify[4]):
            pooled = np.maximum(linear(layer, pooled), 0)
        expected = softmax(linear(model.classify[7], pooled), 0)

        batch = SENTIMENT.collate(
            [SentimentExample(tokens, "")], encode, {"classes": model.classes}
        )
        [actual] = model.predict(batch)

    assert list(actual.values()) == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.parametrize("classifier", ["relu", "maxout"])
def test_predictions_do_not_depend_on_the_batch(classifier: str) -> None:
    model, encode = bcn(classifier)
    labels = {"classes": model.classes}
    examples = [SentimentExample(list(text), "") for text in ("abc", "f", "ebcdafab", "")]
    with torch.no_grad():
        together = model.predict(SENTIMENT.collate(examples, encode, labels))
        in_reverse = model.predict(SENTIMENT.collate(examples[::-1], encode, labels))[::-1]
        separate = [model.predict(SENTIMENT.collate([e], encode, labels))[0] for e in examples]
    for other in (in_reverse, separate):
        for first, second in zip(together, other, strict=True):
            assert first == pytest.approx(second, abs=1e-5)
    assert together[0] != pytest.approx(together[1], abs=1e-4)


ADJECTIVES = ["awful", "dull", "long", "good", "superb"]


@pytest.fixture
def tiny_dataset(tmp_path: Path) -> Path:
    """Trees in which one word determines the class."""
    path = tmp_path / "tiny.txt"
    nouns = ["film", "plot", "cast", "end"]
    path.write_text(
        "\n".join(
            f"({label} (2 (2 The) (2 {noun})) ({label} (2 is) ({label} {word})))"
            for (label, word), noun in product(enumerate(ADJECTIVES), nouns)
        )
    )
    return path


TINY = [
    "words.dropout=0.0", "elmo.dropout=0.0", "network.hidden=16", "network.dropout=0.0",
    "training.lr=1e-2", "training.batch_size=5", "training.epochs=20", "training.patience=20",
    "training.lr_patience=20", "training.average=0.8",
]  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        ["data.train_on=sentences"],
        ["data.min_phrase=2", "network.classifier=maxout"],
        ["data.classes=2", "data.train_on=sentences"],
    ],
)
def test_learns_a_tiny_dataset(
    tiny_dataset: Path, glove: Path, tmp_path: Path, changes: list[str]
) -> None:
    settings = [*TINY, "elmo.place=none", f"words.vectors={glove}", *changes]
    summary = train_on("sentiment", tiny_dataset, tmp_path / "run", settings)
    assert summary["scores"]["dev"]["accuracy"] >= 0.97


def test_learns_with_elmo_and_reloads(
    tiny_dataset: Path, glove: Path, tmp_path: Path, model: Path
) -> None:
    changes = [*TINY, f"elmo.model={model}", f"words.vectors={glove}", "data.train_on=sentences"]
    summary = train_on("sentiment", tiny_dataset, tmp_path / "run", changes)
    assert summary["scores"]["dev"]["accuracy"] >= 0.97
    assert set(summary["elmo"]) == {"input", "output"}

    trained = load_task(tmp_path / "run", device="cpu")
    assert trained.evaluate(tiny_dataset) == summary["scores"]["dev"]
    task = trained.task
    example = task.parse("The plot isn't [superb]", get_tokenizer())
    assert example.tokens[2:4] == ["is", "n't"]
    example = task.parse("The end is superb", get_tokenizer())
    [answer] = trained.predict([example])
    actual = task.as_json(example, answer, trained.config)
    assert actual["label"] == "very positive"
    assert actual["probability"] == max(actual["probabilities"].values())
    assert sum(actual["probabilities"].values()) == pytest.approx(1)
    assert next(iter(actual["probabilities"])) == "very negative"
    assert "very positive" in task.show(example, answer)
    assert "\\[end]" in task.show(example._replace(tokens=["[end]"]), answer)


def test_confusion_matrix_and_scores_of_each_class() -> None:
    """Oracle: counts by hand."""
    task = get_task("sentiment")
    gold = [SentimentExample(["a"], label) for label in ("positive", "positive", "negative")]
    predicted = [{"positive": p, "negative": 1 - p} for p in (0.9, 0.2, 0.4)]
    matrix = task.confusion_matrix(gold, predicted)
    assert matrix == {
        "positive": {"positive": 1, "negative": 1},
        "negative": {"positive": 0, "negative": 1},
    }
    assert list(matrix) == list(matrix["negative"]) == ["positive", "negative"]
    assert task.scores_by_label(gold, predicted) == {
        "negative": {"f1": 2 / 3, "precision": 0.5, "recall": 1.0, "support": 1},
        "positive": {"f1": 2 / 3, "precision": 1.0, "recall": 0.5, "support": 2},
    }


def test_data_with_one_class_is_reported(run, tmp_path: Path) -> None:
    one, two = tmp_path / "one.tsv", tmp_path / "two.tsv"
    one.write_text("positive\tA joy .\npositive\tA delight .\n")
    two.write_text("positive\tA joy .\nnegative\tA bore .\n")
    command = ["train", "sentiment", "--no-elmo", "--set", "training.epochs=1", "-o"]
    command = [*command, tmp_path / "run", "--set", "network.hidden=4"]
    assert_rejected(
        run(*command, "--train", one, "--dev", two), "all training examples have the label 'positi"
    )
    result = run(*command, "--train", two, "--dev", one, "--test", two)
    assert f"all examples in {one} have the label 'positive'" in result.out
    assert "gold \\ predicted" in result.out
    evaluated = run("evaluate", tmp_path / "run", one)
    assert f"all examples in {one} have the label 'positive'" in evaluated.err


def test_treebank_has_the_published_counts(tasks: Path) -> None:
    """Oracle: the counts of Socher et al. (2013) and McCann et al. (2017)."""
    count = {
        (part, classes): len(read_sentiment(tasks / "sst" / f"{part}.txt.xz", classes=classes))
        for part in ("dev", "test")
        for classes in (5, 2)
    }
    assert count == {("dev", 5): 1101, ("test", 5): 2210, ("dev", 2): 872, ("test", 2): 1821}
