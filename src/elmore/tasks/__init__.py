"""(5) Vectors to tasks: the paper's six, with and without ELMo.

from elmore.tasks import load_task, train_task

train_task("ner", Path("runs/ner"), train=[Path("a.conll")], dev=Path("b.conll"))
ner = load_task("runs/ner")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from elmore.errors import InputError

if TYPE_CHECKING:
    from elmore.tasks.run import TrainedTask as TrainedTask
    from elmore.tasks.run import load_task as load_task
    from elmore.tasks.run import read_task_config as read_task_config
    from elmore.tasks.run import train_task as train_task
    from elmore.tasks.task import Task

TASKS = ("coref", "entailment", "ner", "qa", "sentiment", "srl")
"""Every task, by its name on the command line."""

_RUN = ("TrainedTask", "load_task", "read_task_config", "train_task")


def get_task(name: str) -> "Task[Any, Any, Any]":
    """Return a task by its name."""
    match name:
        case "coref":
            from elmore.tasks.coref.task import Coref

            return Coref()
        case "entailment":
            from elmore.tasks.entailment.task import Entailment

            return Entailment()
        case "ner":
            from elmore.tasks.ner.task import Ner

            return Ner()
        case "qa":
            from elmore.tasks.qa.task import Qa

            return Qa()
        case "sentiment":
            from elmore.tasks.sentiment.task import Sentiment

            return Sentiment()
        case "srl":
            from elmore.tasks.srl.task import Srl

            return Srl()
    raise InputError(f"unknown task {name!r}; expected one of {', '.join(TASKS)}")


def __getattr__(name: str) -> Any:
    if name not in _RUN:
        raise AttributeError(f"module 'elmore.tasks' has no attribute {name!r}")
    return getattr(import_module("elmore.tasks.run"), name)
