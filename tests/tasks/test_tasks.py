"""Names of tasks, and reports. Oracles: the folders under `src/elmore/tasks`; tables by hand."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import elmore.tasks
from elmore.errors import InputError
from elmore.tasks import TASKS, get_task, read_task_config
from elmore.tasks.show import show_report
from tests.cli.conftest import assert_rejected


def test_every_task_folder_is_listed_under_its_name() -> None:
    folders = Path(elmore.tasks.__file__).parent.glob("*/task.py")
    assert sorted(path.parent.name for path in folders) == list(TASKS)
    assert [get_task(name).name for name in TASKS] == list(TASKS)


@pytest.mark.parametrize("function", [get_task, read_task_config])
def test_unknown_task_error_lists_the_known_tasks(function: Callable[[str], object]) -> None:
    with pytest.raises(
        InputError, match=r"unknown task 'nerr'; expected one of .*coref, entailment.*tag"
    ):
        function("nerr")


MODULE = """
from elmore.tasks.classify.task import Classify


class Lower(Classify):
    name = "lower"

    def parse(self, line, tokenize):
        return super().parse(line.lower(), tokenize)


TASK = Lower()
NUMBER = 5
"""


def test_task_of_the_users_own_module(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the module's parser, which changes the text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.setitem(sys.modules, "my_tasks", None)  # so that the import is undone
    del sys.modules["my_tasks"]
    Path("my_tasks.py").write_text(MODULE)
    Path("data.tsv").write_text("a\tone\nb\ttwo\n")
    data = ("--train", "data.tsv", "--dev", "data.tsv", "--no-elmo", "-o", "run")
    settings = ("--set", "training.epochs=1", "--set", "network.hidden=4", "--device", "cpu")
    assert run("train", "my_tasks:TASK", *data, *settings).code == 0
    own = ("--task", "my_tasks:TASK")
    assert "accuracy" in run("evaluate", "run", "data.tsv", *own).out
    Path("text.txt").write_text("ONE Two\n")
    assert json.loads(run("predict", "run", "text.txt", *own).out)["tokens"] == ["one", "two"]
    trained = elmore.tasks.load("run", task="my_tasks:TASK", device="cpu")
    assert type(trained.task).__name__ == "Lower"
    message = "run was trained with a task of yours, my_tasks:TASK; pass it as task"
    assert_rejected(run("predict", "run", "text.txt"), message)
    assert get_task("my_tasks:Lower").name == "lower"
    for name, message in {
        "my_tasks:NUMBER": "my_tasks:NUMBER is int; expected an elmore.tasks.task.Task",
        "my_tasks:MISSING": "has no attribute 'MISSING'",
        "missing:TASK": "cannot import the task missing:TASK: No module named 'missing'",
        ":TASK": "cannot import the task :TASK",
        "lower": "unknown task 'lower'; expected one of classify",
    }.items():
        assert_rejected(run("train", name, *data, *settings, "--overwrite"), message)


def test_report_is_shown_as_tables() -> None:
    """Oracle: tables by hand."""
    report = {
        "average": 0.5,
        "muc_f1": 0.25,
        "mentions_f1": 1.0,
        "muc_precision": 0.5,
        "mentions_precision": 1.0,
        "muc_recall": 0.125,
        "mentions_recall": 1.0,
        "confusion": {"a": {"a": 12, "b": 0}, "b": {"a": 1, "b": 2}},
    }
    assert show_report(report).splitlines() == [
        "average 50.00",
        "",
        "          precision  recall      f1",
        "muc           50.00   12.50   25.00",
        "mentions     100.00  100.00  100.00",
        "",
        "gold \\ predicted   a  b",
        "a                 12  0",
        "b                  1  2",
    ]


def test_columns_of_wide_characters_are_aligned() -> None:
    """Oracle: a table by hand; a Hangul syllable is as wide as two Latin letters."""
    report = {"confusion": {"긍정": {"긍정": 1, "x": 0}, "x": {"긍정": 0, "x": 12}}}
    assert show_report(report).splitlines()[2:] == [
        "gold \\ predicted  긍정   x",
        "긍정                 1   0",
        "x                    0  12",
    ]


def test_report_of_many_labels_shows_the_most_frequent_ones() -> None:
    labels = [f"{i:02}" for i in range(50)]
    scores = {"precision": 1.0, "recall": 1.0, "f1": 1.0}
    report = {
        "macro_f1": 1.0,  # without precision and recall, not a row of a table
        "by_label": {label: {**scores, "support": int(label)} for label in labels},
        "confusion": {label: {label: 9, "07": 2} if label == "49" else {} for label in labels},
    }
    first, by_label, confusion = show_report(report).split("\n\n")
    assert first == "macro_f1 100.00"
    _, *rows, last = by_label.splitlines()
    assert [row.split()[0] for row in rows] == labels[10:]
    assert last == "(10 less frequent labels are not shown)"
    assert confusion.splitlines() == ["gold \\ predicted  count", "49 \\ 07               2"]
