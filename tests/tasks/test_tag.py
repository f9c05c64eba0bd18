"""Tagging. Oracles: CoNLL-U by hand, a NumPy softmax, a tiny learnable dataset, torchmetrics."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import multiclass_accuracy

from elmore.errors import InputError
from elmore.tasks import get_task, load_task, read_task_config, train_task
from elmore.tasks.config import ElmoConfig, WordsConfig
from elmore.tasks.tag.config import BiLSTMTaggerConfig
from elmore.tasks.tag.data import TagExample, read_tags
from elmore.tasks.tag.model import PredictedTag, Tagger
from elmore.tasks.vectors import WordVectors
from elmore.tasks.words import WordEncoder, WordIndex, Words
from tests.cli.conftest import assert_rejected

CONLLU = """\
# sent_id = 1
# text = They can't can a can.
1	They	they	PRON	PRP	_	4	nsubj	_	_
2-3	can't	_	_	_	_	_	_	_	_
2	ca	can	AUX	MD	_	4	aux	_	_
3	n't	not	PART	RB	_	4	advmod	_	_
4	can	can	VERB	VB	_	0	root	_	_
5	a	a	DET	DT	_	6	det	_	_
6	can	can	NOUN	NN	_	4	obj	_	SpaceAfter=No
6.1	null	_	_	_	_	_	_	_	_
7	.	.	PUNCT	.	_	4	punct	_	_

