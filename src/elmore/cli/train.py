"""`elmore train`: train a task, with or without ELMo."""

import json
import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from elmore.cli.options import (
    BILM_NAMES,
    SEVERAL,
    Changes,
    Json,
    Output,
    Overwrite,
    Resume,
    TaskPrecision,
)
from elmore.cli.show import count, show
from elmore.tasks import TASKS

TaskName = Annotated[
    str,
    Parameter(
        help=f"The task to train: {', '.join(TASKS)}; or module:name, a task of your own in a "
        "module that is installed or in the working directory."
    ),
]


def train(
    task: TaskName,
    *,
    train: Annotated[tuple[Path, ...], SEVERAL],
    dev: Path,
    output: Output,
    test: Annotated[tuple[Path, ...], SEVERAL] = (),
    no_elmo: bool = False,
    elmo: Literal["input", "output", "both"] | None = None,
    layers: Literal["learned", "top", "average"] | None = None,
    lambda_: Annotated[float | None, Parameter(name="--lambda")] = None,
    model: Annotated[str | None, Parameter(name=BILM_NAMES, alias="-m")] = None,
    precision: TaskPrecision = None,
    finetune_bilm: bool = False,
    vectors: Path | None = None,
    seed: int | None = None,
    max_minutes: float | None = None,
    recipe: Path | None = None,
    changes: Changes = (),
    device: str = "auto",
    resume: Resume = False,
    overwrite: Overwrite = False,
    json_output: Json = False,
) -> None:
    """Train a task on your data, with or without ELMo.

    Example: `elmore train ner --train a.conll --dev b.conll -o runs/ner --vectors glove.txt`

    Example: `elmore train tag --train a.conllu --dev b.conllu -o runs/tag --set data.column=xpos`

    Example: `elmore train classify --train a.csv --dev b.csv -o runs/topics`

    Example: `elmore train my_module:TASK --train a.txt --dev b.txt -o runs/mine`

    Args:
        train: Training files, in the task's standard format.
        dev: Dev set, for early stopping and to select the best weights.
        test: Test set or sets, scored once after training.
        output: Folder for the trained task.
        no_elmo: Train the baseline, without ELMo.
        elmo: Where ELMo enters: at the input of the task's RNN, at its output, or both.
        layers: How the layers of the biLM are mixed.
        lambda_: Strength of the regularization that pulls a learned mix toward the average.
        model: The biLM: name of an installed model, such as en, a folder or HDF5 weights. The
            folder of a Hugging Face transformer is used as a frozen encoder in its place.
        finetune_bilm: Fine-tune the biLM on the training text first.
        vectors: Word vectors: GloVe or word2vec, text or .bin, or .npz.
        seed: Seed of the initial weights, the order of the examples and dropout.
        max_minutes: Stop before the first epoch that would end after this many minutes since the
            start, including the biLM pass; keep the best weights so far. --resume continues.
        recipe: TOML file with settings; the config.toml of a run repeats that run.
        changes: Change a setting, as in training.lr=1e-3; may be given several times.
        device: Where to compute: auto, cpu, cuda or cuda:NUMBER.
    """
    from elmore.errors import InputError
    from elmore.tasks import read_task_config, train_task
    from elmore.tasks.show import show_report
    from elmore.training.settings import flatten

    elmo_options = (elmo, layers, model, precision, finetune_bilm or None, lambda_)
    if no_elmo and any(option is not None for option in elmo_options):
        raise InputError("--no-elmo cannot be combined with other options of ELMo")
    options = {
        "elmo.place": "none" if no_elmo else elmo,
        "elmo.layers": layers,
        "elmo.penalty": lambda_,
        "elmo.model": model,
        "elmo.precision": precision,
        "elmo.finetune": finetune_bilm or None,
        "words.vectors": str(vectors) if vectors else None,
        "training.seed": seed,
    }
    given = [f"{name}={json.dumps(v)}" for name, v in options.items() if v is not None]
    config = read_task_config(task, recipe, [*given, *changes])
    settings = flatten(asdict(config))
    for name, value in options.items():
        if value is not None and settings[name] != value:
            raise InputError(
                f"conflicting values of {name}: {value} by its option, {settings[name]} by --set"
            )
    # With --json, standard output holds nothing but the summary.
    with redirect_stdout(sys.stderr if json_output else sys.stdout):
        summary = train_task(
            task,
            output,
            train=train,
            dev=dev,
            test=test,
            config=config,
            max_minutes=max_minutes,
            resume=resume,
            overwrite=overwrite,
            device=device,
        )
    reports = dict(summary["scores"])
    if "test" in reports:
        details = {name: summary.get(name, {}) for name in ("by_label", "confusion")}
        reports["test"] = reports["test"] | details
    lines = [f"{part:5} {show_report(report)}" for part, report in reports.items()]
    limit = ", stopped by --max-minutes; continue with --resume" if summary["cut_short"] else ""
    lines.append(
        f"{count(summary['epochs'], 'epoch')} in {summary['seconds']:.0f} s of training{limit}; "
        f"the whole command took {summary['total_seconds']:.0f} s -> {output}"
    )
    show(summary, "\n".join(lines), as_json=json_output)
