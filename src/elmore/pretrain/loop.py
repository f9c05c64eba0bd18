"""The training loop of a biLM: steps, evaluations, early stopping, checkpoints."""

import json
import math
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmore.bilm.language_model import LanguageModel
from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLMState
from elmore.bilm.softmax import Negatives
from elmore.errors import InputError
from elmore.pretrain.config import NO_EARLY_STOPPING, PretrainConfig, read_config
from elmore.pretrain.data import Prepared, prepare
from elmore.pretrain.heldout import split_heldout
from elmore.pretrain.meter import Meter
from elmore.pretrain.model import new_model
from elmore.pretrain.perplexity import Perplexity, measure_perplexity
from elmore.pretrain.step import train_step
from elmore.text.corpus import Corpus
from elmore.text.vocabulary import Vocabulary
from elmore.text.windows import LMBatch, Windows
from elmore.training.checkpoints import (
    Checkpoint,
    checkpoint_files,
    optimizer_tensors,
    restore_module,
    restore_optimizer,
    write_checkpoint,
)
from elmore.training.graph import GraphedStep, Step
from elmore.training.optim import make_optimizer, set_learning_rate
from elmore.training.processes import Processes
from elmore.training.run_folder import Report, RunFolder

_SAVE, _STOP = 1, 2


class DivergedError(InputError):
    """The loss or a gradient is NaN or infinite."""


