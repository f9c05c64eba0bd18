"""All evaluations of a model: their data, functions and published scores."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from elmore.analysis.encoders import (
    ENCODER_FILES,
    encoder_task_runs,
    measure_encoder_tasks,
    measure_encoders,
    plot_encoder_tasks,
    plot_encoders,
)
from elmore.analysis.evaluation import Part, TrainingPart
from elmore.analysis.few_labels import FEW_LABELS_FILES, measure_few_labels, plot_few_labels
from elmore.analysis.figure1 import figure1_runs, measure_figure1, plot_figure1
from elmore.analysis.figure2 import figure2_runs, measure_figure2, plot_figure2
from elmore.analysis.finetuning import finetuning_runs, measure_finetuning
from elmore.analysis.heldout_text import measure_text
from elmore.analysis.pairs_file import find_gold, measure_pairs
from elmore.analysis.pos import POS_FILES, measure_pos
from elmore.analysis.quick import sample_of, sample_semcor
from elmore.analysis.robustness import measure_robustness, plot_robustness, robustness_runs
from elmore.analysis.scws import SCWS_FILES, measure_scws
from elmore.analysis.self_similarity import measure_self_similarity, plot_self_similarity
from elmore.analysis.semcor_neighbors import NEIGHBOR_FILES, measure_neighbors
from elmore.analysis.table1 import measure_table1, plot_table1, table1_runs
from elmore.analysis.table2 import measure_table2, table2_runs
from elmore.analysis.table3 import measure_table3, table3_runs
from elmore.analysis.wic import WIC_FILES, measure_wic
from elmore.analysis.wsd import WSD_FILES, measure_wsd
from elmore.errors import InputError


def perplexity_part(file: str | Path, title: str) -> Part:
    """Return an evaluation of the perplexity on a text file, see `Part.files`."""
    return Part(
        title=title,
        folder="corpus",
        files=(file,),
        measure=lambda model, files: measure_text(
            model.read_language_model(), model.embedder, *files
        ),
        source="any text that the model was not trained on",
        about="With the full softmax; every sentence starts from a zero state.",
        precision="fp32",
        decimals=2,
        quick={file: sample_of("lines", 12)},
    )


def pairs_part(path: Path) -> Part:
    """Return an evaluation of the similarity of words in context, on a file of pairs."""
    gold = find_gold(path)
    files = (path, gold) if gold else (path,)
    return Part(
        title=f"Similarity of words in context, {path.name}",
        files=files,
        measure=lambda model, files: measure_pairs(model.embedder, *files),
        source="any file in the format of WiC or SCWS",
        about="Cosine of two words in context, by layer; with gold labels (WiC), the area under "
        "the ROC curve, 0.5 by chance; with ratings (SCWS), Spearman's correlation.",
        decimals=3,
        quick={file: sample_of("lines", 200) for file in files},
    )


PARTS: dict[str, Part | TrainingPart] = {
    "perplexity": perplexity_part("valid.txt", "Perplexity on held-out text"),
    "table1": TrainingPart(
        title="Table 1: tasks with and without ELMo",
        runs=table1_runs,
        measure=measure_table1,
        plot=plot_table1,
        about="Test scores in percent: mean and sample standard deviation over seeds. The dev set "
        "selects the epoch, and the test set is scored once. The relative error reduction is the "
        "mean over pairs of runs with the same seed. docs/deviations.md of elmore lists how models "
        "and settings differ from the paper's.",
        published="Peters et al. (2018), Table 1.",
    ),
    "table2": TrainingPart(
        title="Table 2: which layers",
        runs=table2_runs,
        measure=measure_table2,
        about="Dev scores in percent: mean and standard deviation over seeds. Lambda regularizes "
        "the layer weights; a large one keeps them close to the average. ELMo enters where it does "
        "in Table 1.",
        published="Peters et al. (2018), Table 2: all of the dev set of SQuAD, all of the training "
        "set of SNLI, SRL on OntoNotes; not SICK.",
    ),
    "table3": TrainingPart(
        title="Table 3: where ELMo enters",
        runs=table3_runs,
        measure=measure_table3,
        about="Dev scores in percent: mean and standard deviation over seeds, with ELMo at the "
        "input of the task's RNN, at its output, or both.",
        published="Peters et al. (2018), Table 3: all of the dev set of SQuAD, all of the training "
        "set of SNLI, SRL on OntoNotes; not SICK.",
    ),
    "neighbors": Part(
        title="Table 4: nearest neighbors of a word in context",
        folder="tasks/wsd",
        files=NEIGHBOR_FILES,
        measure=lambda model, files: measure_neighbors(model.embedder, files),
        source="SemCor of http://lcl.uniroma1.it/wsdeval",
        about='The words of SemCor that are most similar to "play" in two of its sentences, by '
        "the cosine of the top layer.",
        published="The nearest in Peters et al. (2018): his all-round excellent [play]; they were "
        "actors who had been handed fat roles in a successful [play].",
        quick={"semcor.data.xml": sample_semcor},
    ),
    "wsd": Part(
        title="Table 5: word sense disambiguation",
        folder="tasks/wsd",
        files=WSD_FILES,
        measure=lambda model, files: measure_wsd(model.embedder, files),
        source="http://lcl.uniroma1.it/wsdeval, and WordNet 3.0 for index.sense",
        about="F1 in percent: the nearest average vector of a sense in SemCor; words that SemCor "
        "does not have get their first sense in WordNet.",
        published="Peters et al. (2018), Table 5, on ALL. Raganato et al. (2017) have 65.2 for the "
        "first sense.",
        paper={
            "first sense": {"paper: ALL": "65.9"},
            "layer 1": {"paper: ALL": "67.4"},
            "layer 2": {"paper: ALL": "69.0"},
        },
        quick={"semcor.data.xml": sample_semcor},
    ),
    "pos": Part(
        title="Table 6: part-of-speech tagging",
        folder="tasks/pos",
        files=POS_FILES,
        measure=lambda model, files: measure_pos(model.embedder, files),
        source="a treebank of https://universaldependencies.org, such as English EWT",
        about="Accuracy in percent of a linear probe for the treebank's own tags (XPOS). As a "
        "control, the probe is also trained on shuffled tags. It then fits noise and must not be "
        "better than the majority class.",
        published="Peters et al. (2018), Table 6, on the Penn Treebank. Scores on other treebanks "
        "are not comparable.",
        paper={
            "layer 1": {"paper: Penn Treebank": "97.3"},
            "layer 2": {"paper: Penn Treebank": "96.8"},
        },
        quick={name: sample_of("sentences", 200) for name in POS_FILES},
    ),
    "figure1": TrainingPart(
        title="Figure 1: how much training data and time a task needs",
        runs=figure1_runs,
        measure=measure_figure1,
        plot=plot_figure1,
        about="Dev scores in percent with a random share of the training data: mean and standard "
        "deviation over seeds, each of which draws its own sample. Shares below 5 % are repeated, "
        "so that an epoch has as many steps as with 5 %.",
        published="Peters et al. (2018), section 5.4: with 1 % of the training data, the SRL model "
        "with ELMo is about as good as the baseline with 10 %. The baseline needs 486 epochs to "
        "its best dev F1; ELMo exceeds it after 10.",
    ),
    "figure2": TrainingPart(
        title="Figure 2: learned layer weights",
        runs=figure2_runs,
        measure=measure_figure2,
        plot=plot_figure2,
        about="Softmax-normalized weights of the layers, mean and standard deviation over seeds. "
        "ELMo enters each model at the input and at the output of its RNN.",
        published="Peters et al. (2018), Figure 2: at the input, tasks favor the first biLSTM "
        "layer, most of all coreference and SQuAD; at the output, weights are more balanced, with "
        "a slight preference for the lower layers.",
    ),
    "finetuning": TrainingPart(
        title="Fine-tuning the biLM on the text of a task",
        runs=finetuning_runs,
        measure=measure_finetuning,
        about="Perplexity of held-out sentences of the task's training text before and after "
        "fine-tuning, and dev scores in percent: mean and standard deviation over seeds. Without "
        "fine-tuning, only seeds that were also fine-tuned are shown.",
        published="Peters et al. (2018), appendix. Perplexities depend on the vocabulary, so those "
        "of different models cannot be compared.",
    ),
    "wic": Part(
        title="WiC: same meaning in two sentences?",
        folder="tasks/wic",
        files=WIC_FILES,
        measure=lambda model, files: measure_wic(model.embedder, files),
        source="https://pilehvar.github.io/wic",
        about="Accuracy in percent of a threshold on the cosine, tuned on the training set.",
        published="Pilehvar and Camacho-Collados (2019), test: ELMo 57.7, BERT-large 65.5; chance "
        "50.0.",
        quick={name: sample_of("lines", 200) for name in WIC_FILES},
    ),
    "scws": Part(
        title="SCWS: similarity of words in context",
        folder="tasks/scws",
        files=SCWS_FILES,
        measure=lambda model, files: measure_scws(model.embedder, *files),
        source="https://ai.stanford.edu/~ehhuang",
        about="Spearman's correlation, times 100, of the cosine with the mean human rating.",
        quick={name: sample_of("lines", 100) for name in SCWS_FILES},
    ),
    "self-similarity": Part(
        title="How contextual are the layers?",
        folder="corpus",
        files=("valid.txt",),
        measure=lambda model, files: measure_self_similarity(model.embedder, *files),
        plot=plot_self_similarity,
        source="any text",
        about="Mean cosines: of the vectors of a word in different sentences (self-similarity; 1 "
        "if a layer ignores the context), of the words of a sentence with their mean "
        "(intra-sentence similarity), and of random words in different sentences (anisotropy), "
        "which is subtracted in the adjusted columns.",
        published="Ethayarajh (2019), Figures 1 to 3, on sentences of SemEval STS: in ELMo, "
        "self-similarity falls and intra-sentence similarity rises from layer to layer.",
        decimals=3,
        quick={"valid.txt": sample_of("lines", 60)},
    ),
    "robustness": TrainingPart(
        title="Robustness of NER to typos, case and unseen words",
        runs=robustness_runs,
        measure=measure_robustness,
        plot=plot_robustness,
        about="Test F1 in percent on CoNLL-2003, mean and standard deviation over seeds, after 5 "
        "or 10 % of the letters were disturbed: swapped, dropped, inserted or substituted (typos), "
        "changed to the other case, or in words that were replaced by random letters (unseen "
        "words). Tokens and gold entities stay as they are. The models of Table 1 are used, which "
        "were trained on clean text.",
    ),
    "encoders": Part(
        title="Where ELMo stands today: speed, memory, size and WSD",
        folder="tasks",
        files=ENCODER_FILES,
        measure=lambda model, files: measure_encoders(model.name, model.embedder, files),
        device="cpu",
        plot=plot_encoders,
        source="those of Table 5 (wsd), and GloVe of https://nlp.stanford.edu/projects/glove",
        about="Frozen encoders on a CPU: GloVe, ELMo, and the small transformer all-MiniLM-L6-v2, "
        "whose vectors of a word are the means over its subwords. WSD is by nearest neighbor, as "
        "in Table 5, with the layer that is best on SemEval-2007.",
        quick={"wsd/semcor.data.xml": sample_semcor},
    ),
    "few-labels": Part(
        title="Where ELMo stands today: few labels",
        folder="tasks",
        files=FEW_LABELS_FILES,
        measure=lambda model, files: measure_few_labels(model.name, model.embedder, files),
        plot=plot_few_labels,
        source="the Stanford Sentiment Treebank, a treebank of https://universaldependencies.org, "
        "and GloVe of https://nlp.stanford.edu/projects/glove",
        about="Test accuracy in percent of linear classifiers on frozen vectors, trained on few "
        "labeled sentences: mean and standard deviation over five samples. For sentiment, the "
        "vector of a sentence is the mean over its words. The dev set selects the layer and the "
        "epoch.",
        quick={
            **{name: sample_of("lines", 60) for name in FEW_LABELS_FILES[:3]},
            **{name: sample_of("sentences", 60) for name in FEW_LABELS_FILES[3:6]},
        },
    ),
    "encoder-tasks": TrainingPart(
        title="Where ELMo stands today: NER and sentiment",
        runs=encoder_task_runs,
        measure=measure_encoder_tasks,
        plot=plot_encoder_tasks,
        about="Test scores in percent with the same task models: mean and standard deviation over "
        "seeds. The encoders are not trained with the task; their layers are mixed with learned "
        "weights and concatenated with the word vectors. The settings were chosen for ELMo.",
    ),
}
"""All evaluations by name."""

GROUPS: dict[str, tuple[str, ...]] = {
    "intrinsic": ("perplexity", "wsd", "pos", "wic", "scws"),
    "training": tuple(name for name, part in PARTS.items() if isinstance(part, TrainingPart)),
    "today": ("encoders", "few-labels", "encoder-tasks"),
    "pairs": (),  # those of the files that are given
    "table4": ("neighbors",),
    "table5": ("wsd",),
    "table6": ("pos",),
}
"""Names for several evaluations, or for one by its table in the paper."""


def select_parts(
    only: Sequence[str] = (), texts: Iterable[Path] = (), pairs: Iterable[Path] = ()
) -> dict[str, Part | TrainingPart]:
    """Return evaluations by name: all, or `only` these, and those of other files.

    Args:
        only: Names of evaluations or groups; by default all.
        texts: Text files to measure the perplexity on.
        pairs: Files in the format of WiC or SCWS, see `measure_pairs`.

    Raises:
        InputError: If a name is unknown, a file does not exist, `pairs` is selected without files,
            or two files have the same name up to the first dot.
    """
    names: list[str] = []
    for name in only or PARTS:
        if name not in PARTS and name not in GROUPS:
            accepted = ", ".join((*GROUPS, *PARTS))
            raise InputError(f"unknown evaluation {name!r}; expected any of {accepted}")
        names += GROUPS.get(name, (name,))
    texts_by_name, pairs_by_name = _by_name("perplexity", texts), _by_name("pairs", pairs)
    if "pairs" in only and not pairs_by_name:
        raise InputError(
            "'pairs' needs at least one file of word pairs; name it with the pairs option"
        )
    return {
        **{name: PARTS[name] for name in PARTS if name in names},
        **{
            name: perplexity_part(path, f"Perplexity on {path.name}")
            for name, path in texts_by_name.items()
        },
        **{name: pairs_part(path) for name, path in pairs_by_name.items()},
    }


def _by_name(kind: str, paths: Iterable[Path]) -> dict[str, Path]:
    """Return the absolute paths of files by the names of their evaluations."""
    by_name: dict[str, Path] = {}
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path}: no such file")
        absolute = path.resolve()
        name = f"{kind}-{absolute.name.partition('.')[0]}"
        if by_name.setdefault(name, absolute) != absolute:
            raise InputError(
                f"the results of {by_name[name]} and {absolute} would both be called {name}; "
                "rename one of the files"
            )
    return by_name
