"""Train the runs that have no record yet.

OUTPUT/runs/NAME.json      a finished run: settings, scores, conditions
OUTPUT/unfinished/NAME/    an unfinished run, with its checkpoints
OUTPUT/trained/NAME/       a trained task, if weights are kept
"""

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from elmore.analysis.training.datasets import DATASETS, Files, check_datasets
from elmore.analysis.training.mps import multi_process_service
from elmore.analysis.training.noise import NOISES, write_disturbed
from elmore.analysis.training.records import RUNS, Records
from elmore.analysis.training.run import Plan, RunResult, TrainingRun
from elmore.analysis.training.schedule import Job, Show, run_jobs
from elmore.atomic import temporary_folder
from elmore.errors import InputError

UNFINISHED, TRAINED = "unfinished", "trained"
_JOBS_ON_GPU = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """What is trained in one call, and what it may use."""

    datasets: frozenset[str] | None = None
    """Datasets whose missing runs are trained; by default all. Finished runs of others are used."""

    vectors: Path | None = None
    """File of word vectors."""

    device: str = "auto"

    jobs: int | None = None
    """Runs at the same time; by default 12 on a GPU and one on a CPU."""

    minutes: float | None = None
    """Time limit; a later call resumes."""

    keep_weights: bool = False
    """Keep the trained models."""

    def __post_init__(self) -> None:
        check_datasets(self.datasets or frozenset())
        for name in ("jobs", "minutes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} must be positive, got {value}")
        if self.vectors and not self.vectors.is_file():
            raise InputError(f"{self.vectors}: no such file of word vectors")


class Trained(NamedTuple):
    """Finished runs, and why others have not finished."""

    records: dict[str, dict[str, Any]]
    """Contents of the JSON files, by the name of the run."""

    problems: dict[str, str]
    """Reasons by the name of the run, or of the dataset if its files are missing."""

    @property
    def results(self) -> dict[str, RunResult]:
        """The results by the name of the run."""
        return {name: RunResult.from_record(record) for name, record in self.records.items()}


def train_missing(
    plan: Plan,
    runs: Iterable[TrainingRun],
    data: Path,
    output: Path,
    resources: Resources,
    show: Show = lambda _: None,
) -> Trained:
    """Train all runs that have no record under the same conditions; return all records.

    Args:
        plan: The plan of the runs.
        runs: The runs. Identical ones are trained once.
        data: Folder of all data.
        output: Folder for records and unfinished runs.
        resources: What the runs may use.
        show: Called with messages about the progress.

    Raises:
        InputError: If two different runs have the same name.
    """
    wanted: dict[str, TrainingRun] = {}
    for run in runs:
        same = wanted.get(run.name, run)
        if replace(run, test=same.test, disturbed=same.disturbed) != same:
            raise InputError(f"two different runs are called {run.name}; rename a model")
        wanted[run.name] = replace(
            run, test=run.test or same.test, disturbed=run.disturbed or same.disturbed
        )
    datasets = {run.dataset for run in wanted.values()}
    selected = datasets if resources.datasets is None else resources.datasets
    files, problems = _find_files(datasets, selected, data, show)
    records = Records(output / RUNS, plan, files, data, resources.vectors)
    trained = Trained({}, problems)
    waiting = []
    for run in wanted.values():
        record = records.read(run) if run.dataset in files else None
        if record:
            trained.records[run.name] = record
        elif run.dataset not in selected:
            problems[run.name] = "not run: its dataset was not selected"
        elif run.dataset in files:
            waiting.append(run)
    if waiting:
        show(f"training runs: {len(trained.records)} finished before, {len(waiting)} to do")
        new, unfinished = _train(plan, waiting, files, records, output, resources, show)
        trained.records.update(new)
        trained.problems.update(unfinished)
    return trained


