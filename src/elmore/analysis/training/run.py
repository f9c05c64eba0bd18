"""Description of a training run, and its result."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from elmore.analysis.training.datasets import DATASETS, check_datasets
from elmore.checkpoint.pretrained import model_name
from elmore.embedder import Embedder, Precision, load
from elmore.errors import InputError
from elmore.schema import at_least, check
from elmore.tasks import get_task
from elmore.tasks.config import TaskConfig
from elmore.tasks.train import read_task_config
from elmore.tasks.transformer import hash_transformer
from elmore.training.settings import flatten

_QUICK = ("training.epochs=2",)
_BASELINE = "baseline"
_OPTION_INSTEAD = {
    "training.seed": "seeds",
    "elmo.model": "model",
    "elmo.precision": "precision",
    "elmo.finetune": "finetune",
    "words.vectors": "vectors",
}
"""Settings that have an option of their own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRun:
    """A training run. Its name leaves out `test` and `disturbed`, which do not affect training."""

    dataset: str
    """Name in `DATASETS`."""

    seed: int
    bilm: str | None = None
    """Name of the biLM or transformer in the plan; None for the baseline."""

    settings: tuple[tuple[str, Any], ...] = ()
    """Settings that differ from the defaults for this dataset, by name."""

    share: float = 1.0
    """Share of the training data."""

    test: bool = False
    """Whether the test set is scored, once, after training."""

    disturbed: bool = False
    """Whether disturbed copies of the test set are scored, too."""

    @property
    def name(self) -> str:
        """A name for files, such as `squad-en-place_output-0`."""
        settings = (f"{name.removeprefix('elmo.')}_{value}" for name, value in self.settings)
        share = [f"share_{self.share:g}"] if self.share < 1 else []
        words = [self.dataset, self.bilm or _BASELINE, *settings, *share, str(self.seed)]
        return _as_file_name("-".join(words))


