"""A trained biLM and domain text in, a biLM of that domain out (section 3.4, last paragraph).

The language model goes on learning, on the domain's text. Held-out sentences guard against
learning a small text by heart: the weights that predict them best are the ones that stay.
"""

import math
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from elmore.atomic import refuse_existing
from elmore.bilm.language_model import LanguageModel
from elmore.checkpoint.directory import write_directory
from elmore.checkpoint.pretrained import read_pretrained
from elmore.embedder import find_device
from elmore.errors import InputError
from elmore.pretrain.config import PretrainConfig, RunConfig, TrainingConfig
from elmore.pretrain.heldout import Report, read_heldout
from elmore.pretrain.loop import Pretraining
from elmore.pretrain.model import new_model
from elmore.pretrain.run import CACHE, Watch
from elmore.text.corpus import encode_corpus
from elmore.text.vocabulary import Vocabulary
from elmore.training.processes import Processes
from elmore.training.settings import read_settings

TRAINING = TrainingConfig(epochs=10.0, streams=16, lr=1e-3, warmup=0.1)
RUN = RunConfig(heldout=0.05, evaluations=20, patience=3, log_steps=50, checkpoint_minutes=math.inf)


def finetune(
    model: Path,
    files: Sequence[Path],
    output: Path,
    config: PretrainConfig | None = None,
    *,
    options: Path | None = None,
    heldout: Path | None = None,
    overwrite: bool = False,
    device: str = "auto",
    cache: Path | None = None,
    workers: int | None = None,
    report: Report = lambda _: None,
    watch: Watch = iter,
) -> dict[str, Any]:
    """Fine-tune a biLM, write it to a folder, and return perplexity before and after.

    Args:
        model: A folder written by `pretrain`, or released weights. Those come without a softmax,
            so that one is learned first, with the biLM as it is.
        files: Text of the domain.
        output: Folder for the model.
        config: Text, vocabulary and training; the sizes are those of the model.
        options: The options.json of HDF5 weights, if it is not beside them.
        heldout: Text to measure perplexity on; a part of `files` if not given.
        overwrite: Replace what is in `output`.
        device: `auto`, `cpu`, `cuda` or `cuda:1`.
        cache: Folder of encoded corpora; `~/.cache/elmore` if not given.
        workers: Processes that tokenize.
        report: Takes lines of metrics, and notes.
        watch: Wraps the stream of encoded text, to show how far it is.
    """
    refuse_existing(output, overwrite=overwrite)
    config = config or PretrainConfig(training=TRAINING, run=RUN)
    bilm, words, provenance, softmax = read_pretrained(model, options=options, with_softmax=True)
    config = replace(config, bilm=bilm.config)
    processes = Processes(0, 1, find_device(device))
    corpus = encode_corpus(files, cache or CACHE, config.text, workers=workers, watch=watch)
    sentences = read_heldout(heldout, config.text, corpus, report) if heldout else None
    with tempfile.TemporaryDirectory(prefix="elmore-") as scratch:

        def prepare(start: tuple[LanguageModel, Vocabulary]) -> Pretraining:
            run = Pretraining(
                config, corpus, Path(scratch), processes=processes, heldout=sentences, start=start
            )
            if not run.heldout:
                raise InputError("fine-tuning needs held-out sentences: name a --heldout text")
            return run

        if softmax is not None and words is not None:
            start = LanguageModel(bilm, softmax), words
        else:
            report({"note": "no softmax comes with these weights: it is learned first"})
            start = new_model(config, corpus, bilm)
            bilm.requires_grad_(False)
            _train(prepare(start), report)
            bilm.requires_grad_(True)
            report({"note": "the softmax is learned; now the biLM goes on learning too"})
        run = prepare(start)
        before = run.evaluate()
        report(before)
        _train(run, report)
        after = run.evaluate()
    summary = {
        "before": before["heldout"],
        "after": after["heldout"],
        "text": [path.name for path in files],
        "text_words": corpus.facts["words"],
        "steps": run.step,
        "seconds": run.seconds,
        "model": provenance,
    }
    write_directory(
        run.model.bilm,
        output,
        softmax=run.model.softmax,
        vocabulary=run.vocabulary,
        provenance={"finetuned": summary},
    )
    return summary


def _train(run: Pretraining, report: Report) -> None:
    run.start_from_here()  # these weights may turn out to be the best
    for record in run.run():
        report(record)


def read_finetune_config(changes: Sequence[str] = ()) -> PretrainConfig:
    """Return the settings of a fine-tuning: its defaults, and changes on top of them."""
    sizes = [change for change in changes if change.startswith("bilm.")]
    if sizes:
        raise InputError(f"--set {sizes[0]}: a fine-tuned model has the sizes it had before")
    sections = {"training": asdict(TRAINING), "run": asdict(RUN)}
    return read_settings(PretrainConfig, None, changes, sections)
