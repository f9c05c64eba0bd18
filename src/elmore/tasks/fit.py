"""The training of a task: epoch after epoch, until its score on dev examples stops rising."""

import copy
import math
import time
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from elmore.errors import InputError
from elmore.tasks.config import FitConfig
from elmore.tasks.task import Labels, Task, TaskModel
from elmore.tasks.words import WordEncoder
from elmore.text.sentences import group_by_length
from elmore.training.checkpoints import (
    Checkpoint,
    DamagedCheckpointError,
    checkpoint_files,
    optimizer_tensors,
    read_checkpoint,
    restore_module,
    restore_optimizer,
    write_checkpoint,
)
from elmore.training.optim import clip_gradients

Item = TypeVar("Item")
Made = TypeVar("Made")

_BATCHES_SORTED = 50  # examples of so many batches are sorted by length together
_STEPS_UNSEEN = 100  # to look at a loss is to wait for the device, so it is done now and then
_FACTS = ("epoch", "steps", "best", "worse", "lr")
_WORDS_AT_ONCE = 16_384  # of examples that are answered together


class Fit:
    """One training: what it has learned so far, and how it goes on.

    An epoch is a function of the weights before it, the seed and its number, so a run that was
    interrupted goes on from its last epoch as if nothing had happened.

    Args:
        task: What is learned.
        model: With its first weights.
        config: How it learns.
        encode: Sentences to what the model reads.
        labels: What the task has counted in the training examples.
        train: Examples to learn from.
        dev: Examples that decide when to stop and which weights to keep.
        folder: Of the run.
        deadline: When to end at the latest, by `time.monotonic`; the epoch is cut short then.
    """

    def __init__(
        self,
        task: Task[Any, Any, Any],
        model: TaskModel[Any, Any],
        config: FitConfig,
        *,
        encode: WordEncoder,
        labels: Labels,
        train: Sequence[Any],
        dev: Sequence[Any],
        folder: Path,
        deadline: float = math.inf,
    ) -> None:
        self.task, self.model, self.config = task, model, config
        self.encode, self.labels = encode, labels
        self.train, self.dev = train, dev
        self.folder = folder
        self.deadline = deadline
        self.optimizer = _make_optimizer(model, config)
        # To the device again: there the weights of an RNN must lie next to each other.
        self.average = copy.deepcopy(model).to(encode.device) if config.average else None
        self.epoch = self.steps = 0
        self.best = -math.inf
        self.best_weights: dict[str, Tensor] = {}
        self.worse = 0
        self.lr = config.lr
        self.cut_short = False
        """Whether time has ended the training."""

    @property
    def complete(self) -> bool:
        """Whether there is nothing more to gain, or no more time."""
        return self._learned or self.cut_short

    @property
    def _learned(self) -> bool:
        return self.epoch >= self.config.epochs or self.worse >= self.config.patience

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[dict[str, Any]]:
        """Train to the end, or until asked to stop; yield a record after each epoch."""
        self._look_at_the_clock()
        while not self.complete and not should_stop():
            yield self._run_epoch()
            self.save()
            self._look_at_the_clock()
        if self.complete:
            self.model.load_state_dict(self.best_weights)

    def _look_at_the_clock(self) -> None:
        """Decide once an epoch whether time is up, so that all who ask hear the same."""
        if self.epoch and not self._learned and time.monotonic() > self.deadline:
            self.cut_short = True

    def _run_epoch(self) -> dict[str, Any]:
        began, lr = time.monotonic(), self.lr
        # Randomness is a function of the epoch, so that a resumed run needs none of its history.
        torch.manual_seed(zlib.crc32(f"{self.config.seed} {self.epoch}".encode()))
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        with _tensor_cores():
            losses = list(self._train_steps())
        loss = self._check(torch.stack(losses).mean())
        trained = time.monotonic()
        self.epoch += 1
        scores = self._score()
        self._consider(scores[self.task.score_name])
        return {
            "epoch": self.epoch,
            "loss": loss,
            "dev": scores,
            "best": self.best,
            "lr": lr,
            "seconds": trained - began,
            "dev_seconds": time.monotonic() - trained,
        }

    def _train_steps(self) -> Iterator[Tensor]:
        """Learn from all examples, or until there is no more time; yield the losses."""
        self.model.train()
        batches = ahead(
            lambda examples: self.task.collate(examples, self.encode, self.labels), self._batches()
        )
        with closing(batches):
            for step, batch in enumerate(batches):
                if step and time.monotonic() > self.deadline:
                    self.cut_short = True
                    return
                loss = self._train_step(batch)
                yield loss
                if step % _STEPS_UNSEEN == 0:
                    self._check(loss)

    def _check(self, loss: Tensor) -> float:
        number = loss.item()
        if not math.isfinite(number):
            raise InputError(
                f"the loss is not a number any more in epoch {self.epoch + 1}. "
                "Lower training.lr, or training.clip_norm, and start again."
            )
        return number

    def _train_step(self, batch: Any) -> Tensor:
        loss: Tensor = self.model(batch)
        self.optimizer.zero_grad(set_to_none=True)
        (loss + self.model.words.penalty()).backward()
        clip_gradients(self.model.parameters(), self.config.clip_norm)
        self.optimizer.step()
        self.steps += 1
        if self.average is not None:
            # At first a mean of a few steps, so that it leaves the first weights soon.
            decay = min(self.config.average, self.steps / (self.steps + 9))
            mean, now = (_numbers(model) for model in (self.average, self.model))
            torch._foreach_lerp_(mean, now, 1 - decay)
        return loss.detach()

    def _batches(self) -> Iterator[list[Any]]:
        """Yield batches of examples of like length, in an order that the epoch decides."""
        draw = np.random.default_rng([self.config.seed, self.epoch])
        order = draw.permutation(len(self.train)).tolist()
        size = self.config.batch_size
        lengths = [sum(map(len, self.task.texts(example))) for example in self.train]
        batches: list[list[int]] = []
        for start in range(0, len(order), size * _BATCHES_SORTED):
            some = sorted(order[start : start + size * _BATCHES_SORTED], key=lengths.__getitem__)
            batches += [some[i : i + size] for i in range(0, len(some), size)]
        for i in draw.permutation(len(batches)):
            yield [self.train[row] for row in batches[i]]

    def _score(self) -> dict[str, float]:
        found = predict(self.task, self._scored(), self.dev, self.encode, self.labels)
        return self.task.score(self.dev, found)

    def _scored(self) -> TaskModel[Any, Any]:
        """Return the model as it is scored and kept: its moving average, if there is one."""
        return self.model if self.average is None else self.average

    def _consider(self, score: float) -> None:
        """Remember the best weights, and how long ago they were found."""
        if score >= self.best:  # of equals the newest, which has learned most
            weights = self._scored().state_dict()
            self.best_weights = {k: v.detach().cpu().clone() for k, v in weights.items()}
        if score > self.best:
            self.best, self.worse = score, 0
        elif self.best > 0:  # some tasks take epochs until their first right answer
            self.worse += 1
            if self.worse % self.config.lr_patience == 0:
                self.lr *= self.config.lr_decay

    def save(self) -> None:
        """Write a checkpoint: everything that the next epoch depends on."""
        tensors = {
            **{f"model.{k}": v for k, v in self.model.state_dict().items()},
            **{f"best.{k}": v for k, v in self.best_weights.items()},
            **{f"optimizer.{k}": v for k, v in optimizer_tensors(self.optimizer).items()},
        }
        if self.average is not None:
            tensors |= {f"average.{k}": v for k, v in self.average.state_dict().items()}
        facts = {name: getattr(self, name) for name in _FACTS}
        write_checkpoint(self.folder / "checkpoints", self.epoch, Checkpoint(tensors, facts))

    def restore(self) -> int:
        """Go on from the newest sound checkpoint; return the epochs that are done."""
        for path in reversed(checkpoint_files(self.folder / "checkpoints")):
            try:
                checkpoint = read_checkpoint(path)
            except DamagedCheckpointError:
                continue  # the one before it is as good, and an epoch older
            restore_module(self.model, checkpoint.part("model"), path)
            restore_optimizer(self.optimizer, checkpoint.part("optimizer"))
            if self.average is not None:
                restore_module(self.average, checkpoint.part("average"), path)
            self.best_weights = checkpoint.part("best")
            for name in _FACTS:
                setattr(self, name, checkpoint.facts[name])
            break
        return self.epoch


