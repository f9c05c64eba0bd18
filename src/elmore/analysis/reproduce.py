"""Run evaluations of a model; write one JSON file for each, and a report.

Evaluations and training runs that are finished are skipped when the same command runs again.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from elmore.analysis.conditions import changed_conditions, describe_conditions
from elmore.analysis.data_files import checksums, find_files
from elmore.analysis.evaluation import Model, Part, TrainingPart
from elmore.analysis.html import render_html
from elmore.analysis.parts import PARTS
from elmore.analysis.quick import sampled_files
from elmore.analysis.report import render_report
from elmore.analysis.results import NotAvailableError, Plot, Result
from elmore.analysis.training.datasets import DATASETS
from elmore.analysis.training.records import RUNS
from elmore.analysis.training.run import Plan, TrainingRun, describe_seeds
from elmore.analysis.training.train import Resources, Trained, train_missing
from elmore.atomic import lock, write_text
from elmore.checkpoint.language_model import NoSoftmaxError
from elmore.errors import InputError, MissingExtraError, is_out_of_memory
from elmore.schema import write_json
from elmore.tasks.vectors import read_word_vectors
from elmore.training.run_folder import hardware_name

REPORT, PAGE = "report.md", "report.html"

_FREQUENT = ("a", "i", "'s", "n't", "1", "2018")
"""Frequent tokens that a file of word vectors should have."""


class Outcomes(NamedTuple):
    """What `reproduce` has done."""

    records: dict[str, dict[str, Any]]
    """Contents of the JSON files by evaluation, new or from an earlier run."""

    not_run: dict[str, str]
    """Reasons why evaluations were not run: data that are not there, for example."""

    failed: dict[str, str]
    """Errors of evaluations and of training runs."""

    unfinished: list[str]
    """Names of training runs that the time limit has stopped or kept from starting."""


class Training(NamedTuple):
    """What to train, and with which resources."""

    plan: Plan
    resources: Resources


def reproduce(
    model: Model,
    parts: Mapping[str, Part | TrainingPart],
    data: Path,
    output: Path,
    *,
    training: Training | None = None,
    quick: bool = False,
    show: Callable[[str], None] = lambda _: None,
) -> Outcomes:
    """Run evaluations and write their results to a folder.

    An evaluation is skipped if the folder has its result for the same weights, data, settings and
    version of elmore; a result under other conditions is replaced. An evaluation with invalid data,
    too little memory or a missing package does not stop the others.

    Args:
        model: The model.
        parts: Evaluations by name, see `select_parts`.
        data: Folder of all data.
        output: Folder for the results: `NAME.json` for each evaluation, `runs/NAME.json` for each
            training run, and the report, which includes earlier evaluations of the same weights.
        training: How tasks are trained. Without it, their tables are not made.
        quick: Use small samples of the data.
        show: Called with messages about the progress.

    Raises:
        InputError: If a dataset is selected that none of the evaluations trains on, or if a quick
            run would replace results of a full run.
    """
    if training:
        _check_datasets(parts, training)
    start = time.monotonic()
    outcomes = Outcomes({}, {}, {}, [])
    with lock(output):
        output.mkdir(exist_ok=True)
        if quick:
            _require_no_full_results(output)
        for name, part in parts.items():
            if isinstance(part, TrainingPart):
                continue
            try:
                outcomes.records[name] = _run(name, part, model, data, output, show, quick=quick)
            except (NotAvailableError, NoSoftmaxError) as error:
                outcomes.not_run[name] = str(error)
                show(f"{name}: not run: {error}")
            except (InputError, MissingExtraError, OSError) as error:
                outcomes.failed[name] = str(error)
                show(f"{name}: failed: {error}")
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                reason = f"not enough memory ({' '.join(str(error).split()):.200})"
                outcomes.failed[name] = reason
                show(f"{name}: failed: {reason}")
        tables = {name: part for name, part in parts.items() if isinstance(part, TrainingPart)}
        if training and tables:
            elapsed = (time.monotonic() - start) / 60
            _train(tables, model, training, data, output, elapsed, outcomes, show)
        _write_report(output, outcomes, model.embedder.weights_hash, quick=quick)
    return outcomes


def _require_no_full_results(output: Path) -> None:
    """Raise an `InputError` if a quick run would replace results of a full one."""
    for path in (*output.glob("*.json"), *(output / RUNS).glob("*.json")):
        try:
            conditions = _read_record(path)["conditions"]
        except InputError:  # damaged files are replaced
            continue
        if not conditions.get("quick", False):
            raise InputError(
                f"{output} has results of a full run; choose another folder for a quick one"
            )


def _run(
    name: str,
    part: Part,
    model: Model,
    data: Path,
    output: Path,
    show: Callable[[str], None],
    *,
    quick: bool,
) -> dict[str, Any]:
    """Return the contents of the JSON file of an evaluation, after running it if necessary."""
    file = output / f"{name}.json"
    try:
        paths = find_files(data / part.folder, part.files)
    except NotAvailableError as error:
        raise NotAvailableError(f"{error}; source: {part.source}") from None
    conditions = describe_conditions(model.name, model.embedder, checksums(paths, data))
    if part.precision:
        conditions["precision"] = part.precision
    if part.device:
        conditions["device"] = hardware_name(torch.device(part.device))
    if quick:
        conditions["quick"] = True
    if file.exists():
        record = _read_record(file)
        changed = changed_conditions(record["conditions"], conditions)
        if not changed:
            show(f"{name}: finished before, skipped")
            return record
        show(f"{name}: running again, because of a different {', '.join(changed)}")
    else:
        show(f"{name}: {part.title}")
    start = time.monotonic()
    samplers = [part.quick.get(file) for file in part.files]
    with sampled_files(paths, samplers) if quick else nullcontext(paths) as measured:
        result = part.measure(model, measured)
    seconds = round(time.monotonic() - start, 1)
    figures = _write_figures(name, lambda: part.plot(result), output, show)
    scores = {row: {**cells, **part.paper.get(row, {})} for row, cells in result.scores.items()}
    record = _new_record(part, result._replace(scores=scores), figures, quick=quick)
    record["conditions"] = {**conditions, "seconds": seconds}
    write_json(file, record)
    return record


def _new_record(
    part: Part | TrainingPart, result: Result, figures: list[dict[str, str]], *, quick: bool
) -> dict[str, Any]:
    """Return the contents of the JSON file of an evaluation, without its conditions."""
    return {
        "title": part.title,
        "scores": result.scores,
        "details": result.details,
        "findings": [] if quick else list(result.findings),
        "notes": list(result.notes),
        "figures": figures,
        "about": part.about,
        "published": part.published,
        "decimals": part.decimals,
    }


def _check_datasets(parts: Mapping[str, Part | TrainingPart], training: Training) -> None:
    plan, resources = training
    of_parts = (part.runs(plan) for part in parts.values() if isinstance(part, TrainingPart))
    used = {run.dataset for runs in of_parts for run in runs}
    if unused := (resources.datasets or frozenset()) - used:
        if not used:
            raise InputError(
                "datasets can only be selected for evaluations with training, such as table1"
            )
        names = ", ".join(name for name in DATASETS if name in used)
        quick = " in a quick run" if plan.quick else ""
        raise InputError(
            f"the selected evaluations do not train on {min(unused)}{quick}; they train on {names}"
        )


def _train(
    parts: Mapping[str, TrainingPart],
    model: Model,
    training: Training,
    data: Path,
    output: Path,
    elapsed: float,
    outcomes: Outcomes,
    show: Callable[[str], None],
) -> None:
    """Train what is missing, and write the tables and figures."""
    plan, resources = training
    runs = {name: part.runs(plan) for name, part in parts.items()}
    if resources.minutes is not None:
        left = max(resources.minutes - elapsed, 1e-6)
        resources = replace(resources, minutes=left)
    every_run = [run for of_part in runs.values() for run in of_part]
    trained = train_missing(plan, every_run, data, output, resources, show)
    for name, reason in trained.problems.items():
        if reason.startswith("failed: "):
            outcomes.failed[name] = reason.removeprefix("failed: ")
        elif reason.startswith("not finished: "):
            outcomes.unfinished.append(name)
    if outcomes.unfinished:
        show(f"training runs that have not finished: {len(outcomes.unfinished)}")
    results, vectors = trained.results, _describe_vectors(resources.vectors)
    settings = [f"Settings of all runs: {', '.join(plan.settings)}."] if plan.settings else []
    for name, part in parts.items():
        finished = [trained.records[run.name] for run in runs[name] if run.name in trained.records]
        missing = _describe_missing(runs[name], trained)
        result = part.measure(plan, results)
        if not result.scores:
            outcomes.not_run[name] = " ".join(missing)
            show(f"{name}: not run: {outcomes.not_run[name]}")
            continue
        datasets = dict.fromkeys(run.dataset for run in runs[name] if run.name in trained.records)
        notes = (*result.notes, *settings, *_describe_data(datasets), vectors, *missing)
        figures = _write_figures(name, partial(part.plot, plan, results), output, show)
        record = _new_record(part, result._replace(notes=notes), figures, quick=plan.quick)
        record["runs"] = [run.name for run in runs[name] if run.name in trained.records]
        record["conditions"] = _conditions_of(finished, model, quick=plan.quick)
        write_json(output / f"{name}.json", record)
        outcomes.records[name] = record


def _write_figures(
    name: str, draw: Callable[[], list[Plot]], output: Path, show: Callable[[str], None]
) -> list[dict[str, str]]:
    """Write the figures of an evaluation; return their files and captions."""
    try:
        plots = draw()
    except MissingExtraError as error:
        show(f"{name}: no figures: {error}")
        return []
    for plot in plots:
        write_text(output / f"{plot.name}.svg", plot.svg)
    return [{"file": f"{plot.name}.svg", "caption": plot.caption} for plot in plots]


def _describe_missing(runs: list[TrainingRun], trained: Trained) -> list[str]:
    """Return a sentence for each reason why runs have no result."""
    seeds: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for run in runs:
        if run.name not in trained.records:
            key = run.name if run.name in trained.problems else run.dataset
            variant = run.name.removeprefix(f"{run.dataset}-").rpartition("-")[0]
            seeds[trained.problems[key], run.dataset, variant].append(run.seed)
    variants: defaultdict[str, defaultdict[tuple[str, str], list[str]]]
    variants = defaultdict(lambda: defaultdict(list))
    for (reason, dataset, variant), numbers in seeds.items():
        text = f"seed{'s' * (len(numbers) > 1)} {describe_seeds(numbers)}"
        variants[reason][dataset, text].append(variant)
    sentences = []
    for reason, groups in variants.items():
        missing = (
            f"{dataset} ({', '.join(names)}; {text})" for (dataset, text), names in groups.items()
        )
        sentences.append(f"No results for {', '.join(missing)}: {reason}.")
    return sentences


def _describe_data(datasets: Iterable[str]) -> list[str]:
    """Return how data and splits differ from those of the paper."""
    used = [DATASETS[name] for name in datasets]
    return [f"{dataset.title}: {dataset.about}" for dataset in used if dataset.about]


def _describe_vectors(path: Path | None) -> str:
    """Return a sentence on the word vectors of all runs."""
    if path is None:
        return (
            "There were no pretrained word vectors: those of all words are learned. The paper uses "
            "GloVe, https://nlp.stanford.edu/projects/glove."
        )
    words, vectors = read_word_vectors(path)
    known = set(words)
    sentence = f"Word vectors: `{path.name}`, {len(words):,} words, {vectors.shape[1]} dimensions."
    absent = [f"`{word}`" for word in _FREQUENT if word not in known]
    if absent:
        sentence += (
            f" It has no vectors of frequent tokens such as {', '.join(absent)}. A word without a "
            "vector gets one in training if it occurs at least twice in the training data. Of the "
            "rarer ones, those with digits share a vector by their shape, such as `1,847` and "
            "`2,310`; all others share one."
        )
    return sentence


def _conditions_of(records: list[dict[str, Any]], model: Model, *, quick: bool) -> dict[str, Any]:
    """Return the conditions of all runs of a table; where they differ, all of them."""
    conditions = [record["conditions"] for record in records]

    def every(name: str) -> str | None:
        return " and ".join(dict.fromkeys(str(c[name]) for c in conditions if c[name])) or None

    with_bilm = (c["config"]["elmo"]["precision"] for c in conditions if c["weights_hash"])

    data = {file: checksum for c in conditions for file, checksum in c["data"].items()}
    for c in conditions:
        data |= c["vectors"] or {}
    of_all = {
        "model": model.name,
        "weights_hash": model.embedder.weights_hash,
        **{name: every(name) for name in ("elmore", "commit", "torch")},
        "precision": " and ".join(dict.fromkeys(with_bilm)) or None,
        "device": every("hardware"),
        "seconds": round(sum(c["seconds"] for c in conditions), 1),
        "data": data,
    }
    return {**of_all, "quick": True} if quick else of_all


def _write_report(output: Path, outcomes: Outcomes, weights_hash: str, *, quick: bool) -> None:
    """Write a report of these and of earlier evaluations of the same weights."""
    of_files = sorted(
        file.stem for kind in ("perplexity", "pairs") for file in output.glob(f"{kind}-*.json")
    )
    records, damaged = {}, {}
    for name in (*PARTS, *of_files):
        file = output / f"{name}.json"
        if name in outcomes.records:
            records[name] = outcomes.records[name]
        elif name not in outcomes.failed and file.exists():
            try:
                record = _read_record(file)
            except InputError as error:
                damaged[name] = str(error)
                continue
            measured = record["conditions"]
            if (measured.get("weights_hash"), measured.get("quick", False)) == (
                weights_hash,
                quick,
            ):
                records[name] = record
    names_of: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    no_result = {"not run": outcomes.not_run, "failed": outcomes.failed, "damaged": damaged}
    for kind, reasons in no_result.items():
        for name, reason in reasons.items():
            if name not in records:
                names_of[kind, reason].append(name)
    problems = {
        f"{', '.join(of_reason)} ({kind})": reason for (kind, reason), of_reason in names_of.items()
    }
    if records:
        write_text(output / REPORT, render_report(records, problems))
        write_text(output / PAGE, render_html(records, problems, output))


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = dict(json.loads(path.read_text(encoding="utf-8")))
        return {**record, "conditions": dict(record["conditions"])}
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} is damaged ({error}); delete it to measure again") from error
