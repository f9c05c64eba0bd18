"""`elmore train`: a task of the paper, with and without ELMo."""

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from elmore.cli.options import Changes, Json, Output, Overwrite, Resume
from elmore.tasks import TASKS

if TYPE_CHECKING:
    TaskName = str
else:  # the choices that `--help` lists; type checkers accept literal values only
    TaskName = Literal[*TASKS]


def train(
    task: TaskName,
    *,
    train: Annotated[tuple[Path, ...], Parameter(consume_multiple=True, negative="")],
    dev: Path,
    output: Output,
    test: Path | None = None,
    no_elmo: Annotated[bool, Parameter(negative="")] = False,
    elmo: Literal["input", "output", "both"] | None = None,
    layers: Literal["learned", "top", "average"] | None = None,
    lambda_: Annotated[float | None, Parameter(name="--lambda")] = None,
    init_bilm: Annotated[str | None, Parameter(alias="-m")] = None,
    finetune_bilm: Annotated[bool, Parameter(negative="")] = False,
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
    """Train a task on your data, with ELMo or without.

    Examples:
        elmore train ner --train a.conll --dev b.conll -o runs/ner --vectors glove.6B.100d.txt

        elmore train ner --train a.conll --dev b.conll -o runs/baseline --no-elmo

    Args:
        task: What to learn.
        train: Files of training examples, in the task's standard format.
        dev: File of examples that decide when to stop and which weights to keep.
        test: File of examples to score once, at the end.
        output: Folder for the trained task.
        no_elmo: Leave ELMo out: the baseline.
        elmo: Where ELMo enters: at the input of the task's RNN, at its output, or at both.
        layers: The mix of the biLM's layers.
        lambda_: Pulls the learned mix to an average.
        init_bilm: The biLM: a folder, HDF5 weights, or en, which ships with elmore.
        finetune_bilm: Let the biLM go on learning on the training text first.
        vectors: Word vectors: GloVe or word2vec, text or .bin, or .npz.
        seed: Decides the first weights, the order of the examples and dropout.
        max_minutes: End the training after so long, with the best weights until then.
        recipe: TOML file with the settings of a run; a run's own config.toml repeats it.
        changes: A setting on top of that, as in training.lr=1e-3; may be given many times.
        device: Where to compute: auto, cpu, cuda or cuda:NUMBER.
    """
    from elmore.cli.progress import with_progress
    from elmore.errors import InputError
    from elmore.tasks import read_task_config, train_task

    if no_elmo and (elmo or layers or init_bilm or finetune_bilm or lambda_ is not None):
        raise InputError("--no-elmo leaves ELMo out: leave out its other options, too")
    switches = {
        "elmo.place": "none" if no_elmo else elmo,
        "elmo.layers": layers,
        "elmo.penalty": lambda_,
        "elmo.model": init_bilm,
        "elmo.finetune": finetune_bilm or None,
        "words.vectors": vectors,
        "training.seed": seed,
    }
    typed = [f"{name}={json.dumps(_plain(v))}" for name, v in switches.items() if v is not None]
    config = read_task_config(task, recipe, [*typed, *changes])
    if no_elmo and config.elmo.place != "none":
        raise InputError(f"--no-elmo and elmo.place={config.elmo.place}: leave one of them out")
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
        report=(lambda _: None) if json_output else show_epoch,
        watch=lambda stream: with_progress(stream, "sentences through the biLM"),
    )
    if json_output:
        print(json.dumps(summary))
        return
    for part, scores in summary["scores"].items():
        print(f"{part:5} {show_scores(scores)}")
    cut = ", cut short by --max-minutes" if summary["cut_short"] else ""
    print(f"{summary['epochs']} epochs in {summary['seconds']:.0f} s{cut} -> {output}")


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def show_epoch(record: dict[str, Any]) -> None:
    """Print what an epoch has brought."""
    if "note" in record:
        print(record["note"], flush=True)
        return
    first = dict(islice(record["dev"].items(), 4))  # the score that counts, and what makes it up
    print(
        f"epoch {record['epoch']:3}  loss {record['loss']:8.4f}  dev {show_scores(first)}"
        f"  {record['seconds']:.1f} s",
        flush=True,
    )


def show_scores(scores: dict[str, float]) -> str:
    """Return scores as percentages."""
    return "  ".join(f"{name} {100 * score:.2f}" for name, score in scores.items())