class Pretraining:
    """One run: the model, the optimizer, and the position in the text.

    Args:
        config: Settings of the run.
        corpus: The training text.
        folder: Where metrics and checkpoints are written.
        processes: The processes that train together.
        heldout: Held-out sentences; if not given, some sentences of the corpus are held out.
        max_minutes: Stop after this many minutes; the learning-rate schedule is fitted to it.
        start: Model and vocabulary to start from; new ones if not given.
    """

    def __init__(
        self,
        config: PretrainConfig,
        corpus: Corpus,
        folder: RunFolder,
        *,
        processes: Processes,
        heldout: Sequence[Sequence[str]] | None = None,
        max_minutes: float | None = None,
        start: tuple[LanguageModel, Vocabulary] | None = None,
    ) -> None:
        self.config = config
        self.corpus = corpus
        self.folder = folder
        self.processes = processes
        self.max_seconds = max_minutes * 60 if max_minutes is not None else math.inf
        training = config.training
        if training.streams % (processes.count * training.accumulate):
            raise InputError(
                f"training.streams ({training.streams}) must be a multiple of the number of "
                f"processes ({processes.count}) times training.accumulate ({training.accumulate})"
            )
        held_out, self.sentences = split_heldout(
            corpus, 0 if heldout is not None else config.run.heldout, config.run.max_heldout
        )
        if training.streams > len(self.sentences):
            raise InputError(
                f"training.streams={training.streams} needs at least {training.streams} "
                f"sentences; the text has {len(self.sentences)}. Use more text or fewer streams."
            )
        self.heldout = heldout if heldout is not None else held_out
        model, self.vocabulary = start or new_model(config, corpus)
        self.model = model.to(processes.device).train()
        self.optimizer = make_optimizer(
            self.model,
            training.optimizer,
            lr=training.lr,
            betas=training.betas,
            weight_decay=training.weight_decay,
        )
        # Tokens in one window of all rows; both directions predict each of them.
        self.tokens_per_step = training.streams * training.window
        tokens = int(corpus.lengths[self.sentences].sum()) - len(self.sentences)
        self.total_steps = max(1, math.ceil(training.epochs * tokens / self.tokens_per_step))
        self.rows = processes.share(training.streams)
        self.generator = torch.Generator(processes.device)
        self.best = math.inf
        self.best_weights: dict[str, Tensor] = {}
        self.bad_evaluations = 0
        """Evaluations since the best one."""
        self.step = 0
        self.seconds = 0.0
        self.meter = Meter(processes.device)
        self.state = self._zero_state()
        self.data_state: dict[str, np.ndarray] | None = None

    @property
    def progress(self) -> float:
        """Share of the run that is done, by steps or, with a time limit, by time."""
        return max(self.step / self.total_steps, self.seconds / self.max_seconds)

    @property
    def complete(self) -> bool:
        """Whether the last step is done, or early stopping has ended the run."""
        return self.progress >= 1 or self.bad_evaluations >= self.config.run.patience

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[dict[str, Any]]:
        """Train until complete or asked to stop; yield the lines of metrics.jsonl."""
        run = self.config.run
        windows = self._windows()
        batches = prepare(windows, self.rows, self.processes.device)
        step = self._make_step()
        start, seconds_before = time.monotonic(), self.seconds
        last_save, evaluations = start, math.floor(self.progress * run.evaluations)
        try:
            while not self.complete:
                prepared = next(batches)
                self._train_step(step, prepared)
                self.data_state = prepared.state
                self.seconds = self._shared_clock(seconds_before + time.monotonic() - start)
                if self.step % run.log_steps == 0 or self.complete:
                    yield self._write(self._metrics())
                due = math.floor(self.progress * run.evaluations)
                if due > evaluations and not self.complete:
                    evaluations = due
                    perplexity = self.measure()
                    self._update_best(perplexity)
                    yield self._write(self._evaluation(perplexity))
                if self.complete:
                    break
                save = time.monotonic() - last_save >= 60 * run.checkpoint_minutes
                # Signals and clocks differ between processes: the first one decides for all.
                action = self.processes.broadcast(_STOP if should_stop() else _SAVE if save else 0)
                if action:
                    self._check_finite()
                    self.save()
                    last_save = time.monotonic()
                if action == _STOP:
                    return
        finally:
            batches.close()
        self._update_best(self.measure())
        if self.best_weights:
            self.model.load_state_dict(self.best_weights)
        yield self._write(self.evaluate())

    def _make_step(self) -> Step:
        """Return the training step; on a single GPU it is captured as a CUDA graph."""
        training = self.config.training
        device, model = self.processes.device, self.processes.wrap(self.model)

        def step(batch: LMBatch, state: BiLMState) -> tuple[tuple[Tensor, ...], BiLMState]:
            result = train_step(
                model,
                self.optimizer,
                LMBatch(*(x.to(device, non_blocking=True) for x in batch)),
                state,
                self._draw_negatives(),
                clip_norm=training.clip_norm,
                loss_scale=training.loss_scale,
                parts=training.accumulate,
            )
            return (result.losses, result.grad_norm), result.state

        capture = device.type == "cuda" and self.processes.count == 1
        return GraphedStep(step, [self.generator]) if capture else step

    def _train_step(self, step: Step, prepared: Prepared) -> None:
        seed, rank = self.config.training.seed, self.processes.rank
        set_learning_rate(self.optimizer, self.config.training.lr * self._lr_factor())
        # Seeded anew in each step, so that a resumed run draws the same numbers.
        torch.manual_seed(_seed(seed, self.step, rank))
        self.generator.manual_seed(_seed(seed, self.step, -1))  # the same in all processes
        (losses, grad_norm), self.state = step(prepared.batch, self.state)
        self.meter.add(losses, grad_norm)
        self.step += 1

    def _lr_factor(self) -> float:
        """Return the learning rate as a share of its peak."""
        training = self.config.training
        warmup = min(1.0, (self.progress + 1 / self.total_steps) / max(training.warmup, 1e-9))
        decay = 1 - self.progress if training.schedule == "linear" else 1.0
        return min(warmup, decay / (1 - training.warmup), 1.0)

    def _draw_negatives(self) -> Negatives | None:
        count = self.config.training.negatives
        return self.model.softmax.draw(count, self.generator) if count else None

    def _windows(self) -> Windows:
        training = self.config.training
        return Windows(
            self.corpus,
            targets=self.corpus.targets(self.vocabulary),
            max_characters=self.config.bilm.max_characters,
            rows=training.streams,
            steps=training.window,
            seed=training.seed,
            carry_state=training.carry_state,
            sentences=self.sentences,
            state=self.data_state,
        )

    def _zero_state(self) -> BiLMState:
        config, rows = self.config.bilm, self.rows.stop - self.rows.start
        device = self.processes.device
        return [
            LSTMState(
                torch.zeros(rows, config.dim, device=device),
                torch.zeros(rows, config.cell_dim, device=device),
            )
            for _ in range(2 * config.num_layers)
        ]

    def _shared_clock(self, seconds: float) -> float:
        """Return the first process's time if a time limit depends on it, else this process's."""
        if self.processes.count == 1 or self.max_seconds == math.inf:
            return seconds
        return self.processes.broadcast(seconds)

    # Metrics and evaluation

    def _metrics(self) -> dict[str, Any]:
        self._check_finite()
        steps, losses, grad_norm, seconds = self.meter.read()
        forward, backward = self.processes.mean(losses).tolist()
        return {
            "step": self.step,
            "steps": self.total_steps,
            "progress": self.progress,
            "tokens": self.step * self.tokens_per_step,
            "loss": (forward + backward) / 2,
            "forward": forward,
            "backward": backward,
            "grad_norm": grad_norm,
            "lr": float(self.optimizer.param_groups[0]["lr"]),
            "seconds": self.seconds,
            "tokens_per_second": steps * self.tokens_per_step / seconds,
        }

    def _evaluation(self, perplexity: Perplexity | None) -> dict[str, Any]:
        heldout = {"average": perplexity.average, **perplexity._asdict()} if perplexity else None
        return {
            "step": self.step,
            "tokens": self.step * self.tokens_per_step,
            "seconds": self.seconds,
            "heldout": heldout,
        }

    def measure(self, *, all_sentences: bool = False) -> Perplexity | None:
        """Measure perplexity on held-out sentences: a fixed sample, or all of them."""
        if not self.heldout:
            return None
        stride = 1 if all_sentences else -(-len(self.heldout) // self.config.run.max_heldout)
        size = 2048 if self.processes.device.type == "cpu" else 16_384
        return measure_perplexity(
            self.model, self.vocabulary, self.heldout[::stride], batch_words=size
        )

    def evaluate(self) -> dict[str, Any]:
        """Return a line of metrics with the perplexity of all held-out sentences."""
        return self._evaluation(self.measure(all_sentences=True))

    def keep_initial_weights(self) -> None:
        """Let the current weights win if no later ones have a lower perplexity."""
        self._update_best(self.measure())

    def _update_best(self, perplexity: Perplexity | None) -> None:
        """With early stopping, keep the best weights and count evaluations since then."""
        if perplexity is None or self.config.run.patience == NO_EARLY_STOPPING:
            return
        if perplexity.average < self.best:
            self.best, self.bad_evaluations = perplexity.average, 0
            self.best_weights = {k: v.clone() for k, v in self.model.state_dict().items()}
        else:
            self.bad_evaluations += 1

    def _write(self, record: dict[str, Any]) -> dict[str, Any]:
        if self.processes.first:
            self.folder.append_metrics(record)
        return record

    def _check_finite(self) -> None:
        if not self.meter.finite():
            files = checkpoint_files(self.folder.checkpoints)
            last = f"The last good checkpoint is {files[-1]}." if files else "No checkpoint yet."
            raise DivergedError(
                f"the loss is NaN or infinite at step {self.step}. {last} "
                "Lower training.lr or training.clip_norm and start again."
            )

    # Checkpoints

    def save(self) -> None:
        """Write a checkpoint with everything that the next step depends on."""
        state = {
            f"lstm.{i}.{name}": self.processes.gather(tensor)
            for i, layer in enumerate(self.state)
            for name, tensor in layer._asdict().items()
        }
        if not self.processes.first:
            return
        data = {f"data.{k}": torch.from_numpy(v) for k, v in (self.data_state or {}).items()}
        tensors = {
            **{f"model.{k}": v for k, v in self.model.state_dict().items()},
            **{f"best.{k}": v for k, v in self.best_weights.items()},
            **{f"optimizer.{k}": v for k, v in optimizer_tensors(self.optimizer).items()},
            **{f"meter.{k}": v for k, v in self.meter.tensors().items()},
            **state,
            **data,
        }
        facts = {
            "run": self._identity(),
            "step": self.step,
            "seconds": self.seconds,
            "best": self.best,
            "worse": self.bad_evaluations,
        }
        write_checkpoint(self.folder.checkpoints, self.step, Checkpoint(tensors, facts))

    def restore(self, report: Report) -> None:
        """Resume from the newest intact checkpoint; without any, from the first step.

        Raises:
            InputError: If the run was started with other settings or other text.
        """
        saved = read_config(self.folder.settings)
        self.folder.require_settings(replace(saved, run=self.config.run), self.config)
        newest = self.folder.newest_checkpoint(report)
        if newest:
            self._restore(newest.checkpoint, newest.path)
        if self.processes.first:
            self.folder.drop_metrics_after("step", self.step)
        report(
            {
                "note": f"resuming from step {self.step:,}"
                if newest
                else "no checkpoint yet: starting from the beginning"
            }
        )

    def _restore(self, checkpoint: Checkpoint, path: Path) -> None:
        current, saved = self._identity(), checkpoint.facts.get("run", {})
        for name in current:
            if current[name] != saved.get(name):
                raise InputError(
                    f"{path} belongs to another run: its {name} was {saved.get(name)!r:.80}, "
                    f"here it is {current[name]!r:.80}"
                )
        restore_module(self.model, checkpoint.part("model"), path)
        restore_optimizer(self.optimizer, checkpoint.part("optimizer"))
        tensors = checkpoint.part("lstm")
        self.state = [
            LSTMState(
                *(
                    tensors[f"{i}.{name}"][self.rows].to(self.processes.device)
                    for name in LSTMState._fields
                )
            )
            for i in range(len(self.state))
        ]
        self.meter.restore(checkpoint.part("meter"))
        self.data_state = {k: v.numpy() for k, v in checkpoint.part("data").items()} or None
        self.step = checkpoint.facts["step"]
        self.seconds = checkpoint.facts["seconds"]
        self.best, self.bad_evaluations = checkpoint.facts["best"], checkpoint.facts["worse"]
        self.best_weights = checkpoint.part("best")

    def _identity(self) -> dict[str, Any]:
        """Return everything the weights depend on; a checkpoint is refused if it differs."""
        config = json.loads(json.dumps(asdict(self.config)))
        return {
            **config,
            "run": {"patience": self.config.run.patience},  # the others do not affect the weights
            "corpus": self.corpus.folder.name,
            "sentences": zlib.crc32(self.sentences.data),
            "heldout": zlib.crc32(json.dumps([list(words) for words in self.heldout]).encode()),
        }


def _seed(*numbers: int) -> int:
    """Combine numbers into one seed."""
    return int(
        np.random.SeedSequence([n + 1 for n in numbers]).generate_state(1, np.uint64)[0] >> 1
    )
