"""Metrics for TensorBoard, an optional package."""

from pathlib import Path
from typing import Any

from elmore.errors import require


class TensorBoard:
    """Writes the numbers of metrics records as TensorBoard scalars."""

    def __init__(self, folder: Path) -> None:
        require("tensorboard", extra="tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def __call__(self, record: dict[str, Any]) -> None:
        """Add one record of metrics.jsonl."""
        for name, value in record.items():
            if isinstance(value, dict):
                for inner, number in value.items():
                    self._writer.add_scalar(f"{name}/{inner}", number, record["step"])
            elif isinstance(value, float) and "step" in record:
                self._writer.add_scalar(name, value, record["step"])
        self._writer.flush()