# newpar
1	#	#	SYM	$	_	0	root	_	_
2	10 000	10000	NUM	CD	_	1	nummod	_	_
"""
SMALL = [
    "words.dim=16", "words.min_count=1", "words.char_filters=0", "words.dropout=0.0",
    "tagger.hidden=16", "tagger.dropout=0.0", "training.lr=0.02", "training.epochs=30",
    "training.batch_size=2", "training.lr_patience=30", "elmo.dropout=0.0",
]  # fmt: skip


@pytest.fixture
def conllu(tmp_path: Path) -> Path:
    path = tmp_path / "tagged.conllu"
    path.write_text(CONLLU)
    return path


def test_reads_conllu(conllu: Path) -> None:
    tokens = ["They", "ca", "n't", "can", "a", "can", "."]
    first, second = read_tags(conllu)
    assert first == TagExample(tokens, ["PRON", "AUX", "PART", "VERB", "DET", "NOUN", "PUNCT"])
    assert second == TagExample(["#", "10 000"], ["SYM", "NUM"])
    xpos = ["PRP", "MD", "RB", "VB", "DT", "NN", "."]
    assert read_tags(conllu, column="xpos")[0].tags == xpos
    assert read_tags(conllu, column=5)[0].tags == xpos
    assert read_tags(conllu, column="deprel", word_column=3)[1] == TagExample(
        ["#", "10000"], ["root", "nummod"]
    )


def test_reads_other_columns(tmp_path: Path) -> None:
    path = tmp_path / "columns.conll"
    path.write_text("-DOCSTART- -X- O\n\n# NN B-NP\n1st JJ I-NP\n\n\nGo VB O\n")
    assert read_tags(path) == [
        TagExample(["#", "1st"], ["B-NP", "I-NP"]),
        TagExample(["Go"], ["O"]),
    ]
    assert [e.tags for e in read_tags(path, column=2)] == [["NN", "JJ"], ["VB"]]
    assert read_tags(path, column=3, word_column=2)[1] == TagExample(["VB"], ["O"])
    with pytest.raises(InputError, match="the column 'xpos' exists in CoNLL-U files only"):
        read_tags(path, column="xpos")


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("a X\nword\n", None, "line 2: expected a word in column 1 and its tag in the last column"),
        ("a X\nb Y\n", 3, "line 1: expected a word in column 1 and its tag in column 3, got 'a X'"),
        ("a\tX\nb\t\n", None, "line 2: expected a word"),
        (CONLLU.replace("\ta\ta\t", "\ta\t"), None, "line 8: .* nine more columns .* got '5 a DET"),
        (CONLLU.replace("7\t.", "x\t."), None, "line 11: expected a word id"),
        (CONLLU.replace("\tNUM", "\t_"), None, "line 15: '10 000' has no upos tag; try xpos"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, text: str, column: int | None, message: str) -> None:
    (tmp_path / "bad.conll").write_text(text)
    with pytest.raises(InputError, match=rf"bad\.conll, {message}"):
        read_tags(tmp_path / "bad.conll", column=column)


@pytest.mark.parametrize(
    "change", ["data.column=pos", "data.column=0", "data.word_column=0", "data.language=xx"]
)
def test_invalid_settings_are_rejected(change: str) -> None:
    name = change.split("=")[0].split(".")[1]
    with pytest.raises(InputError, match=name):
        read_task_config("tag", None, [change])


def test_tagger_applies_a_softmax_to_each_word() -> None:
    index = WordIndex(list("abc"), [])
    known = WordVectors([], np.zeros((0, 6), np.float32))
    words = Words(WordsConfig(), ElmoConfig(place="none"), index, known, num_layers=0, elmo_dim=0)
    model = Tagger(BiLSTMTaggerConfig(hidden=4, num_layers=1), words, ["X", "Y", "Z"]).eval()
    encode = WordEncoder(index, None, with_characters=False, device=torch.device("cpu"))
    examples = [TagExample(list("abca"), list("XYZX")), TagExample(list("cb"), ["Y", "unseen"])]
    batch = get_task("tag").collate(examples, encode, {"classes": model.tags})
    with torch.no_grad():
        predicted, loss = model.predict(batch), model(batch).item()
        losses = []
        for example, tags in zip(examples, predicted, strict=True):
            x = words.table.new[[index.row(token) for token in example.tokens]]
            scores = model.score(model.rnn.rnn(x[None])[0][0]).numpy()
            p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            assert [tag for tag, _ in tags] == [model.tags[i] for i in p.argmax(axis=1)]
            assert [q for _, q in tags] == pytest.approx(p.max(axis=1), abs=1e-6)
            known_tags = [
                (i, "XYZ".index(tag)) for i, tag in enumerate(example.tags) if tag in "XYZ"
            ]
            losses += [-np.log(p[at]) for at in known_tags]
    assert loss == pytest.approx(np.mean(losses), abs=1e-6)


def test_scores() -> None:
    """Oracles: torchmetrics for the accuracy, the other scores by hand."""
    task = get_task("tag")
    gold = [TagExample(["a", "b"], ["X", "Y"]), TagExample(["c", "d"], ["Y", "Z"])]
    predicted = [[PredictedTag(tag, 0.9) for tag in tags] for tags in ("XX", "YY")]
    ids = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 2])
    expected = multiclass_accuracy(*ids, num_classes=3, average="micro").item()
    assert task.score(gold, predicted) == {"accuracy": expected}
    assert task.scores_by_label(gold, predicted) == {
        "X": {"precision": 0.5, "recall": 1.0, "f1": 2 / 3, "support": 1},
        "Y": {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2},
        "Z": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1},
    }
    assert task.confusion_matrix(gold, predicted)["Y"] == {"X": 1, "Y": 1, "Z": 0}


def test_learns_and_reloads(run, conllu: Path, model: Path, tmp_path: Path) -> None:
    """The tag of "can" depends on the words around it."""
    changes = [*SMALL, "elmo.place=both", f"elmo.model={model}"]
    summary = train_task(
        "tag",
        tmp_path / "run",
        train=conllu,
        dev=conllu,
        test=conllu,
        config=read_task_config("tag", changes=changes),
        device="cpu",
        progress=False,
    )
    assert summary["scores"]["test"] == summary["scores"]["dev"] == {"accuracy": 1.0}
    assert summary["confusion"]["VERB"]["VERB"] == 1
    trained = load_task(tmp_path / "run", device="cpu")
    assert trained.evaluate(conllu) == {"accuracy": 1.0}
    actual = trained("They can't can a can.")
    assert json.loads(json.dumps(actual)) == actual
    assert actual["tokens"] == read_tags(conllu)[0].tokens
    assert actual["tags"] == read_tags(conllu)[0].tags
    assert [actual["text"][start:end] for start, end in actual["offsets"]] == actual["tokens"]
    assert all(0 < p <= 1 for p in actual["probabilities"])
    for command in (("predict", "--format", "task"), ("evaluate", "--json")):
        exact, rounded = (
            run(*command, tmp_path / "run", conllu, "--precision", precision, "--device", "cpu")
            for precision in ("fp32", "int8")
        )
        assert exact.code == rounded.code == 0
        assert (exact.out == rounded.out) == (command[0] == "evaluate")


def test_commands(run, conllu: Path, tmp_path: Path) -> None:
    folder, columns = tmp_path / "run", tmp_path / "columns.conll"
    columns.write_text("They PRP\ncan MD\n")
    data = ("--train", conllu, "--dev", columns, "--no-elmo", "-o", folder)
    settings = [part for change in SMALL for part in ("--set", change)]
    command = ("train", "tag", *data, *settings, "--set", "training.epochs=1")
    assert_rejected(run(*command, "--set", "data.column=xpos"), "exists in CoNLL-U files only")
    # By default, upos and the last column, in which no tag is known.
    assert_rejected(run(*command), "the model knows none of the labels")
    assert run(*command[:4], "--dev", conllu, *command[6:], "--set", "data.column=xpos").code == 0
    result = run("evaluate", folder, conllu)
    assert "gold \\ predicted" in result.out
    assert "MD" in result.out
    text = tmp_path / "text.txt"
    text.write_text("They can [can].\n")
    assert json.loads(run("predict", folder, text).out)["tokens"] == [
        "They",
        "can",
        "[",
        "can",
        "]",
        ".",
    ]
    trained = load_task(folder, device="cpu")
    example = trained.parse("They can.", trained.tokenizer("whitespace"))
    assert example.tokens == ["They", "can."]
    [prediction] = trained.predict([example])
    assert "They" in trained.task.show(example, prediction)


def test_korean_treebank_is_read_as_it_is(tasks: Path) -> None:
    """Oracle: the number of sentences in the file."""
    path = tasks / "ko" / "ko_gsd-ud-dev.conllu.xz"
    if not path.exists():
        pytest.skip("no Korean treebank")
    examples = read_tags(path)
    assert len(examples) == 950
    assert examples[0].tags == ["ADV", "ADJ", "NOUN", "ADV", "ADJ"]
