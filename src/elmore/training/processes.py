"""One training process or several, started by `torchrun`.

`torchrun` describes the processes in environment variables. Without it there is one process.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """The rank of this process, the number of processes, and this process's device."""

    rank: int
    count: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the process that prints and writes files."""
        return self.rank == 0

    def share(self, total: int) -> slice:
        """Return this process's share of `total` rows."""
        each = total // self.count
        return slice(self.rank * each, (self.rank + 1) * each)

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all processes, concatenated in the order of their ranks."""
        if self.count == 1:
            return rows
        parts = [torch.empty_like(rows) for _ in range(self.count)]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    def rank_zero_first(self, work: Callable[[], T]) -> T:
        """Call `work` in the first process, then in the others, which find the files it wrote."""
        if not self.first:
            self.wait()
        result = work()
        if self.first:
            self.wait()
        return result

    def wait(self) -> None:
        """Wait until all processes get here."""
        if self.count > 1:
            dist.barrier()

    def broadcast(self, *values: float) -> list[float]:
        """Return the first process's values, so that all processes decide alike."""
        if self.count == 1:
            return [*values]
        shared = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.broadcast(shared, src=0)
        return shared.tolist()


@contextmanager
def join_processes(device: torch.device) -> Iterator[Processes]:
    """Join the processes that torchrun started; without torchrun, yield a single one."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Processes(0, 1, device)
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    # The default timeout of ten minutes is too short: the first process may encode a large text
    # while the others wait.
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo", timeout=timedelta(hours=12)
    )
    try:
        yield Processes(dist.get_rank(), count, device)
    finally:
        dist.destroy_process_group()
