"""`elmore evaluate`: score a trained task on labeled examples."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from elmore.cli.options import Json


def evaluate(
    run: Path,
    file: Path,
    *,
    init_bilm: Annotated[str | None, Parameter(alias="-m")] = None,
    device: str = "auto",
    json_output: Json = False,
) -> None:
    """Score a trained task on labeled examples.

    Example: `elmore evaluate runs/ner c.conll`

    Args:
        run: Folder written by `elmore train`.
        file: Labeled examples, in the task's standard format.
        init_bilm: Path of the biLM, if it has moved since training.
        device: Where to compute: auto, cpu, cuda or cuda:NUMBER.
    """
    from elmore.cli.train import show_scores
    from elmore.tasks import load_task

    scores = load_task(run, device=device, bilm=init_bilm).evaluate(file)
    print(json.dumps(scores) if json_output else show_scores(scores))
