"""`elmore reproduce`: evaluate a model on standard datasets."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from elmore.cli.options import DEFAULT_MODEL, Json, ModelOptions, Output

_Several = Parameter(consume_multiple=True, negative="")


def reproduce(
    *,
    data: Path,
    output: Output,
    model: ModelOptions = DEFAULT_MODEL,
    only: Annotated[tuple[str, ...], _Several] = (),
    text: Annotated[tuple[Path, ...], _Several] = (),
    json_output: Json = False,
) -> None:
    """Evaluate a model on standard datasets, and write a report.

    Example: `elmore reproduce --only intrinsic -m runs/mine --data data -o report`

    The data folder has the following files, each optionally .xz or .gz. Evaluations whose files
    are missing are not run.

    - perplexity: `corpus/valid.txt`
    - wsd (table5): `tasks/wsd/` with `semcor.data.xml`, `semcor.gold.key.txt`, `index.sense` and
      `Evaluation_Datasets`, a folder or .tar.xz file, of the unified evaluation framework
    - neighbors (table4): `tasks/wsd/` with SemCor, as above
    - pos (table6): `tasks/pos/` with `*train.conllu`, `*dev.conllu` and `*test.conllu`
    - wic: `tasks/wic/` with `train.data.txt`, `train.gold.txt` and the same for dev and test,
      also in subfolders
    - scws: `tasks/scws/ratings.txt`

    Run the same command again to resume: an evaluation is skipped if it has finished for the same
    weights, data and settings.

    Args:
        data: Folder of the datasets.
        output: Folder for report.md and a JSON file per evaluation.
        only: Evaluations to run, by name; intrinsic stands for perplexity, wsd, pos, wic and scws.
            By default all.
        text: More text files to measure the perplexity on.
    """
    from elmore.analysis.parts import Model, select_parts
    from elmore.analysis.report import render_table
    from elmore.analysis.reproduce import REPORT
    from elmore.analysis.reproduce import reproduce as run
    from elmore.checkpoint.language_model import read_language_model
    from elmore.checkpoint.pretrained import find_model
    from elmore.errors import InputError

    parts = select_parts(only, text)
    if not data.is_dir():
        raise InputError(f"{data}: no such folder; expected the folder of the datasets")
    read = partial(read_language_model, model.model, options=model.options, vocab=model.vocab)
    evaluated = Model(find_model(model.model).name, model.load(), read)
    show = partial(print, file=sys.stderr, flush=True)
    try:
        outcomes = run(evaluated, parts, data, output, show=show)
    except KeyboardInterrupt:
        show("elmore: interrupted; run the same command again to resume")
        raise
    if json_output:
        print(json.dumps(outcomes._asdict()))
    elif outcomes.records:
        for record in outcomes.records.values():
            print(f"{record['title']}\n\n{render_table(record)}\n")
        print(output / REPORT)
    if outcomes.failed:
        raise InputError(f"no result for {', '.join(outcomes.failed)}; see the messages above")
    if not outcomes.records:
        raise InputError("nothing was measured; see the messages above")
