"""The training loop of a task: epochs with early stopping on the dev set."""

import copy
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmore.errors import InputError
from elmore.prefetch import prefetch
from elmore.tasks.config import FitConfig
from elmore.tasks.task import Labels, Task, TaskModel
from elmore.tasks.time_limit import TimeLimit
from elmore.tasks.words import WordEncoder
from elmore.text.sentences import group_by_length
from elmore.training.checkpoints import (
    Checkpoint,
    optimizer_tensors,
    restore_module,
    restore_optimizer,
    write_checkpoint,
)
from elmore.training.optim import clip_gradients, make_optimizer, set_learning_rate
from elmore.training.run_folder import Report, RunFolder

_BATCHES_PER_SORT = 50  # batches whose examples are sorted by length together
_STEPS_PER_CHECK = 100  # reading a loss makes the CPU wait for the GPU, so it is done rarely
_WORDS_PER_BATCH = 16_384  # in prediction


class Fit:
    """A training run: model, optimizer, and the state of early stopping.

    An epoch depends only on the weights before it, the seed and its number, so a resumed run ends
    with the same weights as an uninterrupted one.

    Args:
        task: The task.
        model: The model with its initial weights.
        config: Settings of the training.
        encode: Encoder of the model's input.
        labels: The task's labels.
        train: Training examples.
        dev: Dev examples, for early stopping and to select the best weights.
        folder: Folder of the run, for its checkpoints.
        limit: Time limit of the run. Training is cut short before an epoch that would exceed it.
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
        folder: RunFolder,
        limit: TimeLimit,
    ) -> None:
        self.task, self.model, self.config = task, model, config
        self.encode, self.labels = encode, labels
        self.train, self.dev = train, dev
        self.folder = folder
        self.limit = limit
        self.optimizer = make_optimizer(
            model,
            "adamw" if config.optimizer == "adam" else config.optimizer,
            lr=config.lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
            capturable=False,
        )
        # deepcopy breaks up the contiguous weights of cuDNN's RNNs; to() restores them.
        self.average = copy.deepcopy(model).to(encode.device) if config.average else None
        self.epoch = self.steps = 0
        self.best = -math.inf
        self.best_weights: dict[str, Tensor] = {}
        self.best_scores: dict[str, float] = {}
        """All scores on the dev set with the best weights."""
        self.bad_epochs = 0
        """Epochs since the best score."""
        self.lr = config.lr
        self.epoch_seconds = 0.0
        """Duration of the last epoch, including the evaluation on the dev set."""
        self.seconds = 0.0
        """Duration of all epochs."""
        self.cut_short = False
        """Whether training stopped because of the time limit."""

    @property
    def complete(self) -> bool:
        """Whether training has ended, by itself or because of the time limit."""
        return self._finished or self.cut_short

    @property
    def _finished(self) -> bool:
        return self.epoch >= self.config.epochs or self.bad_epochs >= self.config.patience

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[dict[str, Any]]:
        """Train until complete or asked to stop; yield the metrics of each epoch.

        Raises:
            InputError: If the first epoch exceeds the time limit, or the loss is not finite.
        """
        self._check_limit()
        while not self.complete and not should_stop():
            yield self._run_epoch()
            self.save()
            self._check_limit()
        if self.complete:
            self.model.load_state_dict(self.best_weights)

    def _check_limit(self) -> None:
        # Once per epoch, not in `complete`, whose value must not change after `run` has returned.
        if self.epoch and not self._finished and self.limit.remaining < self.epoch_seconds:
            self.cut_short = True

    def _run_epoch(self) -> dict[str, Any]:
        start, lr = time.monotonic(), self.lr
        # Seeded anew in each epoch, so that a resumed run draws the same numbers.
        torch.manual_seed(zlib.crc32(f"{self.config.seed} {self.epoch}".encode()))
        set_learning_rate(self.optimizer, lr)
        with _allow_tf32():
            losses = list(self._train_steps())
        loss = self._require_finite(torch.stack(losses).mean())
        trained = time.monotonic()
        self.epoch += 1
        scores = self._score_dev()
        self._update_best(scores)
        self.epoch_seconds = time.monotonic() - start
        self.seconds += self.epoch_seconds
        return {
            "epoch": self.epoch,
            "loss": loss,
            "dev": scores,
            "best": self.best,
            "lr": lr,
            "seconds": trained - start,
            "dev_seconds": time.monotonic() - trained,
        }

    def _train_steps(self) -> Iterator[Tensor]:
        """Train on all examples; yield the losses."""
        self.model.train()
        batches = prefetch(
            lambda examples: self.task.collate(examples, self.encode, self.labels), self._batches()
        )
        steps: Iterable[Any] = batches
        if not self.epoch:
            num_steps = math.ceil(len(self.train) / self.config.batch_size)
            steps = self.limit.require_time(batches, num_steps, "the first epoch")
        with closing(batches):
            for step, batch in enumerate(steps):
                loss = self._train_step(batch)
                yield loss
                if step % _STEPS_PER_CHECK == 0:
                    self._require_finite(loss)

    def _require_finite(self, loss: Tensor) -> float:
        value = loss.item()
        if not math.isfinite(value):
            raise InputError(
                f"the loss is NaN or infinite in epoch {self.epoch + 1}. "
                "Lower training.lr or training.clip_norm and start again."
            )
        return value

    def _train_step(self, batch: Any) -> Tensor:
        loss: Tensor = self.model(batch)
        self.optimizer.zero_grad(set_to_none=True)
        (loss + self.model.words.penalty()).backward()
        clip_gradients(self.model.parameters(), self.config.clip_norm)
        self.optimizer.step()
        self.steps += 1
        if self.average is not None:
            # A smaller decay in the first steps lets the average leave the initial weights fast.
            decay = min(self.config.average, self.steps / (self.steps + 9))
            average, current = (_float_tensors(model) for model in (self.average, self.model))
            torch._foreach_lerp_(average, current, 1 - decay)
        return loss.detach()

    def _batches(self) -> Iterator[list[Any]]:
        """Yield batches of examples of similar length, in the random order of this epoch."""
        rng = np.random.default_rng([self.config.seed, self.epoch])
        order = rng.permutation(len(self.train)).tolist()
        size = self.config.batch_size
        lengths = [sum(map(len, self.task.texts(example))) for example in self.train]
        batches: list[list[int]] = []
        for start in range(0, len(order), size * _BATCHES_PER_SORT):
            rows = sorted(order[start : start + size * _BATCHES_PER_SORT], key=lengths.__getitem__)
            batches += [rows[i : i + size] for i in range(0, len(rows), size)]
        for i in rng.permutation(len(batches)):
            yield [self.train[row] for row in batches[i]]

    def _score_dev(self) -> dict[str, float]:
        predictions = predict(self.task, self._evaluated(), self.dev, self.encode, self.labels)
        return self.task.score(self.dev, predictions)

    def _evaluated(self) -> TaskModel[Any, Any]:
        """Return the model to evaluate and save: the moving average, if there is one."""
        return self.model if self.average is None else self.average

    def _update_best(self, scores: dict[str, float]) -> None:
        """Keep the best weights; decay the learning rate after epochs without improvement."""
        score = scores[self.task.score_name]
        if score >= self.best:  # of equal scores, the latest: it has seen the most data
            weights = self._evaluated().state_dict()
            self.best_weights = {k: v.detach().cpu().clone() for k, v in weights.items()}
            self.best_scores = scores
        if score > self.best:
            self.best, self.bad_epochs = score, 0
        elif self.best > 0:  # some tasks score 0 for several epochs at first
            self.bad_epochs += 1
            if self.bad_epochs % self.config.lr_patience == 0:
                self.lr *= self.config.lr_decay

    def save(self) -> None:
        """Write a checkpoint with everything that the next epoch depends on."""
        tensors = {
            **{f"model.{k}": v for k, v in self.model.state_dict().items()},
            **{f"best.{k}": v for k, v in self.best_weights.items()},
            **{f"optimizer.{k}": v for k, v in optimizer_tensors(self.optimizer).items()},
        }
        if self.average is not None:
            tensors |= {f"average.{k}": v for k, v in self.average.state_dict().items()}
        facts = {
            "epoch": self.epoch,
            "steps": self.steps,
            "best": self.best,
            "best_scores": self.best_scores,
            "worse": self.bad_epochs,
            "lr": self.lr,
            "epoch_seconds": self.epoch_seconds,
            "seconds": self.seconds,
        }
        write_checkpoint(self.folder.checkpoints, self.epoch, Checkpoint(tensors, facts))

    def restore(self, report: Report) -> None:
        """Resume from the newest intact checkpoint, if there is any.

        Raises:
            InputError: If no checkpoint can be used.
        """
        newest = self.folder.newest_checkpoint(report)
        if newest is None:
            return
        path, checkpoint = newest
        restore_module(self.model, checkpoint.part("model"), path)
        restore_optimizer(self.optimizer, checkpoint.part("optimizer"))
        if self.average is not None:
            restore_module(self.average, checkpoint.part("average"), path)
        self.best_weights = checkpoint.part("best")
        facts = checkpoint.metadata
        self.epoch, self.steps = facts["epoch"], facts["steps"]
        self.best, self.best_scores = facts["best"], facts["best_scores"]
        self.bad_epochs, self.lr = facts["worse"], facts["lr"]
        self.epoch_seconds, self.seconds = facts["epoch_seconds"], facts["seconds"]


@contextmanager
def _allow_tf32() -> Iterator[None]:
    """Let a GPU use TF32 in matrix products, as PyTorch does by default in its RNNs."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _float_tensors(model: TaskModel[Any, Any]) -> list[Tensor]:
    """Return parameters and running statistics."""
    return [x for x in model.state_dict().values() if x.is_floating_point()]


def predict(
    task: Task[Any, Any, Any],
    model: TaskModel[Any, Any],
    examples: Sequence[Any],
    encode: WordEncoder,
    labels: Labels,
) -> list[Any]:
    """Return one prediction per example, in their order."""
    lengths = [sum(map(len, task.texts(example))) for example in examples]
    groups = list(group_by_length(lengths, _WORDS_PER_BATCH))
    predictions: list[Any] = [None] * len(examples)
    model.eval()
    batches = prefetch(
        lambda rows: task.collate([examples[row] for row in rows], encode, labels), groups
    )
    with torch.inference_mode(), closing(batches):
        for rows, batch in zip(groups, batches, strict=True):
            for row, prediction in zip(rows, model.predict(batch), strict=True):
                predictions[row] = prediction
    return predictions
