"""Question answering. Oracles: gold answers of the training data, known offsets and counts."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from elmore.errors import InputError
from elmore.tasks import get_task, load_task, read_task_config, train_task
from elmore.tasks.qa.data import QaExample, read_questions
from elmore.tasks.qa.model import Answer
from elmore.tasks.qa.task import Qa
from elmore.tasks.qa.tokens import tokenize
from elmore.text.tokenize import get_tokenizer
from tests.cli.conftest import assert_rejected

SMALL = [
    "words.dim=16", "words.min_count=1", "words.char_filters=4", "reader.hidden=12",
    "reader.dropout=0", "elmo.dropout=0", "training.lr=0.01", "training.lr_patience=40",
    "training.epochs=40", "training.average=0.5", "training.patience=40", "training.batch_size=3",
]  # fmt: skip
ADA = "Ada Lovelace, born in London (1815), was the first programmer. She died in London."
ART = "A party-goer likes art; the art of 1,000 parties."


def qa(context: str, question: str, *answers: str) -> dict[str, Any]:
    """A question with one gold answer per occurrence of each string in the context."""
    gold = [
        {"text": text, "answer_start": i}
        for text in answers
        for i in range(len(context))
        if context.startswith(text, i)
    ]
    return {"id": question, "question": question, "answers": gold}


def squad(*paragraphs: tuple[str, list[dict[str, Any]]]) -> dict[str, Any]:
    items = [{"context": context, "qas": qas} for context, qas in paragraphs]
    return {"version": "1.1", "data": [{"title": "all", "paragraphs": items}]}


DATA = squad(
    (
        ADA,
        [
            qa(ADA, "Where was she born?", "London"),
            qa(ADA, "When was she born?", "1815", "(1815)"),
            qa(ADA, "Who was she?", "the first programmer"),
        ],
    ),
    (ART, [qa(ART, "What is liked?", "art"), qa(ART, "How many parties?", "1,000")]),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(DATA))
    return path


def texts_of(example: QaExample) -> list[str]:
    return [example.passage.text_of(span) for span in example.spans]


def test_answers_become_token_spans(file: Path) -> None:
    born, when, who, liked, _ = read_questions(file)
    assert born.question.words == ["Where", "was", "she", "born", "?"]
    assert born.passage is when.passage is who.passage
    assert born.spans == [(5, 6), (18, 19)]  # both occurrences
    assert texts_of(when) == ["(1815)", "1815"]
    assert when.answers == ["1815", "(1815)"]
    assert texts_of(who) == ["the first programmer"]
    assert liked.answers == ["art"] * 4  # including those in "party" and "parties"
    assert texts_of(liked) == ["art", "art"]


def test_partial_words_are_extended_to_tokens(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(squad(("Moldavian kings", [qa("Moldavian kings", "?", "Mold")]))))
    [example] = read_questions(path)
    assert texts_of(example) == ["Moldavian"]
    assert example.answers == ["Mold"]


def test_long_passages_are_truncated_for_training_only(file: Path) -> None:
    task = Qa()
    config = read_task_config("qa", changes=["reader.max_passage=9"])
    # The second "London", the programmer and "1,000" are beyond the limit.
    truncated = task.read(file, config, training=True)
    assert [example.question.words[0] for example in truncated] == ["Where", "When", "What"]
    assert truncated[0].spans == [(5, 6)]
    assert len(truncated[0].passage.words) == 9
    full = task.read(file, config)
    assert [example.spans for example in full] == [e.spans for e in read_questions(file)]
    assert full[0].passage.text == truncated[0].passage.text == ADA


def damaged(**changes: Any) -> dict[str, Any]:
    item = {**qa(ADA, "Who?", "Ada"), **changes}
    return squad((ADA, [{name: value for name, value in item.items() if value is not ...}]))


AT = r"x\.json: data\[0\]\.paragraphs\[0\]"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r"x\.json: expected an object with 'data', got \[\]"),
        ({}, r"x\.json: data: expected a list, but it is missing"),
        ({"data": [3]}, r"x\.json: data\[0\]: expected an object with 'paragraphs', got 3"),
        (squad((3, [])), rf"{AT}\.context: expected a string, got 3"),
        (squad((" ", [])), rf"{AT}\.context: expected a text, got ' '"),
        (squad((ADA, None)), rf"{AT}\.qas: expected a list, got None"),
        (damaged(question=...), rf"{AT}\.qas\[0\]\.question: expected a string, but it is missing"),
        (damaged(question=""), rf"{AT}\.qas\[0\]\.question: expected a question, got ''"),
        (damaged(answers=[]), r"\.qas\[0\]\.answers: expected at least one; in SQuAD 1.1"),
        (
            damaged(answers=[{"text": "Ada"}]),
            r"\.answers\[0\]\.answer_start: expected an integer, but it is missing",
        ),
        (
            damaged(answers=[{"text": "Ada", "answer_start": True}]),
            r"\.answers\[0\]\.answer_start: expected an integer, got True",
        ),
        (
            damaged(answers=[{"text": "Ada", "answer_start": 4}]),
            r"answer_start: expected the offset of 'Ada' .* got 4, where .* 'Lov'",
        ),
        (
            damaged(answers=[{"text": "London.", "answer_start": -7}]),
            r"offset of 'London.' .* got -7, where the context has ''",
        ),
        (
            damaged(answers=[{"text": " ", "answer_start": 3}]),
            r"\.answers\[0\]\.text: expected words of the context, got ' '",
        ),
    ],
)
def test_errors_name_the_field(tmp_path: Path, content: Any, message: str) -> None:
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        read_questions(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", b'{"data": [', "expected JSON in the format of SQuAD 1.1 .*line 1 column"),
        ("x.json", b"\xff\xff", "expected JSON in the format of SQuAD 1.1"),
        ("x.json.xz", b"not xz", "damaged file"),
        ("x.json.gz", b"\x1f\x8b\x08\0", "damaged file"),
        ("x.json.gz", b"not gzip", "damaged file"),
    ],
)
def test_damaged_files_are_rejected(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_questions(tmp_path / name)


def test_missing_file_is_not_reported_as_damaged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_questions(tmp_path / "x.json.xz")


@pytest.mark.parametrize(("place", "seed"), [("none", 4), ("both", 0)])
def test_learns_and_reloads(file: Path, model: Path, tmp_path: Path, place: str, seed: int) -> None:
    changes = [*SMALL, f"elmo.place={place}", f"elmo.model={model}", f"training.seed={seed}"]
    config = read_task_config("qa", changes=changes)
    folder = tmp_path / "run"
    summary = train_task("qa", folder, train=[file], dev=file, config=config, device="cpu")
    assert summary["scores"]["dev"] == {"f1": 1, "em": 1}
    assert sorted(summary["elmo"]) == ([] if place == "none" else ["input", "output"])
    trained, reloaded = load_task(folder, device="cpu"), load_task(folder, device="cpu")
    assert trained.evaluate(file) == summary["scores"]["dev"]
    examples = read_questions(file)
    together = trained.predict(examples)
    assert reloaded.predict(examples) == together
    for example, actual in zip(examples, together, strict=True):
        assert trained.predict([example])[0][:3] == actual[:3]
        assert actual.text in example.answers


def test_predict_command(file: Path, tmp_path: Path, run: Any) -> None:
    folder = tmp_path / "run"
    changes = [f"--set={change}" for change in [*SMALL, "training.epochs=1"]]
    train = ["train", "qa", "--train", file, "--dev", file, "-o", folder, "--device", "cpu"]
    assert run(*train, "--no-elmo", *changes).code == 0
    questions = tmp_path / "questions.txt"
    as_json = [
        json.dumps({"question": "Where was she born?", key: ADA}) for key in ("context", "passage")
    ]
    questions.write_text("\n".join([f"What is liked?\t{ART}", *as_json]))
    result = run("predict", folder, questions, "--device", "cpu")
    assert result.code == 0, result.err
    first, second, third = map(json.loads, result.out.splitlines())
    assert second == third
    assert first["question"] == "What is liked?"
    for actual, passage in ((first, ART), (second, ADA)):
        assert passage[actual["start"] : actual["end"]] == actual["answer"]
        assert 0 < actual["probability"] <= 1
    qa = load_task(folder, device="cpu")
    second["probability"] = pytest.approx(second["probability"], abs=1e-6)
    assert qa("Where was she born?", ADA) == second
    by_name = {"question": "Where was she born?", "passage": ADA}
    assert qa(by_name) == second
    assert qa([by_name, ("Where was she born?", ADA)]) == [second] * 2
    for wrong, message in (
        ({"question": "Where?", "context": ADA}, "question and passage, got question, context"),
        ({}, "question and passage, got no keys"),
        ({"question": "Where?", "passage": 3}, "expected a passage, got 3"),
    ):
        with pytest.raises(InputError, match=message):
            qa(wrong)
    assert next(qa(iter([("Where was she born?", f"{ADA}\nShe lived.")])))["answer"]
    questions.write_text("Where was she born?\n")
    [line] = run("predict", folder, questions, "--device", "cpu").out.splitlines()
    assert json.loads(line)["error"].startswith("expected question<TAB>passage")
    assert_rejected(
        run("predict", folder, questions, "--tokenizer", "moses"), "moses cannot be used"
    )


@pytest.mark.parametrize(
    "line",
    [
        "no tab",
        "\tpassage",
        "question\t ",
        "{",
        '{"question": "Q"}',
        '{"question": "Q", "passage": null}',
        '{"question": 1, "context": 2}',
    ],
)
def test_invalid_lines_are_rejected(line: str) -> None:
    with pytest.raises(InputError, match=r"expected (question<TAB>|a question|a passage)"):
        get_task("qa").parse(line, get_tokenizer())


def test_show_highlights_the_answer_in_the_passage() -> None:
    passage = "See [a] or [bold]b[/bold] \\ x"
    example = QaExample(tokenize("Which [x]?"), tokenize(passage), [], [])
    start = passage.index("[bold]")
    answer = Answer("[bold]b", start, start + 7, 0.5)
    shown = Text.from_markup(Qa().show(example, answer))
    assert shown.plain == "Which [x]? (50%)\nSee [a] or [[bold]b][/bold] \\ x"
    [highlight] = [span for span in shown.spans if span.style == "bold green"]
    assert shown.plain[highlight.start : highlight.end] == "[[bold]b]"


@pytest.mark.parametrize(
    ("change", "message"),
    [("hidden=0", "reader.hidden must be at least 1"), ("dropout=1", "reader.dropout must lie in")],
)
def test_invalid_settings_are_rejected(change: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_task_config("qa", changes=[f"reader.{change}"])


def test_squad_has_the_published_count_and_its_answers_align_with_tokens(tasks: Path) -> None:
    examples = read_questions(tasks / "squad" / "dev-v1.1.json.xz")
    assert len(examples) == 10_570
    exact = sum(any(text in e.answers for text in texts_of(e)) for e in examples)
    assert exact / len(examples) > 0.99
