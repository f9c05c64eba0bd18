"""`elmore finetune`: continue training a biLM on text of a domain."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from elmore.cli.options import Output
from elmore.cli.pretrain import DEFAULT_OPTIONS, RunOptions, expand
from elmore.cli.show import show


def finetune(
    model: Path,
    *files: Path,
    output: Output,
    weight_options: Annotated[Path | None, Parameter(name="--options")] = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> None:
    """Continue training a biLM on text of your domain.

    Example: `elmore finetune runs/mine domain.txt -o runs/domain`

    Args:
        model: Folder written by `elmore pretrain`, or released HDF5 weights. Released weights
            have no softmax, so one is trained first.
        files: Text of the domain.
        output: Folder for the fine-tuned model and the run.
        weight_options: options.json of HDF5 weights, if it is not next to them.
    """
    from elmore.pretrain.finetune import finetune as run
    from elmore.pretrain.finetune import read_finetune_config

    config = read_finetune_config(options.all_changes)
    summary = run(
        model, expand(files), output, config, options=weight_options, **options.keywords()
    )
    before, after = summary["before"]["average"], summary["heldout"]["average"]
    text = f"held-out perplexity {before:.2f} -> {after:.2f}, model in {output}"
    show(summary, text, as_json=options.json_output)
