"""`elmore evaluate`: score a trained task on labeled examples."""

import json
import sys
from collections.abc import Collection
from pathlib import Path

from elmore.cli.options import Json, Overwrite, OwnTask, TaskPrecision, TrainedBiLM
from elmore.cli.show import show


def evaluate(
    run: Path,
    file: Path,
    *,
    predictions: Path | None = None,
    task: OwnTask = None,
    model: TrainedBiLM = None,
    device: str = "auto",
    precision: TaskPrecision = None,
    overwrite: Overwrite = False,
    json_output: Json = False,
) -> None:
    """Score a trained task on labeled examples.

    Prints the scores and, if the task has labels, precision, recall and F1 of each label and the
    confusion matrix.

    Example: `elmore evaluate runs/ner c.conll --predictions predictions.jsonl`

    Args:
        run: Folder written by `elmore train`, or the name of an installed task, such as en/ner.
        file: Labeled examples, in the task's standard format.
        predictions: File for the predictions, one line of JSON per example. An existing file is
            replaced only if its first line looks like a prediction of this task.
        device: Where to compute: auto, cpu, cuda or cuda:NUMBER.
    """
    from elmore.atomic import refuse_existing, write_text
    from elmore.tasks import load_task
    from elmore.tasks.show import show_report
    from elmore.tasks.trained import Outcome

    if predictions:
        refuse_existing(predictions, overwrite=overwrite, inputs=(file, run))
    trained = load_task(run, task=task, device=device, bilm=model, precision=precision)
    examples = trained.read(file)
    for note in trained.check_labels(examples, str(file)):
        print(f"elmore: {note}", file=sys.stderr)
    if predictions and predictions.exists():
        first = Outcome(examples[0], trained.predict(examples[:1])[0])
        keys = trained.as_json(first).keys()
        refuse_existing(predictions, overwrite=True, is_own=lambda path: _has_keys(path, keys))
    predicted = trained.predict(examples)
    if predictions:
        outcomes = map(Outcome, examples, predicted)
        records = (json.dumps(trained.as_json(o), ensure_ascii=False) for o in outcomes)
        write_text(predictions, "".join(f"{line}\n" for line in records))
    report = trained.report(examples, predicted)
    show(report, show_report(report), as_json=json_output)


def _has_keys(path: Path, keys: Collection[str]) -> bool:
    """Return whether the first line of a file is a JSON object with these keys."""
    if not path.is_file():  # reading a named pipe would wait for a writer
        return False
    try:
        with path.open(encoding="utf-8") as file:
            return set(json.loads(file.readline())) == set(keys)
    except (ValueError, TypeError):
        return False
