"""The training loop of a biLM: steps, evaluations, early stopping."""

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from itertools import count
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from elmore.bilm.language_model import LanguageModel
from elmore.bilm.lstm import ProjectedLSTM
from elmore.bilm.model import BiLM, BiLMState
from elmore.bilm.softmax import Softmax
from elmore.checkpoint.hash import hash_weights
from elmore.errors import InputError
from elmore.prefetch import prefetch
from elmore.pretrain.config import PretrainConfig
from elmore.pretrain.graph import GraphedStep, Step
from elmore.pretrain.heldout import split_heldout
from elmore.pretrain.perplexity import measure_perplexity
from elmore.pretrain.resume import save_checkpoint
from elmore.pretrain.step import StepResult, train_step
from elmore.text.corpus import Corpus
from elmore.text.vocabulary import Vocabulary
from elmore.text.windows import LMBatch, Windows
from elmore.training.checkpoints import checkpoint_files
from elmore.training.optim import make_optimizer, set_learning_rate
from elmore.training.processes import Processes
from elmore.training.run_folder import RunFolder

_BATCHES_AHEAD = 4


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
                f"sentences; the text has {len(self.sentences)} that are not held out, nor equal "
                "to one that is. Use more text or fewer streams."
            )
        self.heldout = heldout if heldout is not None else held_out
        self.start_hash = hash_weights(start[0].bilm.state_dict()) if start else None
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
        self._timed_from = 0, 0.0
        """Step and time at the last line of metrics or, if later, at the start of `run`."""
        self.sums = _Sums(processes.device)
        rows = torch.empty(self.rows.stop - self.rows.start, 0, 0, device=processes.device)
        lstms = (*self.model.bilm.forward_lstms, *self.model.bilm.backward_lstms)
        self.state = [cast("ProjectedLSTM", lstm).zero_state(rows) for lstm in lstms]
        self.windows_state: np.ndarray | None = None

    @property
    def progress(self) -> float:
        """Share of the run that is done, by steps or, with a time limit, by time."""
        return min(1.0, max(self.step / self.total_steps, self.seconds / self.max_seconds))

    @property
    def complete(self) -> bool:
        """Whether the last step is done, or early stopping has ended the run."""
        patience = self.config.run.patience
        return self.progress >= 1 or (patience is not None and self.bad_evaluations >= patience)

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[dict[str, Any]]:
        """Train until complete or asked to stop; yield lines for metrics.jsonl."""
        run = self.config.run
        step = self._make_step()
        start, seconds_before = time.monotonic(), self.seconds
        self._timed_from = self.step, start
        last_save, evaluations = self.seconds, math.floor(self.progress * run.evaluations)
        with closing(self._batches()) as batches:
            while not self.complete:
                self._train_step(step, *next(batches))
                # Clocks and signals differ between processes: the first one decides for all.
                seconds = seconds_before + time.monotonic() - start
                self.seconds, stop = self.processes.broadcast(seconds, should_stop())
                if self.step % run.log_steps == 0 or self.complete:
                    yield self._metrics()
                due = math.floor(self.progress * run.evaluations)
                if due > evaluations and not self.complete:
                    evaluations = due
                    record = self.evaluate()
                    self.keep_if_best(record)
                    yield record
                save = stop or self.seconds - last_save >= 60 * run.checkpoint_minutes
                if save and not self.complete:
                    self._check_finite()
                    save_checkpoint(self)
                    last_save = self.seconds
                    if stop:
                        return
        if run.patience is not None:
            self.keep_if_best(self.evaluate())
        if self.best_weights:
            self.model.load_state_dict(self.best_weights)
        yield self.evaluate(all_sentences=True)

    def _batches(self) -> Generator[tuple[LMBatch, np.ndarray], None, None]:
        """Yield windows without end, each with the state of `Windows` after it."""
        training, on_gpu = self.config.training, self.processes.device.type == "cuda"
        windows = Windows(
            self.corpus,
            targets=self.corpus.targets(self.vocabulary),
            max_characters=self.config.bilm.max_characters,
            rows=training.streams,
            steps=training.window,
            seed=training.seed,
            carry_state=training.carry_state,
            sentences=self.sentences,
            state=self.windows_state,
        )

        def prepare(_: int) -> tuple[LMBatch, np.ndarray]:
            batch = windows.next(self.rows)
            return LMBatch(*(x.pin_memory() for x in batch)) if on_gpu else batch, windows.state()

        if on_gpu:  # windows are prepared while the GPU computes
            yield from prefetch(prepare, count(), ahead=_BATCHES_AHEAD)
        else:
            yield from map(prepare, count())

    def _make_step(self) -> Step:
        """Return the training step; on a single GPU it is captured as a CUDA graph."""
        training, device = self.config.training, self.processes.device
        several = self.processes.count > 1
        model: nn.Module = DistributedDataParallel(self.model) if several else self.model

        def step(batch: LMBatch, state: BiLMState) -> StepResult:
            softmax, samples = self.model.softmax, training.negatives
            return train_step(
                model,
                self.optimizer,
                LMBatch(*(x.to(device, non_blocking=True) for x in batch)),
                state,
                softmax.draw(samples, self.generator) if samples else None,
                clip_norm=training.clip_norm,
                loss_scale=training.loss_scale,
                parts=training.accumulate,
            )

        capture = device.type == "cuda" and not several
        return GraphedStep(step, [self.generator]) if capture else step

    def _train_step(self, step: Step, batch: LMBatch, windows_state: np.ndarray) -> None:
        seed, rank = self.config.training.seed, self.processes.rank
        set_learning_rate(self.optimizer, self.config.training.lr * self._lr_factor())
        # Seeded anew in each step, so that a resumed run draws the same numbers.
        torch.manual_seed(_combine_seeds(seed, self.step, rank))
        self.generator.manual_seed(_combine_seeds(seed, self.step, -1))  # same in all processes
        losses, grad_norm, self.state = step(batch, self.state)
        self.sums.add(losses, grad_norm)
        self.windows_state = windows_state
        self.step += 1

    def _lr_factor(self) -> float:
        """Return the learning rate as a share of its peak."""
        training = self.config.training
        warmup = min(1.0, (self.progress + 1 / self.total_steps) / max(training.warmup, 1e-9))
        decay = 1 - self.progress if training.schedule == "linear" else 1.0
        return min(warmup, decay / (1 - training.warmup), 1.0)

    # Metrics and evaluation

    def _metrics(self) -> dict[str, Any]:
        """Return a line of metrics: means since the last one."""
        self._check_finite()  # waits for the GPU, so the time is taken after it
        (step, start), now = self._timed_from, time.monotonic()
        self._timed_from = self.step, now
        sums, self.sums = self.sums, _Sums(self.processes.device)
        means = self.processes.gather((sums.values / sums.steps)[None]).mean(dim=0)
        forward, backward, grad_norm = means.tolist()
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
            "tokens_per_second": (self.step - step) * self.tokens_per_step / (now - start),
        }

    def evaluate(self, *, all_sentences: bool = False) -> dict[str, Any]:
        """Return a line of metrics with the perplexity of held-out sentences: a sample, or all."""
        heldout = None
        if self.heldout:
            stride = 1 if all_sentences else -(-len(self.heldout) // self.config.run.max_heldout)
            size = 2048 if self.processes.device.type == "cpu" else 16_384
            perplexity = measure_perplexity(
                self.model, self.vocabulary, self.heldout[::stride], batch_words=size
            )
            heldout = {"average": perplexity.average, **perplexity._asdict()}
        return {
            "step": self.step,
            "tokens": self.step * self.tokens_per_step,
            "seconds": self.seconds,
            "heldout": heldout,
        }

    def keep_if_best(self, evaluation: dict[str, Any]) -> None:
        """With early stopping, keep the best weights and count evaluations since then."""
        if evaluation["heldout"] is None or self.config.run.patience is None:
            return
        if evaluation["heldout"]["average"] < self.best:
            self.best, self.bad_evaluations = evaluation["heldout"]["average"], 0
            self.best_weights = {k: v.clone() for k, v in self.model.state_dict().items()}
        else:
            self.bad_evaluations += 1

    def _check_finite(self) -> None:
        if not self.sums.values.isfinite().all():
            files = checkpoint_files(self.folder.checkpoints)
            last = f"The last good checkpoint is {files[-1]}." if files else "No checkpoint yet."
            raise InputError(
                f"the loss is NaN or infinite at step {self.step}. {last} "
                "Lower training.lr or training.clip_norm and start again."
            )


class _Sums:
    """Sums of losses and gradient norms since the last line of metrics.

    They stay on the device: reading a number from a GPU makes the CPU wait for it.
    """

    def __init__(self, device: torch.device) -> None:
        self.values = torch.zeros(3, device=device)  # forward loss, backward loss, gradient norm
        self.steps = 0

    def add(self, losses: Tensor, grad_norm: Tensor) -> None:
        """Add the metrics of one step."""
        self.values = self.values + torch.cat([losses, grad_norm[None]])
        self.steps += 1


def new_model(
    config: PretrainConfig, corpus: Corpus, bilm: BiLM | None = None
) -> tuple[LanguageModel, Vocabulary]:
    """Return a language model with random weights and the vocabulary of a text.

    If `bilm` is given, only the softmax is new.
    """
    vocabulary = corpus.vocabulary(
        max_size=config.vocabulary.max_size, min_count=config.vocabulary.min_count
    )
    torch.manual_seed(config.training.seed)
    bilm = bilm or BiLM(config.bilm)
    softmax = Softmax(dim=bilm.config.dim, vocab_size=len(vocabulary))
    return LanguageModel(bilm, softmax), vocabulary


def _combine_seeds(*numbers: int) -> int:
    sequence = np.random.SeedSequence([number + 1 for number in numbers])
    return int(sequence.generate_state(1, np.uint64)[0]) >> 1
