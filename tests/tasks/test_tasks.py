"""The dict of tasks. Oracle: the folders under `src/elmore/tasks`."""

from collections.abc import Callable
from pathlib import Path

import pytest

import elmore.tasks
from elmore.errors import InputError
from elmore.tasks import TASKS, get_task, read_task_config
from elmore.tasks.show import show_report


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