class Bilm(NamedTuple):
    """A biLM, or another frozen encoder, for training runs."""

    source: str
    """Its name or path, for `elmore train`."""

    weights_hash: str
    precision: Precision = "fp32"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Choices that apply to all tables and figures."""

    bilms: Mapping[str, Bilm]
    """The biLMs by name. Table 1 has a column for each; the others use the first."""

    transformers: Mapping[str, Bilm] = field(default_factory=dict)
    """Frozen transformers by name, to compare ELMo with in a table of its own."""

    finetuned: frozenset[str] = frozenset()
    """Datasets for which Table 1 fine-tunes the biLM on the training text first."""

    settings: tuple[str, ...] = ()
    """Settings of all runs, such as `training.epochs=3`."""

    seeds: int | None = None
    """Number of seeds of each run; by default that of the dataset."""

    quick: bool = False
    """Train for a few epochs on small samples, with one seed."""

    def __post_init__(self) -> None:
        check_datasets(self.finetuned)
        check("the number of seeds", self.seeds, at_least(1), optional=True)
        for setting in self.settings:
            name = setting.partition("=")[0].strip()
            if option := _OPTION_INSTEAD.get(name):
                raise InputError(f"{name} cannot be set; use the option {option} instead")
        names = Counter(map(_as_file_name, (_BASELINE, *self.bilms, *self.transformers)))
        name, count = names.most_common(1)[0]
        if count > 1:
            raise InputError(
                f"the name {name} is that of several models, or reserved for the baseline; rename "
                "the folder of a model"
            )

    @property
    def bilm(self) -> str:
        """Name of the first biLM."""
        return next(iter(self.bilms))

    def encoder(self, name: str) -> Bilm:
        """Return the biLM or the transformer with this name."""
        return {**self.transformers, **self.bilms}[name]

    def seeds_of(self, dataset: str) -> range:
        """Return the seeds for a dataset."""
        return range(1 if self.quick else self.seeds or DATASETS[dataset].seeds)

    def runs(
        self,
        dataset: str,
        bilm: str | None,
        *changes: str,
        share: float = 1.0,
        test: bool = False,
    ) -> list[TrainingRun]:
        """Return a run for each seed.

        Args:
            dataset: Name of the dataset.
            bilm: Name of the biLM; None for the baseline.
            *changes: Settings, such as `elmo.place=output`.
            share: Share of the training data.
            test: Score the test set.
        """
        encoder = (f"elmo.precision={self.encoder(bilm).precision}",) if bilm else ()
        placement = () if bilm else ("elmo.place=none",)
        task, defaults = DATASETS[dataset].task, self._defaults(dataset)
        before, after = (
            flatten(asdict(read_task_config(task, None, [*defaults, *some])))
            for some in ((), (*encoder, *self.settings, *changes, *placement))
        )
        settings = tuple(
            (name, value)
            for name, value in after.items()
            if value != before[name] and (bilm or not name.startswith("elmo."))
        )
        first = TrainingRun(
            dataset=dataset, seed=0, bilm=bilm, settings=settings, share=share, test=test
        )
        return [replace(first, seed=seed) for seed in self.seeds_of(dataset)]

    def table1_runs(self, dataset: str, bilm: str | None) -> list[TrainingRun]:
        """Return the runs of Table 1, which score the test set."""
        finetuned = bilm is not None and dataset in self.finetuned
        changes = ("elmo.finetune=true",) if finetuned else ()
        return self.runs(dataset, bilm, *changes, test=True)

    def changes(self, run: TrainingRun) -> list[str]:
        """Return the settings of a run that differ from the defaults of its task."""
        values = ((name, "none" if value is None else value) for name, value in run.settings)
        settings = (f"{name}={json.dumps(value)}" for name, value in values)  # TOML has no null
        return [*self._defaults(run.dataset), *settings]

    def config(self, run: TrainingRun) -> TaskConfig:
        """Return all settings of a run, except for the paths of biLM and word vectors."""
        placement = [] if run.bilm else ["elmo.place=none"]
        changes = [*self.changes(run), *placement, f"training.seed={run.seed}"]
        return read_task_config(DATASETS[run.dataset].task, None, changes)

    def _defaults(self, dataset: str) -> tuple[str, ...]:
        """Return the settings of all runs on a dataset."""
        return (*DATASETS[dataset].settings, *(_QUICK if self.quick else ()))


def plan_training(
    source: str,
    embedder: Embedder,
    *,
    compare: Sequence[str] = (),
    transformers: Mapping[str, Path] | None = None,
    finetuned: Sequence[str] = (),
    settings: Sequence[str] = (),
    seeds: int | None = None,
    quick: bool = False,
) -> Plan:
    """Return a plan for a biLM.

    Args:
        source: Name or path of the biLM.
        embedder: The same biLM; training runs use its precision.
        compare: Names or paths of more biLMs.
        transformers: Folders of frozen transformers by name.
        finetuned: See `Plan`.
        settings: See `Plan`.
        seeds: See `Plan`.
        quick: See `Plan`.

    Raises:
        InputError: If two biLMs have the same name, or an argument is invalid.
    """
    precision = embedder.precision
    bilms = {model_name(source): Bilm(source, embedder.weights_hash, precision)}
    for other in compare:
        name = model_name(other)
        if name in bilms:
            raise InputError(f"several models are called {name}; rename one of their folders")
        bilms[name] = Bilm(other, load(other, device="cpu").weights_hash, precision)
    return Plan(
        bilms=bilms,
        transformers={
            name: Bilm(str(path), hash_transformer(path))
            for name, path in (transformers or {}).items()
        },
        finetuned=frozenset(finetuned),
        settings=tuple(settings),
        seeds=seeds,
        quick=quick,
    )


def _as_file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name)


class RunResult(NamedTuple):
    """Scores of a run, in percent, and what it learned."""

    dev: float
    """Best score on the dev set."""

    test: float | None
    curve: list[float]
    """Score on the dev set after each epoch."""

    layer_weights: dict[str, list[float]]
    """Softmax-normalized weights of the layers, by position: input, output."""

    perplexity: tuple[float, float] | None
    """Perplexity of the task's text before and after fine-tuning the biLM on it."""

    disturbed: Mapping[str, float] = MappingProxyType({})
    """Scores on disturbed copies of the test set, by the name of the copy."""

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "RunResult":
        """Return the result in the JSON file of a run."""
        metrics = record["metrics"]
        score = get_task(metrics["task"]).score_name
        scores = {split: 100 * values[score] for split, values in metrics["scores"].items()}
        perplexity = record["perplexity"]
        return cls(
            dev=scores["dev"],
            test=scores.get("test"),
            curve=[100 * value for value in record["dev_scores"]],
            layer_weights={place: mix["weights"] for place, mix in metrics["elmo"].items()},
            perplexity=(perplexity["before"], perplexity["after"]) if perplexity else None,
            disturbed={
                Path(name).stem: score
                for name, score in scores.items()
                if name not in ("dev", "test")
            },
        )


Results = Mapping[str, RunResult]
"""Results of finished runs, by the name of the run."""


def finished(results: Results, runs: Sequence[TrainingRun]) -> list[RunResult]:
    """Return the results of those runs that have finished."""
    return [results[run.name] for run in runs if run.name in results]


def scores_on_dev(results: Results, runs: Sequence[TrainingRun]) -> dict[int, float]:
    """Return the dev scores of those runs that have finished, by seed."""
    return {run.seed: results[run.name].dev for run in runs if run.name in results}


def scores_on_test(results: Results, runs: Sequence[TrainingRun]) -> dict[int, float]:
    """Return the test scores of those runs that have finished and have one, by seed."""
    tests = {run.seed: results[run.name].test for run in runs if run.name in results}
    return {seed: score for seed, score in tests.items() if score is not None}


def describe_seeds(seeds: Iterable[int]) -> str:
    """Return seeds as text, such as `0 to 4` or `0, 2`."""
    numbers = sorted(set(seeds))
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers)) or "none"