def _train(
    plan: Plan,
    runs: Sequence[TrainingRun],
    files: Mapping[str, Files],
    records: Records,
    output: Path,
    resources: Resources,
    show: Show,
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Train runs; return the records of those that finish, and why others do not."""
    new: dict[str, dict[str, Any]] = {}
    unfinished = output / UNFINISHED

    def finish(run: TrainingRun, folder: Path) -> str:
        if resources.keep_weights:
            kept = output / TRAINED / run.name
            shutil.rmtree(kept, ignore_errors=True)
            kept.parent.mkdir(exist_ok=True)
            folder.rename(kept)
            try:
                new[run.name] = records.write(run, kept)
            except BaseException:  # only a run in `folder` can be finished by the next call
                kept.rename(folder)
                raise
        else:
            new[run.name] = records.write(run, folder)
            shutil.rmtree(folder, ignore_errors=True)
        return _summarize(new[run.name])

    def priority(run: TrainingRun) -> tuple[bool, float, float]:
        """Unfinished runs come first, then long runs, which usually shortens the total.

        With a time limit, all runs with a seed come before those with the next.
        """
        started = (unfinished / run.name).exists()
        duration = DATASETS[run.dataset].minutes * run.share
        if resources.minutes:
            return not started, run.seed, -duration
        return not started, -duration, run.seed

    on_gpu = resources.device != "cpu" and torch.cuda.is_available()
    at_once = min(resources.jobs or (_JOBS_ON_GPU if on_gpu else 1), len(runs))
    threads = max(1, (os.cpu_count() or 1) // at_once)
    environment = {
        "OMP_NUM_THREADS": str(threads),
        # Batches of many lengths fragment the memory of a GPU. This name also works with versions
        # of PyTorch before 2.9, unlike PYTORCH_ALLOC_CONF.
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        **os.environ,
        "PYTHONUNBUFFERED": "1",
    }
    mps = multi_process_service(environment) if on_gpu else nullcontext(environment)
    with temporary_folder() as scratch, mps as job_environment:
        prepare = _Preparation(files, scratch, quick=plan.quick)

        def job(run: TrainingRun) -> Job:
            return Job(
                name=run.name,
                command=lambda folder, resume: train_command(
                    plan, run, prepare(run), folder, resources, resume=resume
                ),
                finish=lambda folder: finish(run, folder),
                identity=lambda: records.identity(run),
            )

        problems = run_jobs(
            [job(run) for run in sorted(runs, key=priority)],
            unfinished,
            at_once=at_once,
            minutes=resources.minutes,
            environment=job_environment,
            show=show,
        )
    with suppress(OSError):  # not empty
        unfinished.rmdir()
    return new, problems


def train_command(
    plan: Plan,
    run: TrainingRun,
    files: Files,
    folder: Path,
    resources: Resources,
    *,
    resume: bool,
) -> list[str]:
    """Return the command line of a run."""
    arguments: list[object] = [sys.executable, "-m", "elmore", "train", DATASETS[run.dataset].task]
    arguments += ["-o", folder, "--dev", files.dev]
    arguments += [word for path in files.train for word in ("--train", path)]
    arguments += ["--test", files.test, *files.disturbed] if run.test else []
    arguments += ["--model", plan.encoder(run.bilm).source] if run.bilm else ["--no-elmo"]
    arguments += ["--vectors", resources.vectors] if resources.vectors else []
    arguments += [f"--set={change}" for change in plan.changes(run)]
    arguments += ["--seed", run.seed, "--device", resources.device]
    arguments += ["--resume"] if resume else []
    return list(map(str, arguments))


def _find_files(
    datasets: Set[str], selected: Set[str], data: Path, show: Show
) -> tuple[dict[str, Files], dict[str, str]]:
    """Return the files of datasets, and the reasons why selected ones are not available."""
    files, problems = dict[str, Files](), dict[str, str]()
    for dataset in (name for name in DATASETS if name in datasets):
        try:
            files[dataset] = DATASETS[dataset].find(data)
        except InputError as error:
            if dataset in selected:
                problems[dataset] = f"not run: {error}"
                show(f"{dataset}: not run: {error}")
    return files, problems


class _Preparation:
    """Writes the files of runs when they are first needed."""

    def __init__(self, files: Mapping[str, Files], folder: Path, *, quick: bool) -> None:
        self._files, self._folder, self._quick = files, folder, quick
        self._prepared: dict[str, Files] = {}

    def __call__(self, run: TrainingRun) -> Files:
        """Return the files of a run.

        Raises:
            InputError: If a file is damaged.
        """
        key = run.dataset if run.share == 1 else f"{run.dataset}-{run.share:g}-{run.seed}"
        if key not in self._prepared:
            folder = self._folder / key
            folder.mkdir(exist_ok=True)
            self._prepared[key] = DATASETS[run.dataset].prepare(
                self._files[run.dataset],
                folder,
                share=run.share,
                seed=run.seed,
                quick=self._quick,
            )
        files = self._prepared[key]
        return (
            files._replace(disturbed=self._disturbed(key, files.test)) if run.disturbed else files
        )

    def _disturbed(self, key: str, test: Path) -> tuple[Path, ...]:
        """Return disturbed copies of a test file."""
        copies = {self._folder / key / f"{noise.name}.conll": noise for noise in NOISES}
        for path, (kind, percent) in copies.items():
            if not path.exists():
                write_disturbed(test, path, kind, percent / 100)
        return tuple(copies)


def _summarize(record: Mapping[str, Any]) -> str:
    """Return one line with the scores of a run."""
    result, metrics = RunResult.from_record(record), record["metrics"]
    test = "" if result.test is None else f", test {result.test:.2f}"
    return (
        f"dev {result.dev:.2f}{test}, {metrics['epochs']} epochs, "
        f"{record['conditions']['seconds']:.0f} s"
    )
