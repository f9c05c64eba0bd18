"""A pre-training run from its first step, or from its last checkpoint, to a model on disk.

DIR/config.toml     the run, resolved; `elmore pretrain --recipe DIR/config.toml` repeats it
DIR/metrics.jsonl   a line every so many steps
DIR/checkpoints/    to go on from; gone when the run is complete
DIR/config.json model.safetensors softmax.safetensors vocab.txt loss.png
"""

import json
import math
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmore.atomic import atomic_file
from elmore.bilm.language_model import LanguageModel
from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLMState
from elmore.bilm.softmax import Negatives
from elmore.errors import InputError
from elmore.pretrain.config import NEVER, PretrainConfig
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

_STOP = 2


class DivergedError(InputError):
    """The loss is no number any more."""


class Pretraining:
    """One run: what it has learned so far, and how it goes on."""

    def __init__(
        self,
        config: PretrainConfig,
        corpus: Corpus,
        folder: Path,
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
        kept_aside, self.sentences = split_heldout(
            corpus, 0 if heldout is not None else config.run.heldout, config.run.max_heldout
        )
        if training.streams > len(self.sentences):
            raise InputError(
                f"training.streams={training.streams} streams of sentences need as many "
                f"sentences; the text has {len(self.sentences)}. Use more text, or fewer streams."
            )
        self.heldout = heldout if heldout is not None else kept_aside
        model, self.vocabulary = start or new_model(config, corpus)
        self.model = model.to(processes.device).train()
        self.optimizer = make_optimizer(
            self.model,
            training.optimizer,
            lr=training.lr,
            betas=training.betas,
            weight_decay=training.weight_decay,
        )
        # Text positions of a window of all rows; each is predicted by both directions.
        self.tokens_per_step = training.streams * training.window
        tokens = int(corpus.lengths[self.sentences].sum()) - len(self.sentences)
        self.total_steps = max(1, math.ceil(training.epochs * tokens / self.tokens_per_step))
        self.rows = processes.share(training.streams)
        self.generator = torch.Generator(processes.device)
        self.best = math.inf
        self.best_weights: dict[str, Tensor] = {}
        self.worse = 0
        self.step = 0
        self.seconds = 0.0
        self.meter = Meter(processes.device)
        self.state = self._zero_state()
        self.data_state: dict[str, np.ndarray] | None = None

    @property
    def progress(self) -> float:
        """How much of the run is done, by its steps or, where it is limited, by its time."""
        return max(self.step / self.total_steps, self.seconds / self.max_seconds)

    @property
    def complete(self) -> bool:
        """Whether the last step is done, or more of them would do no good."""
        return self.progress >= 1 or self.worse >= self.config.run.patience

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[dict[str, Any]]:
        """Train to the end, or until asked to stop; yield the lines of metrics.jsonl."""
        run = self.config.run
        windows = self._windows()
        batches = prepare(windows, self.rows, self.processes.device)
        fit = self._make_step()
        began, before = time.monotonic(), self.seconds
        saved, evaluated = began, math.floor(self.progress * run.evaluations)
        try:
            while not self.complete:
                prepared = next(batches)
                self._train_step(fit, prepared)
                self.data_state = prepared.state
                self.seconds = self._agreed_seconds(before + time.monotonic() - began)
                if self.step % run.log_steps == 0 or self.complete:
                    yield self._write(self._metrics())
                turn = math.floor(self.progress * run.evaluations)
                if turn > evaluated and not self.complete:
                    evaluated = turn
                    found = self.measure()
                    self._consider(found)
                    yield self._write(self._evaluation(found))
                if self.complete:
                    break
                due = time.monotonic() - saved >= 60 * run.checkpoint_minutes
                asked = self.processes.first_says(_STOP if should_stop() else int(due))
                if asked:
                    self._check_finite()
                    self.save()
                    saved = time.monotonic()
                if asked == _STOP:
                    return
        finally:
            batches.close()
        self._consider(self.measure())
        if self.best_weights:
            self.model.load_state_dict(self.best_weights)
        yield self._write(self.evaluate())

    def _make_step(self) -> Step:
        """Return the function that fits a batch: on a GPU one that is recorded and replayed."""
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

        can_record = device.type == "cuda" and self.processes.count == 1
        return GraphedStep(step, [self.generator]) if can_record else step

    def _train_step(self, fit: Step, prepared: Prepared) -> None:
        seed, step, rank = self.config.training.seed, self.step, self.processes.rank
        set_learning_rate(self.optimizer, self.config.training.lr * self._lr_factor())
        # Randomness is a function of the step, so that a resumed run needs none of its history.
        torch.manual_seed(_seed(seed, step, rank))
        self.generator.manual_seed(_seed(seed, step, -1))  # the same in all processes
        (losses, grad_norm), self.state = fit(prepared.batch, self.state)
        self.meter.add(losses, grad_norm)
        self.step += 1

    def _lr_factor(self) -> float:
        training = self.config.training
        rise = min(1.0, (self.progress + 1 / self.total_steps) / max(training.warmup, 1e-9))
        fall = 1 - self.progress if training.schedule == "linear" else 1.0
        return min(rise, fall / (1 - training.warmup), 1.0)

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

    def _agreed_seconds(self, seconds: float) -> float:
        """Return this process's clock or, where it decides the end, the first process's."""
        if self.processes.count == 1 or self.max_seconds == math.inf:
            return seconds
        return float(self.processes.first_says(seconds))

    # What is told

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

    def _evaluation(self, found: Perplexity | None) -> dict[str, Any]:
        return {
            "step": self.step,
            "tokens": self.step * self.tokens_per_step,
            "seconds": self.seconds,
            "heldout": {"average": found.average, **found._asdict()} if found else None,
        }

    def measure(self, *, everything: bool = False) -> Perplexity | None:
        """Measure perplexity on held-out sentences: always the same ones, or all of them."""
        if not self.heldout:
            return None
        stride = 1 if everything else -(-len(self.heldout) // self.config.run.max_heldout)
        size = 2048 if self.processes.device.type == "cpu" else 16_384
        return measure_perplexity(
            self.model, self.vocabulary, self.heldout[::stride], batch_words=size
        )

    def evaluate(self) -> dict[str, Any]:
        """Return a line of metrics with the perplexity of all held-out sentences."""
        return self._evaluation(self.measure(everything=True))

    def start_from_here(self) -> None:
        """Count the weights as they are among those of which the best are to stay."""
        self._consider(self.measure())

    def _consider(self, found: Perplexity | None) -> None:
        """Where the best weights are to stay, remember them, and how long ago they were found."""
        if found is None or self.config.run.patience == NEVER:
            return
        if found.average < self.best:
            self.best, self.worse = found.average, 0
            self.best_weights = {k: v.clone() for k, v in self.model.state_dict().items()}
        else:
            self.worse += 1

    def _write(self, record: dict[str, Any]) -> dict[str, Any]:
        if self.processes.first:
            with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        return record

    def _check_finite(self) -> None:
        if not self.meter.finite():
            files = checkpoint_files(self.folder / "checkpoints")
            good = f"The last good checkpoint is {files[-1]}." if files else "No checkpoint yet."
            raise DivergedError(
                f"the loss is not a number any more at step {self.step}. {good} "
                "Lower training.lr, or training.clip_norm, and start again."
            )

    # What is kept

    def save(self) -> None:
        """Write a checkpoint: everything that the next step depends on."""
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
            "run": self.fingerprint(),
            "step": self.step,
            "seconds": self.seconds,
            "best": self.best,
            "worse": self.worse,
        }
        write_checkpoint(self.folder / "checkpoints", self.step, Checkpoint(tensors, facts))

    def restore(self, checkpoint: Checkpoint, path: Path) -> None:
        """Go on from a checkpoint of this run."""
        mine, theirs = self.fingerprint(), checkpoint.facts.get("run", {})
        for name in mine:
            if mine[name] != theirs.get(name):
                raise InputError(
                    f"{path} belongs to another run: its {name} was {theirs.get(name)!r:.80}, "
                    f"here it is {mine[name]!r:.80}"
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
        self.best, self.worse = checkpoint.facts["best"], checkpoint.facts["worse"]
        self.best_weights = checkpoint.part("best")
        self.forget_metrics_after(self.step)

    def forget_metrics_after(self, step: int) -> None:
        """Drop the lines of metrics.jsonl that are going to be written again."""
        file = self.folder / "metrics.jsonl"
        if self.processes.first and file.exists():
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and _step_of(line) <= step]
            with atomic_file(file) as temporary:
                temporary.write_text("".join(kept), encoding="utf-8")

    def fingerprint(self) -> dict[str, Any]:
        """Return what makes a run this run and no other."""
        config = json.loads(json.dumps(asdict(self.config)))
        return {
            **config,
            "run": {"patience": self.config.run.patience},  # the rest is how it is watched
            "corpus": self.corpus.folder.name,
            "sentences": zlib.crc32(self.sentences.data),
            "heldout": zlib.crc32(json.dumps([list(words) for words in self.heldout]).encode()),
        }


def _seed(*numbers: int) -> int:
    """Mix numbers into a seed."""
    return int(
        np.random.SeedSequence([n + 1 for n in numbers]).generate_state(1, np.uint64)[0] >> 1
    )


def _step_of(line: str) -> int:
    return int(json.loads(line)["step"])
