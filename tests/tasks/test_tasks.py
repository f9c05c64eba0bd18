"""The dict of tasks. Oracle: the folders under `src/elmore/tasks`."""

from collections.abc import Callable
from pathlib import Path

import pytest

import elmore.tasks
from elmore.errors import InputError
from elmore.tasks import TASKS, get_task, read_task_config


def test_every_task_folder_is_listed_under_its_name() -> None:
    folders = Path(elmore.tasks.__file__).parent.glob("*/task.py")
    assert sorted(path.parent.name for path in folders) == list(TASKS)
    assert [get_task(name).name for name in TASKS] == list(TASKS)


@pytest.mark.parametrize("function", [get_task, read_task_config])
def test_unknown_task_error_lists_the_known_tasks(function: Callable[[str], object]) -> None:
    with pytest.raises(InputError, match="unknown task 'nerr'; expected one of coref, entailment"):
        function("nerr")
