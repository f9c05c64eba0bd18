"""`elmore finetune`: a trained biLM goes on learning, on text of a domain."""

import json
from pathlib import Path

from elmore.cli.options import Changes, Json, Output, Overwrite, ReplaceInvalid, Resume


def finetune(
    model: Path,
    *files: Path,
    output: Output,
    options: Path | None = None,
    changes: Changes = (),
    replace_invalid: ReplaceInvalid = False,
    heldout: Path | None = None,
    max_minutes: float | None = None,
    device: str = "auto",
    cache: Path | None = None,
    workers: int | None = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json_output: Json = False,
) -> None:
    """Go on training a biLM on text of your domain.

    Example: `elmore finetune runs/mine domain.txt -o runs/domain`

    Args:
        model: Folder written by `elmore pretrain`, or released HDF5 weights. Those have no
            softmax, so that one is learned first.
        files: Text of the domain.
        output: Folder for the fine-tuned model and the run.
        options: options.json of HDF5 weights, if it is not beside them.
        changes: A setting, as in training.lr=1e-3; may be given many times.
        heldout: Text to measure perplexity on; a part of the files if not given.
        max_minutes: End the training after so long, with its schedule finished.
        device: Where to compute: auto, cpu, cuda or cuda:NUMBER.
        cache: Folder for encoded text; ~/.cache/elmore if not given.
        workers: Processes that tokenize; all cores if not given.
    """
    from elmore.cli.pretrain import expand, show_record
    from elmore.cli.progress import with_progress
    from elmore.errors import InputError
    from elmore.pretrain.finetune import finetune as run
    from elmore.pretrain.finetune import read_finetune_config

    if not files:
        raise InputError("expected text files: elmore finetune runs/mine domain.txt -o runs/domain")
    if replace_invalid:
        changes = (*changes, "text.replace_invalid=true")
    summary = run(
        model,
        expand(files),
        output,
        read_finetune_config(changes),
        options=options,
        heldout=heldout,
        resume=resume,
        overwrite=overwrite,
        max_minutes=max_minutes,
        device=device,
        cache=cache,
        workers=workers,
        report=(lambda _: None) if json_output else show_record,
        watch=lambda pieces: with_progress(pieces, "thousand lines encoded"),
    )
    if json_output:
        print(json.dumps(summary))
    else:
        before, after = summary["before"]["average"], summary["heldout"]["average"]
        print(f"held-out perplexity {before:.2f} -> {after:.2f}, model in {output}")