@contextmanager
def _tensor_cores() -> Iterator[None]:
    """Let a GPU multiply with ten bits of mantissa, as PyTorch lets its RNNs do anyway."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _numbers(model: TaskModel[Any, Any]) -> list[Tensor]:
    """Return all that a model has learned, running statistics among it."""
    return [x for x in model.state_dict().values() if x.is_floating_point()]


def predict(
    task: Task[Any, Any, Any],
    model: TaskModel[Any, Any],
    examples: Sequence[Any],
    encode: WordEncoder,
    labels: Labels,
) -> list[Any]:
    """Return a model's answers, in the order of the examples."""
    lengths = [sum(map(len, task.texts(example))) for example in examples]
    groups = list(group_by_length(lengths, _WORDS_AT_ONCE))
    found: list[Any] = [None] * len(examples)
    model.eval()
    batches = ahead(
        lambda rows: task.collate([examples[row] for row in rows], encode, labels), groups
    )
    with torch.inference_mode(), closing(batches):
        for rows, batch in zip(groups, batches, strict=True):
            for row, prediction in zip(rows, model.predict(batch), strict=True):
                found[row] = prediction
    return found


def ahead(make: Callable[[Item], Made], items: Iterable[Item]) -> Generator[Made]:
    """Make something of each item in a second thread, two of them ahead of who asks for it.

    What is made on a device is made in the order of the thread that asks: both use its one stream.
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        waiting: deque[Future[Made]] = deque()
        for item in items:
            waiting.append(thread.submit(make, item))
            if len(waiting) > 2:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _make_optimizer(model: TaskModel[Any, Any], config: FitConfig) -> torch.optim.Optimizer:
    trained = [p for p in model.parameters() if p.requires_grad]
    if config.optimizer == "adadelta":
        return torch.optim.Adadelta(
            trained, lr=config.lr, rho=0.95, eps=1e-6, weight_decay=config.weight_decay
        )
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=True)
