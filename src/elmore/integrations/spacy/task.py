"""What the components with a trained task share."""

from typing import Any, ClassVar

from elmore.checkpoint.hash import hash_weights
from elmore.embedder import Precision
from elmore.errors import InputError
from elmore.integrations.spacy.component import Component
from elmore.tasks.saved import load
from elmore.tasks.task import Task


class TaskComponent(Component):
    """A component with a trained task.

    Args:
        name: Name of the component.
        model: Folder of the trained task.
        bilm: See `elmore.tasks.load`.
        device: See `elmore.tasks.load`.
        precision: See `elmore.tasks.load`.
    """

    kinds: ClassVar[tuple[type[Task[Any, Any, Any]], ...]]
    """The tasks that the component can use."""

    def __init__(
        self,
        name: str,
        *,
        model: str,
        bilm: str | None = None,
        device: str = "auto",
        precision: Precision | None = None,
    ) -> None:
        self.task = load(model, bilm=bilm, device=device, precision=precision)
        if not isinstance(self.task.task, self.kinds):
            expected = " or ".join(kind.name for kind in self.kinds)
            raise InputError(f"{model} is a task of {self.task.task.name}; expected {expected}")
        settings = {"model": model, "bilm": bilm, "device": device, "precision": precision}
        super().__init__(name, settings, hash_weights(self.task.model.state_dict()))
