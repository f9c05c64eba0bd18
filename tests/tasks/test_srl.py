"""SRL. Oracles: frames and scores by hand, enumeration of tag sequences, batches of one."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.text import Text

from elmore.errors import InputError
from elmore.tasks import get_task, load_task, read_task_config, train_task
from elmore.tasks.conll2012 import read_documents
from elmore.tasks.spans import LabeledSpan
from elmore.tasks.srl.data import SrlExample, read_frames
from elmore.tasks.srl.task import Srl

S = LabeledSpan
SMALL = (
    "words.dim=16",
    "labeler.hidden=16",
    "labeler.num_layers=2",
    "labeler.predicate_dim=8",
    "labeler.dropout=0.0",
    "training.optimizer=adam",
    "training.lr=0.02",
    "training.batch_size=6",
    "training.epochs=12",
)

CONLL = """\
#begin document (bc/news/0001); part 000
bc/news/0001  0  0  She     PRP  (TOP(S(NP*)  -     -   -  Ann  *  (ARG0*)  *          (7)
bc/news/0001  0  1  gave    VBD  (VP*         give  01  1  Ann  *  (V*      *          -
bc/news/0001  0  2  up      RP   *            -     -   -  Ann  *  *)       *          -
bc/news/0001  0  3  the     DT   (NP*         -     -   -  Ann  *  (ARG1*   (R-ARG0*)  (8
bc/news/0001  0  4  ruling  VBG  *            rule  01  -  Ann  *  *        (V*)       -
bc/news/0001  0  5  house   NN   *)           -     -   -  Ann  *  *)       (C-ARG1*)  8)

bc/news/0001  0  0  Yes     UH   (TOP*)       -     -   -  Ann  *  -

#end document
#begin document (bc/news/0001); part 001
bc/news/0001  1  0  Go      VB   (TOP*)       -     -   -  -    *  (V*)     -
#end document
"""
FRAMES = [
    SrlExample(
        ["She", "gave", "up", "the", "ruling", "house"],
        1,
        [S("ARG0", 0, 1), S("V", 1, 3), S("ARG1", 3, 6)],
    ),
    SrlExample(["Go"], 0, [S("V", 0, 1)]),
]


def write(path: Path, text: str, old: str = "", new: str = "") -> Path:
    assert old in text
    path.write_text(text.replace(old, new, 1) if old else text, encoding="utf-8")
    return path


def test_reads_frames_from_columns(tmp_path: Path) -> None:
    first, second, third = read_frames(write(tmp_path / "a.conll", CONLL))
    assert [first, third] == FRAMES
    assert second.tokens == first.tokens
    assert second.predicate == 4
    assert second.roles == [
        S("R-ARG0", 3, 4),
        S("V", 4, 5),
        S("C-ARG1", 5, 6),
    ]


def test_tabs_and_document_lines_are_optional(tmp_path: Path) -> None:
    frames = read_frames(write(tmp_path / "a.conll", CONLL))
    lines = ["\t".join(line.split()) if line[:2] == "bc" else line for line in CONLL.splitlines()]
    rows = [line for line in lines if not line.startswith("#")]
    rows.insert(-1, "")  # these sentences were separated by document lines only
    for variant in (lines, rows, lines[:-1]):
        assert read_frames(write(tmp_path / "b.conll", "\n".join(variant))) == frames


def test_documents_keep_names_and_line_numbers(tmp_path: Path) -> None:
    first, second = read_documents(write(tmp_path / "a.conll", CONLL))
    assert (first.name, second.name) == ("(bc/news/0001); part 000", "(bc/news/0001); part 001")
    numbers = [[row.number for row in rows] for d in (first, second) for rows in d.sentences]
    assert numbers == [[2, 3, 4, 5, 6, 7], [9], [13]]
    assert first.sentences[0][1].columns[6:8] == ["give", "01"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(R-ARG0*)", "(R-ARG0*", r"line 6, column 13: expected roles .* got '\(V\*\)'"),
        ("(C-ARG1*)", "(C-ARG1*", "line 7, column 13: C-ARG1 is not closed"),
        ("(C-ARG1*)", "*)", r"line 7, column 13: .* got '\*\)'"),
        ("(C-ARG1*)", "(A(B*)", r"line 7, column 13: .* got '\(A\(B\*\)'"),
        ("(C-ARG1*)", "C-ARG1", "line 7, column 13: .* got 'C-ARG1'"),
        ("(V*)  ", "(W*)  ", "line 2, column 13: expected one predicate, .* found 0"),
        ("(C-ARG1*)", "(V*)", "line 2, column 13: expected one predicate, .* found 2"),
        ("  *)  ", "  ", "line 4: expected 14 columns, .* got 13"),
        ("Yes     UH", "Yes", "line 9: expected at least 12 columns of CoNLL-2012, .* got 11"),
    ],
)
def test_errors_name_line_and_column(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"a\.conll, {message}"):
        read_frames(write(tmp_path / "a.conll", CONLL, old, new))


@pytest.mark.parametrize(("part", "frames"), [("train", 40_429), ("dev", 4_963), ("test", 4_795)])
def test_web_treebank_has_the_published_counts(tasks: Path, part: str, frames: int) -> None:
    assert len(read_frames(tasks / "srl" / f"ewt.{part}.conll.xz")) == frames


def test_long_sentences_are_excluded_from_training(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", CONLL)
    config = read_task_config("srl", changes=["labeler.max_length=5"])
    assert len(Srl().read(path, config)) == 3
    assert len(Srl().read(path, config, training=True)) == 1


V = S("V", 1, 2)


@pytest.mark.parametrize(
    ("gold", "predicted", "correct", "num_predicted", "num_gold"),
    [
        ([V, S("ARG0", 0, 1)], [V, S("ARG0", 0, 1)], 1, 1, 1),
        ([V], [V], 0, 0, 0),  # the predicate does not count
        ([V, S("ARG0", 0, 1)], [V], 0, 0, 1),
        ([V], [S("V", 1, 3), S("ARG0", 0, 1)], 0, 1, 0),
        ([V, S("ARG0", 0, 1)], [V, S("ARG1", 0, 1)], 0, 1, 1),  # wrong label
        ([V, S("ARG1", 2, 5)], [V, S("ARG1", 2, 4)], 0, 1, 1),  # wrong end
        # Two roles with the same label are two arguments.
        ([V, S("A", 2, 3), S("A", 3, 4)], [V, S("A", 2, 4)], 0, 1, 2),
        # A reference is a separate argument; a continuation belongs to the preceding one.
        (
            [V, S("A", 0, 1), S("R-A", 2, 3)],
            [V, S("R-A", 2, 3)],
            1,
            1,
            2,
        ),
        (
            [S("A", 0, 1), V, S("C-A", 2, 3)],
            [S("A", 0, 1), V, S("C-A", 2, 3)],
            1,
            1,
            1,
        ),
        (
            [S("A", 0, 1), V, S("C-A", 2, 3)],
            [S("A", 0, 1), V],
            0,
            1,
            1,
        ),
        (
            [S("A", 0, 1), V, S("C-A", 2, 3)],
            [S("A", 0, 1), V, S("A", 2, 3)],
            0,
            2,
            1,
        ),
        ([V, S("C-A", 2, 3)], [V, S("A", 2, 3)], 1, 1, 1),  # nothing to continue
        ([V, S("C-V", 3, 4)], [V, S("C-V", 2, 4)], 0, 0, 0),
        (
            [S("A", 0, 1), V, S("A", 2, 3), S("C-A", 4, 5)],
            [S("A", 0, 1), V, S("A", 2, 3)],
            1,
            2,
            2,
        ),
    ],
)
def test_scores_follow_the_conll_2005_scorer(
    gold: list[S], predicted: list[S], correct: int, num_predicted: int, num_gold: int
) -> None:
    """Oracle: the rules of srl-eval.pl, applied by hand.

    A second example, with 3 correct of 5 predicted and 4 gold arguments, avoids division by zero.
    """
    four = [V, *(S("ARGM", n, n + 1) for n in range(2, 6))]
    five = [V, *four[1:4], S("ARGM", 6, 7), S("ARGM", 7, 8)]
    examples = [SrlExample(["x"] * 8, 1, gold), SrlExample(["x"] * 8, 1, four)]
    scores = Srl().score(examples, [predicted, five])
    precision, recall = (correct + 3) / (num_predicted + 5), (correct + 3) / (num_gold + 4)
    expected = {"precision": precision, "recall": recall}
    expected["f1"] = 2 * precision * recall / (precision + recall)
    assert scores == pytest.approx(expected)


def test_confusion_matrix_compares_whole_arguments() -> None:
    """Oracle: counts by hand. The predicate is excluded; A is found only with its continuation."""
    gold = [V, S("A", 0, 1), S("C-A", 4, 5), S("B", 5, 6)]
    predicted = {V: 0.9, S("A", 0, 1): 0.9, S("C", 5, 6): 0.9}
    matrix = Srl().confusion_matrix([SrlExample(["x"] * 8, 1, gold)], [predicted])
    assert {label: {k: n for k, n in row.items() if n} for label, row in matrix.items()} == {
        "A": {"O": 1},
        "B": {"C": 1},
        "C": {},
        "O": {"A": 1},
    }


AGENTS = ("Ann", "Bob", "the old man", "she")
THEMES = ("a book", "the red car", "him")


def cells(*parts: tuple[str, str]) -> list[tuple[str, str]]:
    """[("ARG1", "a book")] -> a (ARG1*, book *)."""
    rows = []
    for label, text in parts:
        words = text.split()
        for n, word in enumerate(words):
            start = f"({label}" if label and n == 0 else ""
            end = ")" if label and n == len(words) - 1 else ""
            rows.append((word, f"{start}*{end}"))
    return rows


def sentence(*frames: list[tuple[str, str]]) -> str:
    """The rows of a sentence with one column per frame."""
    rows = []
    for n, row in enumerate(zip(*frames, strict=True)):
        roles = [role for _, role in row]
        lemma = "verb" if "(V*)" in roles else "-"
        rows.append(" ".join(["d", "0", str(n), row[0][0], "X", "*", lemma, "01", *"--*", *roles]))
    return "".join(f"{row} -\n" for row in rows) + "\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two predicates per sentence, so that roles depend on the predicate."""
    text = "#begin document (d); part 000\n"
    for a, b, theme in itertools.product(AGENTS, AGENTS[:3], THEMES):
        says = cells(("ARG0", a), ("V", "says"), ("ARG1", f"{b} took {theme}"), ("", "."))
        takes = cells(("", f"{a} says"), ("ARG0", b), ("V", "took"), ("ARG1", theme), ("", "."))
        text += sentence(says, takes)
    path = tmp_path_factory.mktemp("srl") / "train.conll"
    path.write_text(f"{text}#end document\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def baseline(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("run") / "srl"
    config = read_task_config("srl", changes=[*SMALL, "elmo.place=none"])
    return folder, train_task(
        "srl", folder, train=[corpus], dev=corpus, test=corpus, config=config, device="cpu"
    )


def test_learns_roles(corpus: Path, baseline: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = baseline
    assert summary["scores"]["test"]["f1"] > 0.99
    assert summary["train_examples"] == 2 * 4 * 3 * 3
    assert load_task(folder, device="cpu").evaluate(corpus) == summary["scores"]["test"]


def test_predicted_roles_belong_to_the_predicate_in_brackets(
    baseline: tuple[Path, dict[str, Any]],
) -> None:
    trained = load_task(baseline[0], device="cpu")
    lines = ["Ann [says] Bob took a book .", "Ann says Bob [took] a book ."]
    examples = [trained.task.parse(line, str.split) for line in lines]
    predictions = trained.predict(examples)
    assert all(0.5 < p <= 1 for roles in predictions for p in roles.values())
    assert list(map(list, predictions)) == [
        [S("ARG0", 0, 1), S("V", 1, 2), S("ARG1", 2, 6)],
        [S("ARG0", 2, 3), S("V", 3, 4), S("ARG1", 4, 6)],
    ]


def test_learns_roles_with_elmo(corpus: Path, tmp_path: Path, model: Path) -> None:
    changes = [*SMALL, "elmo.place=both", f"elmo.model={model}", "elmo.dropout=0.0"]
    config = read_task_config("srl", changes=changes)
    folder = tmp_path / "run"
    summary = train_task("srl", folder, train=[corpus], dev=corpus, config=config, device="cpu")
    assert summary["scores"]["dev"]["f1"] > 0.95
    assert set(summary["elmo"]) == {"input", "output"}
    # Training used cached layers in half precision, evaluation computes them in full precision.
    predicted = load_task(folder, device="cpu").evaluate(corpus)
    assert predicted == pytest.approx(summary["scores"]["dev"], abs=0.01)


def test_batch_equals_separate_examples(
    corpus: Path, baseline: tuple[Path, dict[str, Any]]
) -> None:
    task, _, labels, model, encode = load_task(baseline[0], device="cpu")
    examples = sorted(read_frames(corpus), key=lambda e: len(e.tokens))
    batch_examples = [examples[-1], examples[0], examples[30]]
    together = task.collate(batch_examples, encode, labels)
    separate = [task.collate([example], encode, labels) for example in batch_examples]
    with torch.no_grad():
        losses = torch.stack([model(batch) for batch in separate])
        torch.testing.assert_close(model(together), losses.mean())
        for row, batch in zip(model._scores(together), separate, strict=True):
            [expected] = model._scores(batch)
            torch.testing.assert_close(row[: len(expected)], expected)
    assert model.predict(together) == [p for batch in separate for p in model.predict(batch)]


def test_predicted_tags_are_the_best_valid_sequence(
    baseline: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: enumeration of all tag sequences."""
    task, _, labels, model, encode = load_task(baseline[0], device="cpu")
    tags = labels["tags"]
    assert tags == ["O", "B-ARG0", "I-ARG0", "B-ARG1", "I-ARG1", "B-V", "I-V"]
    batch = task.collate([SrlExample(["Ann", "says", "so"], 1, [])] * 20, encode, labels)
    scores = 3 * torch.randn(20, 3, len(tags))
    monkeypatch.setattr(model, "_scores", lambda _: scores)

    def valid(path: tuple[int, ...]) -> bool:
        names = ["O", *(tags[tag] for tag in path)]
        return all(
            not now.startswith("I-") or (before != "O" and before[2:] == now[2:])
            for before, now in itertools.pairwise(names)
        )

    paths = [p for p in itertools.product(range(len(tags)), repeat=3) if valid(p)]
    assert len(paths) < len(tags) ** 3
    for row, roles in zip(scores, model.predict(batch), strict=True):
        best = max(paths, key=lambda p: sum(float(row[t, tag]) for t, tag in enumerate(p)))
        predicted = task.as_json(SrlExample(["Ann", "says", "so"], 1, []), roles, None)
        assert predicted["tags"] == [tags[tag] for tag in best]


def test_input_line_json_and_terminal_output() -> None:
    task = get_task("srl")
    example = task.parse("She [gave] him a book .", str.split)
    line = "She [gave] him a book ."
    assert example == SrlExample(["She", "gave", "him", "a", "book", "."], 1, [], line)
    roles = {S("ARG0", 0, 1): 0.9, V: 0.8, S("ARG2", 2, 3): 0.7, S("ARG1", 3, 5): 0.6}
    fields = ("label", "start", "end", "text", "start_char", "end_char", "probability")
    expected = [
        ("ARG0", 0, 1, "She", 0, 3, 0.9),
        ("V", 1, 2, "gave", 5, 9, 0.8),
        ("ARG2", 2, 3, "him", 11, 14, 0.7),
        ("ARG1", 3, 5, "a book", 15, 21, 0.6),
    ]
    assert task.as_json(example, roles, None) == {
        "text": line,
        "tokens": example.tokens,
        "predicate": 1,
        "roles": [dict(zip(fields, values, strict=True)) for values in expected],
        "tags": ["B-ARG0", "B-V", "B-ARG2", "B-ARG1", "I-ARG1", "O"],
    }
    plain = Text.from_markup(task.show(example, roles)).plain
    assert plain == "[ARG0 She] [V gave] [ARG2 him] [ARG1 a book] ."


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("She gave him a book .", r"expected one word in brackets, found 0 .* \[gave\]"),
        ("She [gave] [him] a book .", "expected one word in brackets, found 2"),
        ("She [gave him] a book .", "expected one word in the brackets, found 2: gave him"),
    ],
)
def test_input_line_needs_one_predicate_in_brackets(line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        get_task("srl").parse(line, str.split)


@pytest.mark.parametrize("change", ["labeler.num_layers=0", "labeler.dropout=1.0"])
def test_invalid_settings_are_rejected(change: str) -> None:
    with pytest.raises(InputError, match=change.split("=")[0]):
        read_task_config("srl", changes=[change])
