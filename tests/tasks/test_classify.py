"""Text classification. Oracles: files by hand, torchmetrics, losses in NumPy, tiny datasets."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torchmetrics.functional import classification

from elmore.errors import InputError
from elmore.tasks import get_task, load_task, read_task_config, train_task
from elmore.tasks.classes import LabelProbabilities
from elmore.tasks.classify.config import BCNConfig
from elmore.tasks.classify.data import ClassifyExample, read_examples
from elmore.tasks.classify.model import BCN, MultiLabelBCN
from elmore.tasks.config import ElmoConfig, WordsConfig
from elmore.tasks.vectors import WordVectors
from elmore.tasks.words import WordEncoder, WordIndex, Words
from elmore.text.tokenize import get_tokenizer
from elmore.training.run_folder import Report

LABELS = ["a", "b", "c", "d"]
EXPECTED = [("Sports", 'They "won" , again'), ("Politics", "A vote (no)")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.tsv", 'Sports\tThey "won" , again\n\nPolitics\tA vote (no)\n'),
        (
            "x.txt",
            'ID\tCategory\tText\n1\tSports\tThey "won" , again\n2\tPolitics\tA vote (no)\n3\tx\t\n',
        ),
        ("x.csv", 'Sports,"They ""won"" , again"\nPolitics,"A vote\n(no)"\n'),
        ("x.csv", 'text,label\n"They ""won"" , again",Sports\n\nA vote (no),Politics\n'),
        (
            "x.jsonl",
            '{"label": "Sports", "text": "They \\"won\\" , again"}\n'
            '{"id": 1, "sentence": "A vote (no)", "class": "Politics"}\n',
        ),
    ],
)
def test_reads_every_format(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    actual = read_examples(path, str.split)
    assert [(labels, tokens) for tokens, labels, _ in actual] == [
        ([label], words.split()) for label, words in EXPECTED
    ]
    assert actual[0].text == EXPECTED[0][1]


def test_names_of_columns_can_be_set(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text,Comment,Topic,label\nwrong,It works,A,wrong\n")
    actual = read_examples(path, str.split, text_column="Comment", label_column="Topic")
    assert actual == [ClassifyExample(["It", "works"], ["A"], "It works")]
    with pytest.raises(InputError, match=r"line 1: expected a header .* label \(Subject\)"):
        read_examples(path, str.split, text_column="Comment", label_column="Subject")


def test_header_without_one_of_the_columns_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("rating\treview\n5\tIt works\n")
    with pytest.raises(InputError, match=r"line 1: expected a header with columns for a label"):
        read_examples(path, str.split)
    assert [e.labels for e in read_examples(path, str.split, label_column="rating")] == [["5"]]


def test_reads_several_labels(tmp_path: Path) -> None:
    table, lines = tmp_path / "x.tsv", tmp_path / "x.jsonl"
    table.write_text("a, b,a\tone\n\ttwo\nc\tthree\n")
    lines.write_text(
        '{"labels": ["a", "b", "a"], "text": "one"}\n{"labels": null, "text": "two"}\n'
        '{"labels": "c", "text": "three"}\n'
    )
    for path in (table, lines):
        actual = read_examples(path, str.split, separator=",")
        assert [example.labels for example in actual] == [["a", "b"], [], ["c"]]
    lines.write_text('{"label": 1, "text": "one"}\n{"label": 2, "text": "two"}\n')
    assert [example.labels for example in read_examples(lines, str.split)] == [["1"], ["2"]]


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("x.tsv", "It works", "expected a label, a tab and a text, or a header .* got 'It works'"),
        ("x.tsv", "a\tb\tc", "expected a label, a tab"),
        ("x.tsv", "\tIt works", "expected a label, .* got ''"),
        ("x.csv", 'a,"b" c', "not CSV"),
        ("x.csv", "a,b,c", "expected a label, a tab"),
        ("x.jsonl", '{"label": "a"', "not JSON"),
        ("x.jsonl", '{"label": "a", "txt": "b"}', "expected a JSON object with a label .* text"),
        ("x.jsonl", '{"label": "a", "text": ["b"]}', "expected a JSON object"),
        ("x.jsonl", "[1]", "expected a JSON object"),
        ("x.jsonl", '{"label": ["a"], "text": "b"}', "set data.multi_label=true"),
        ("x.jsonl", '{"label": 0.5, "text": "b"}', "string or an integer, got 0.5"),
        ("x.jsonl", '{"label": null, "text": "b"}', "string or an integer, got None"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, name: str, line: str, message: str) -> None:
    path = tmp_path / name
    first = {"x.tsv": "a\tb", "x.csv": "a,b", "x.jsonl": '{"label": "a", "text": "b"}'}[name]
    path.write_text(f"{first}\n{line}\n")
    with pytest.raises(InputError, match=rf"{name}, line 2: .*{message}"):
        read_examples(path, str.split)


def example(labels: list[str]) -> ClassifyExample:
    return ClassifyExample(["x"], labels)


def test_scores_of_one_label_equal_torchmetrics() -> None:
    rng = random.Random(0)
    gold, predicted = (rng.choices(LABELS[:3], k=50) for _ in range(2))
    ids = [torch.tensor([LABELS.index(label) for label in part]) for part in (predicted, gold)]
    scores = get_task("classify").score(
        [example([label]) for label in gold],
        [{label: float(label == p) for label in LABELS} for p in predicted],
    )
    assert scores == {
        "accuracy": pytest.approx(
            classification.multiclass_accuracy(*ids, num_classes=4, average="micro").item()
        ),
        "macro_f1": pytest.approx(classification.multiclass_f1_score(*ids, num_classes=4).item()),
    }


def test_scores_of_several_labels_equal_torchmetrics() -> None:
    rng = np.random.default_rng(0)
    gold = rng.random((50, 4)) < 0.4
    predicted = rng.random((50, 4))
    task = get_task("classify")
    examples = [example([LABELS[i] for i in np.flatnonzero(row)]) for row in gold]
    predictions = [LabelProbabilities(zip(LABELS, row, strict=True)) for row in predicted.tolist()]
    tensors = torch.from_numpy(predicted), torch.from_numpy(gold).long()
    f1 = classification.multilabel_f1_score
    exact = classification.multilabel_exact_match(*tensors, num_labels=4)
    assert task.score(examples, predictions) == {
        "accuracy": pytest.approx(exact.item()),
        "macro_f1": pytest.approx(f1(*tensors, num_labels=4, average="macro").item()),
        "micro_f1": pytest.approx(f1(*tensors, num_labels=4, average="micro").item()),
    }
    assert task.confusion_matrix(examples, predictions) == {}
    assert task.scores_by_label(examples, predictions)["b"]["support"] == gold[:, 1].sum()


@pytest.mark.parametrize("network", [BCN, MultiLabelBCN])
def test_loss_and_probabilities(network: type[BCN]) -> None:
    """Oracle: softmax and sigmoid of the scores, and their cross-entropies, in NumPy."""
    index = WordIndex(list("abc"), [])
    known = WordVectors([], np.zeros((0, 6), np.float32))
    words = Words(WordsConfig(), ElmoConfig(place="none"), index, known, num_layers=0, elmo_dim=0)
    model = network(BCNConfig(hidden=4), words, ["x", "y", "z"]).eval()
    encode = WordEncoder(index, None, with_characters=False, device=torch.device("cpu"))
    several = network is MultiLabelBCN
    examples = [
        ClassifyExample(list("ab"), ["z", "x"] if several else ["z"]),
        ClassifyExample(list("c"), ["unseen"] if several else ["y"]),
    ]
    batch = get_task("classify").collate(examples, encode, {"classes": model.classes})
    with torch.no_grad():
        scores = model._scores(batch.words).numpy()
        loss, predicted = model(batch).item(), model.predict(batch)
    if several:
        p = 1 / (1 + np.exp(-scores))
        gold = np.array([[1, 0, 1], [0, 0, 0]])
        expected = -np.mean(gold * np.log(p) + (1 - gold) * np.log(1 - p))
    else:
        p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        expected = -np.mean(np.log([p[0, 2], p[1, 1]]))
    assert loss == pytest.approx(expected, abs=1e-6)
    assert [list(row.values()) for row in predicted] == [
        pytest.approx(row, abs=1e-6) for row in p.tolist()
    ]


SMALL = [
    "words.dim=16", "words.min_count=1", "words.dropout=0.0", "elmo.dropout=0.0",
    "network.hidden=16", "network.dropout=0.0", "training.lr=0.01", "training.batch_size=4",
    "training.epochs=15", "training.patience=15", "training.lr_patience=15",
    "training.average=0.8",
]  # fmt: skip


def train(folder: Path, data: Path, changes: list[str], report: Report = lambda _: None) -> dict:
    config = read_task_config("classify", changes=[*SMALL, *changes])
    return train_task(
        "classify",
        folder,
        train=data,
        dev=data,
        test=data,
        config=config,
        device="cpu",
        progress=False,
        report=report,
    )


def test_learns_with_elmo_and_reloads(tmp_path: Path, model: Path) -> None:
    data = tmp_path / "topics.csv"
    rows = [("sports", "they won"), ("votes", "they voted"), ("votes", "a vote"), ("art", "a song")]
    data.write_text("label,text\n" + "".join(f'{label},"{text}"\n' for label, text in rows * 5))
    summary = train(tmp_path / "run", data, [f"elmo.model={model}"])
    assert summary["scores"]["test"] == {"accuracy": 1.0, "macro_f1": 1.0}
    assert summary["confusion"]["votes"] == {"art": 0, "sports": 0, "votes": 10}
    trained = load_task(tmp_path / "run", device="cpu")
    actual = trained("they won")
    assert json.loads(json.dumps(actual)) == actual
    assert (actual["text"], actual["tokens"]) == ("they won", ["they", "won"])
    assert actual["label"] == "sports"
    assert sum(actual["probabilities"].values()) == pytest.approx(1)


def test_learns_several_labels(tmp_path: Path) -> None:
    data = tmp_path / "colors.jsonl"
    rows = [(["red"], "rose"), ([], "glass"), (["red", "blue"], "rose sea"), (["blue"], "sea")]
    lines = [json.dumps({"labels": labels, "text": text}) for labels, text in rows * 5]
    data.write_text("\n".join(lines))
    summary = train(tmp_path / "run", data, ["elmo.place=none", "data.multi_label=true"])
    assert summary["scores"]["test"] == {"accuracy": 1.0, "macro_f1": 1.0, "micro_f1": 1.0}
    assert "confusion" not in summary
    trained = load_task(tmp_path / "run", device="cpu")
    actual = trained("rose sea")
    assert actual["labels"] == ["blue", "red"]
    assert trained("glass")["labels"] == []
    both, none = trained.predict(["rose sea", "glass"])
    task = trained.task
    assert "red" in task.show(trained.parse("rose sea"), both)
    assert task.show(trained.parse("glass"), none).split() == ["glass"]


def test_one_label_is_enough_if_some_texts_have_none(tmp_path: Path) -> None:
    data, notes = tmp_path / "data.jsonl", list[str]()
    rows = [(["red"], "rose"), ([], "glass")]
    data.write_text("".join(json.dumps({"labels": y, "text": x}) + "\n" for y, x in rows * 5))
    changes = ["elmo.place=none", "data.multi_label=true", "training.epochs=1"]
    report = lambda record: notes.append(record.get("note", ""))  # noqa: E731
    train(tmp_path / "run", data, changes, report=report)
    assert load_task(tmp_path / "run", device="cpu").labels["classes"] == ["red"]
    assert not any("have the label" in note for note in notes)
    data.write_text('{"labels": [], "text": "glass"}\n')
    with pytest.raises(InputError, match="the training examples have no labels"):
        train(tmp_path / "none", data, changes)
    data.write_text('{"labels": ["red"], "text": "rose"}\n')
    with pytest.raises(InputError, match="all training examples have the label 'red'"):
        train(tmp_path / "same", data, changes)


def test_suffix_of_a_table_may_be_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "A.CSV").write_text('label,text\ngood,"It works, too."\n')
    [example] = read_examples(tmp_path / "A.CSV", str.split)
    assert example.text == "It works, too."


def test_labels_that_look_like_texts_are_reported(tmp_path: Path) -> None:
    """Without a header, the label comes first; a file may have it second."""
    data = tmp_path / "data.tsv"
    data.write_text("".join(f"text {i}\t{i % 2}\n" for i in range(6)))
    notes: list[str] = []
    train(
        tmp_path / "run",
        data,
        ["elmo.place=none", "training.epochs=1"],
        report=lambda record: notes.append(record.get("note", "")),
    )
    expected = (
        "the 6 training examples have 6 different labels, such as 'text 0'. Are labels and texts "
        "in the right columns?"
    )
    assert expected in notes


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(InputError, match=r"data\.separator"):
        read_task_config("classify", None, ["data.separator="])


def test_korean_reviews_are_read_as_they_are(tasks: Path) -> None:
    """Oracle: the number of reviews in the description of the data."""
    path = tasks / "ko" / "nsmc.dev.tsv.xz"
    if not path.exists():
        pytest.skip("no Korean reviews")
    examples = read_examples(path, get_tokenizer("whitespace"))
    assert len(examples) == 5000
    assert {label for example in examples for label in example.labels} == {"0", "1"}
