"""One process or many: what a training needs to know of the machines it runs on.

`torchrun` starts the processes and says in the environment who is who. Without it there is one.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among all."""

    rank: int
    count: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0

    def share(self, total: int) -> slice:
        """Return the part of `total` rows that is this process's."""
        each = total // self.count
        return slice(self.rank * each, (self.rank + 1) * each)

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model as the processes train it together: gradients are averaged."""
        if self.count == 1:
            return model
        return DistributedDataParallel(model)

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all processes, in their order."""
        if self.count == 1:
            return rows
        parts = [torch.empty_like(rows) for _ in range(self.count)]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean over the processes."""
        if self.count == 1:
            return value
        value = value.clone()
        dist.all_reduce(value)
        return value / self.count

    def first_does(self, work: Callable[[], T]) -> T:
        """Let the first process work alone, then the others, who find it done."""
        if not self.first:
            self.wait()
        result = work()
        if self.first:
            self.wait()
        return result

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.count > 1:
            dist.barrier()

    def first_says(self, value: float) -> float:
        """Return the value of the first process, so that all take the same decisions."""
        if self.count == 1:
            return value
        said = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.broadcast(said, src=0)
        return said.item()


@contextmanager
def join_processes(device: torch.device) -> Iterator[Processes]:
    """Join the processes that torchrun has started, if it has."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Processes(0, 1, device)
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    # Others wait while the first encodes a large text: longer than the usual ten minutes.
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo", timeout=timedelta(hours=12)
    )
    try:
        yield Processes(dist.get_rank(), count, device)
    finally:
        dist.destroy_process_group()
