"""Run evaluations of a model; write one JSON file for each, and a report.

Evaluations that are finished are skipped when the same command runs again.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple

from elmore.analysis.conditions import changed_conditions, describe_conditions
from elmore.analysis.data_files import checksums, find_file
from elmore.analysis.heldout_text import measure_text
from elmore.analysis.pos import POS_FILES, measure_pos
from elmore.analysis.report import render_report
from elmore.analysis.results import NotAvailableError, Result
from elmore.analysis.scws import SCWS_FILES, measure_scws
from elmore.analysis.semcor_neighbors import NEIGHBOR_FILES, measure_neighbors
from elmore.analysis.wic import WIC_FILES, measure_wic
from elmore.analysis.wsd import WSD_FILES, measure_wsd
from elmore.atomic import atomic_file, lock
from elmore.checkpoint.language_model import NoSoftmaxError, SavedLanguageModel
from elmore.embedder import Embedder, Precision
from elmore.errors import InputError
from elmore.training.run_folder import write_json

REPORT = "report.md"


class Model(NamedTuple):
    """The model to evaluate."""

    name: str
    embedder: Embedder
    read_language_model: Callable[[], SavedLanguageModel]
    """Reads the biLM with its softmax; raises `NoSoftmaxError` if it has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One evaluation."""

    title: str
    folder: str
    """Folder of its data, below the folder of all data."""

    files: tuple[str, ...]
    """Patterns of the files in that folder; files may be compressed."""

    measure: Callable[[Model, Path], Result]
    """Returns the scores, given the folder of its data."""

    source: str
    """Where to get the data."""

    scores: str
    """What the scores are."""

    published: str = ""
    """Published scores to compare with, and how their conditions differ."""

    precision: Precision | None = None
    """Precision of the computation, if it is not that of the embedder."""

    decimals: int = 1
    """Decimals of the scores in the report."""


def perplexity_part(path: Path, title: str) -> Part:
    """Return an evaluation of the perplexity on a text file."""

    def measure(model: Model, folder: Path) -> Result:
        file = find_file(folder, escape(path.name))
        return measure_text(model.read_language_model(), model.embedder, file)

    return Part(
        title=title,
        folder=str(path.parent),
        files=(escape(path.name),),
        measure=measure,
        source="any text that the model was not trained on",
        scores="With the full softmax; every sentence starts from a zero state.",
        precision="fp32",
        decimals=2,
    )


PARTS: dict[str, Part] = {
    "perplexity": perplexity_part(Path("corpus/valid.txt"), "Perplexity on held-out text"),
    "neighbors": Part(
        title="Table 4: nearest neighbors of a word in context",
        folder="tasks/wsd",
        files=NEIGHBOR_FILES,
        measure=lambda model, folder: measure_neighbors(model.embedder, folder),
        source="SemCor of http://lcl.uniroma1.it/wsdeval",
        scores='The words of SemCor that are most similar to "play" in two of its sentences, by '
        "the cosine of the top layer.",
        published="The nearest in Peters et al. (2018): his all-round excellent [play]; they were "
        "actors who had been handed fat roles in a successful [play].",
    ),
    "wsd": Part(
        title="Table 5: word sense disambiguation",
        folder="tasks/wsd",
        files=WSD_FILES,
        measure=lambda model, folder: measure_wsd(model.embedder, folder),
        source="http://lcl.uniroma1.it/wsdeval, and WordNet 3.0 for index.sense",
        scores="F1 in percent: the nearest average vector of a sense in SemCor; words that SemCor "
        "does not have get their first sense in WordNet.",
        published="Peters et al. (2018), on ALL: layer 1 67.4, layer 2 69.0, first sense 65.9. "
        "Raganato et al. (2017) have 65.2 for the first sense.",
    ),
    "pos": Part(
        title="Table 6: part-of-speech tagging",
        folder="tasks/pos",
        files=POS_FILES,
        measure=lambda model, folder: measure_pos(model.embedder, folder),
        source="a treebank of https://universaldependencies.org, such as English EWT",
        scores="Accuracy in percent of a linear probe for the treebank's own tags (XPOS). As a "
        "control, the probe is also trained on shuffled tags.",
        published="Peters et al. (2018), on the Penn Treebank: layer 1 97.3, layer 2 96.8. Other "
        "treebanks are not comparable.",
    ),
    "wic": Part(
        title="WiC: same meaning in two sentences?",
        folder="tasks/wic",
        files=WIC_FILES,
        measure=lambda model, folder: measure_wic(model.embedder, folder),
        source="https://pilehvar.github.io/wic",
        scores="Accuracy in percent of a threshold on the cosine, tuned on the training set.",
        published="Pilehvar and Camacho-Collados (2019), test: ELMo 57.7, BERT-large 65.5; chance "
        "50.0.",
    ),
    "scws": Part(
        title="SCWS: similarity of words in context",
        folder="tasks/scws",
        files=SCWS_FILES,
        measure=lambda model, folder: measure_scws(model.embedder, folder),
        source="https://ai.stanford.edu/~ehhuang",
        scores="Spearman's correlation, times 100, of the cosine with the mean human rating.",
    ),
}
"""All evaluations by name."""

GROUPS: dict[str, tuple[str, ...]] = {
    "intrinsic": ("perplexity", "wsd", "pos", "wic", "scws"),
    "table4": ("neighbors",),
    "table5": ("wsd",),
    "table6": ("pos",),
}
"""Names for several evaluations, or for one by its table in the paper."""


def select_parts(only: Sequence[str] = (), texts: Iterable[Path] = ()) -> dict[str, Part]:
    """Return evaluations by name: all, or `only` these, and the perplexity on each text.

    Raises:
        InputError: If a name is unknown, or a text does not exist.
    """
    names: list[str] = []
    for name in only or PARTS:
        if name not in PARTS and name not in GROUPS:
            accepted = ", ".join((*GROUPS, *PARTS))
            raise InputError(f"unknown evaluation {name!r}; expected any of {accepted}")
        names += GROUPS.get(name, (name,))
    parts = {name: PARTS[name] for name in PARTS if name in names}
    for text in texts:
        if not text.is_file():
            raise InputError(f"{text}: no such file; expected a text file")
        name = f"perplexity-{text.name.partition('.')[0]}"
        if name in parts:
            raise InputError(f"several texts are called {name}; rename one of them")
        parts[name] = perplexity_part(text.resolve(), f"Perplexity on {text.name}")
    return parts


class Outcomes(NamedTuple):
    """What `reproduce` has done."""

    records: dict[str, dict[str, Any]]
    """Contents of the JSON files by evaluation, new or from an earlier run."""

    not_run: dict[str, str]
    """Reasons why evaluations were not run: data that are not there, for example."""

    failed: dict[str, str]
    """Errors of evaluations with invalid data."""


def reproduce(
    model: Model,
    parts: Mapping[str, Part],
    data: Path,
    output: Path,
    *,
    show: Callable[[str], None] = lambda _: None,
) -> Outcomes:
    """Run evaluations one by one and write their results to a folder.

    An evaluation is skipped if the folder has its result for the same weights, data, settings and
    version of elmore; a result under other conditions is replaced. An evaluation that fails does
    not stop the others.

    Args:
        model: The model.
        parts: Evaluations by name, see `select_parts`.
        data: Folder of all data.
        output: Folder for the results: `NAME.json` for each evaluation and `report.md`.
        show: Called with messages about the progress.
    """
    outcomes = Outcomes({}, {}, {})
    with lock(output):
        output.mkdir(exist_ok=True)
        for name, part in parts.items():
            try:
                outcomes.records[name] = _run(name, part, model, data, output, show)
            except (NotAvailableError, NoSoftmaxError) as error:
                outcomes.not_run[name] = str(error)
                show(f"{name}: not run: {error}")
            except (InputError, OSError) as error:
                outcomes.failed[name] = str(error)
                show(f"{name}: failed: {error}")
        if outcomes.records:
            problems = {f"{n} (not run)": reason for n, reason in outcomes.not_run.items()}
            problems |= {f"{n} (failed)": reason for n, reason in outcomes.failed.items()}
            with atomic_file(output / REPORT) as temporary:
                temporary.write_text(render_report(outcomes.records, problems), encoding="utf-8")
    return outcomes


def _run(
    name: str, part: Part, model: Model, data: Path, output: Path, show: Callable[[str], None]
) -> dict[str, Any]:
    """Return the contents of the JSON file of an evaluation, after running it if necessary."""
    folder, file = data / part.folder, output / f"{name}.json"
    try:
        paths = [find_file(folder, pattern) for pattern in part.files]
    except NotAvailableError as error:
        raise NotAvailableError(f"{error}; source: {part.source}") from None
    conditions = describe_conditions(model.name, model.embedder, checksums(paths, data))
    conditions["precision"] = part.precision or conditions["precision"]
    if file.exists():
        record = _read_record(file)
        changed = changed_conditions(record["conditions"], conditions)
        if not changed:
            show(f"{name}: finished before, skipped")
            return record
        show(f"{name}: running again, because of a different {', '.join(changed)}")
    else:
        show(f"{name}: {part.title}")
    start = time.monotonic()
    result = part.measure(model, folder)
    seconds = round(time.monotonic() - start, 1)
    record = {
        "title": part.title,
        "scores": result.scores,
        "details": result.details,
        "about": part.scores,
        "published": part.published,
        "decimals": part.decimals,
        "conditions": {**conditions, "seconds": seconds},
    }
    write_json(file, record)
    return record


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = dict(json.loads(path.read_text(encoding="utf-8")))
        return {**record, "conditions": dict(record["conditions"])}
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} is damaged ({error}); delete it to measure again") from error
