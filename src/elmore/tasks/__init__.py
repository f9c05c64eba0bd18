"""(5) Vectors to answers: the paper's six tasks and two general ones, with and without ELMo.

from elmore.tasks import load, train_task

train_task("ner", "runs/ner", train="a.conll", dev="b.conll")
ner = load("runs/ner")
ner("Ada Lovelace lived in London.")
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore.errors import InputError

if TYPE_CHECKING:
    from elmore.tasks.saved import load as load
    from elmore.tasks.saved import load_task as load_task
    from elmore.tasks.task import Task
    from elmore.tasks.train import read_task_config as read_task_config
    from elmore.tasks.train import train_task as train_task
    from elmore.tasks.trained import TrainedTask as TrainedTask


def _classify() -> "Task[Any, Any, Any]":
    from elmore.tasks.classify.task import Classify

    return Classify()


def _coref() -> "Task[Any, Any, Any]":
    from elmore.tasks.coref.task import Coref

    return Coref()


def _entailment() -> "Task[Any, Any, Any]":
    from elmore.tasks.entailment.task import Entailment

    return Entailment()


def _ner() -> "Task[Any, Any, Any]":
    from elmore.tasks.ner.task import Ner

    return Ner()


def _qa() -> "Task[Any, Any, Any]":
    from elmore.tasks.qa.task import Qa

    return Qa()


def _sentiment() -> "Task[Any, Any, Any]":
    from elmore.tasks.sentiment.task import Sentiment

    return Sentiment()


def _srl() -> "Task[Any, Any, Any]":
    from elmore.tasks.srl.task import Srl

    return Srl()


def _tag() -> "Task[Any, Any, Any]":
    from elmore.tasks.tag.task import Tag

    return Tag()


TASKS: "dict[str, Callable[[], Task[Any, Any, Any]]]" = {
    "classify": _classify,
    "coref": _coref,
    "entailment": _entailment,
    "ner": _ner,
    "qa": _qa,
    "sentiment": _sentiment,
    "srl": _srl,
    "tag": _tag,
}
"""The tasks by name. Values import torch when called, so that listing the names is fast."""

_MODULES = {
    "TrainedTask": "elmore.tasks.trained",
    "load": "elmore.tasks.saved",
    "load_task": "elmore.tasks.saved",
    "read_task_config": "elmore.tasks.train",
    "train_task": "elmore.tasks.train",
}
"""Names that are imported on first use, and their modules."""


def get_task(name: str) -> "Task[Any, Any, Any]":
    """Return the task with this name.

    Args:
        name: A name in `TASKS`, or `module:name` for a task of your own: an object or a class in a
            module that is installed or in the working directory.

    Raises:
        InputError: If there is no such task.
    """
    if ":" in name:
        return _import_task(name)
    if name not in TASKS:
        raise InputError(
            f"unknown task {name!r}; expected one of {', '.join(TASKS)}, or module:name for a task "
            "of your own"
        )
    return TASKS[name]()


def _import_task(path: str) -> "Task[Any, Any, Any]":
    from elmore.tasks.task import Task

    module, _, name = path.partition(":")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.append(folder)
    try:
        task = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"cannot import the task {path}: {error}") from error
    task = task() if isinstance(task, type) else task
    if not isinstance(task, Task):
        raise InputError(f"{path} is {type(task).__name__}; expected an elmore.tasks.task.Task")
    return task


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'elmore.tasks' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
