"""Coreference, from files to predictions. Oracle: documents with known clusters."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.markup import render

from elmore.errors import InputError
from elmore.tasks import get_task, load_task, read_task_config, train_task
from elmore.tasks.coref.data import CorefExample
from elmore.tasks.coref.task import Coref
from elmore.tasks.spans import Span

STORIES = [
    ("bc/a", "Ada|1 met|- Bob|2 .|-", "She|1 knew|- him|2 .|-"),
    ("bc/b", "Eve|1 saw|- Max|2 .|-", "It|2 barked|- .|-", "She|1 ran|- .|-"),
    ("nw/c", "Max|1 met|- Bob|2 .|-", "He|2 ran|- .|-", "It|1 purred|- .|-"),
    ("nw/d", "Bob|1 slept|- .|-", "Ada|2 woke|- him|1 .|-", "Then|- she|2 left|- .|-"),
    ("nw/e", "It|- rained|- .|-", "The|- end|- .|-"),
]


def columns(word: str, cluster: str) -> str:
    brackets = f"({cluster})" if cluster.isdigit() else cluster
    return f"doc 0 0 {word} - * - - - - * {brackets}"


def write_stories(path: Path) -> Path:
    lines = []
    for name, *sentences in STORIES:
        lines.append(f"#begin document ({name}); part 000")
        for sentence in sentences:
            lines += [columns(*word.split("|")) for word in sentence.split()] + [""]
        lines.append("#end document")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


SMALL = [
    "words.dim=40", "words.min_count=1", "words.dropout=0", "words.char_filters=0",
    "elmo.dropout=0", "ranker.hidden=30", "ranker.ffnn_hidden=50", "ranker.feature_dim=4",
    "ranker.max_width=2", "ranker.spans_per_word=3.0", "ranker.rnn_dropout=0", "ranker.dropout=0",
    "training.lr=0.003", "training.lr_patience=99", "training.patience=99", "training.epochs=40",
]  # fmt: skip


@pytest.mark.parametrize("place", ["none", "both"])
def test_learns_and_reloads(place: str, tmp_path: Path, model: Path) -> None:
    path = write_stories(tmp_path / "stories.conll")
    config = read_task_config("coref", None, [*SMALL, f"elmo.place={place}", f"elmo.model={model}"])
    summary = train_task("coref", tmp_path / "run", train=[path], dev=path, config=config)
    assert summary["scores"]["dev"]["average"] > 0.95

    trained = load_task(tmp_path / "run")
    examples = trained.task.read(path, trained.config)
    assert trained.evaluate(path) == summary["scores"]["dev"]
    first = trained.predict(examples)[0]
    assert list(map(list, first)) == examples[0].clusters
    assert all(0 < p <= 1 for cluster in first for p in cluster.values())
    example = trained.task.parse("Ada met Bob. She knew him. He smiled.", str.split)
    [answer] = trained.predict([example])  # no genre, and unknown words such as `Bob.`
    assert json.loads(json.dumps(trained.task.as_json(example, answer, trained.config)))


EXAMPLE = CorefExample("", "", [["The", "man", "of", "[sea]"], ["It", "saw", "him"]], ["-"] * 7, [])
PREDICTED = [{Span(0, 4): 0.9, Span(6, 7): 0.8}, {Span(3, 4): 0.7, Span(4, 5): 0.6}]


def test_show_brackets_mentions_with_cluster_numbers() -> None:
    shown = Coref().show(EXAMPLE, PREDICTED)
    assert render(shown).plain == "[1 The man of [2 [sea]]]\n[2 It] saw [1 him]"


def test_json_has_the_span_and_text_of_each_mention() -> None:
    actual: dict[str, Any] = Coref().as_json(EXAMPLE, PREDICTED, Coref.config())
    assert actual["sentences"] == EXAMPLE.sentences
    assert actual["text"] == "The man of [sea] It saw him"
    assert [[tuple(mention.values()) for mention in c] for c in actual["clusters"]] == [
        [(0, 4, "The man of [sea]", 0, 16, 0.9), (6, 7, "him", 24, 27, 0.8)],
        [(3, 4, "[sea]", 11, 16, 0.7), (4, 5, "It", 17, 19, 0.6)],
    ]
    assert list(actual["clusters"][0][0]) == [
        "start", "end", "text", "start_char", "end_char", "probability",
    ]  # fmt: skip


def test_offsets_are_those_of_the_raw_text() -> None:
    example = Coref().parse("Ada ran.  She hid.", str.split)
    actual = Coref().as_json(example, [{Span(0, 1): 1.0, Span(2, 3): 1.0}], Coref.config())
    assert [m["text"] for m in actual["clusters"][0]] == ["Ada", "She"]
    assert [m["start_char"] for m in actual["clusters"][0]] == [0, 10]


def test_parse_splits_a_line_into_sentences() -> None:
    example = Coref().parse("Mr. Fox ran. He hid!", str.split)
    assert example.sentences == [["Mr.", "Fox", "ran."], ["He", "hid!"]]
    assert len(example.speakers) == 5


def test_long_documents_are_split_for_training_only(tmp_path: Path) -> None:
    path = write_stories(tmp_path / "stories.conll")
    config = read_task_config("coref", None, ["ranker.max_sentences=2"])
    assert len(get_task("coref").read(path, config)) == 5
    parts = get_task("coref").read(path, config, training=True)
    assert len(parts) == 8
    assert all(len(part.sentences) <= 2 for part in parts)


@pytest.mark.parametrize(
    "change", ["max_width=0", "max_antecedents=0", "dropout=1.0", "spans_per_word=0.0"]
)
def test_invalid_settings_are_rejected(change: str) -> None:
    with pytest.raises(InputError, match=change.partition("=")[0]):
        read_task_config("coref", None, [f"ranker.{change}"])
