"""The datasets of the paper's tasks: files, splits, published scores."""

from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from elmore.analysis.data_files import find_file
from elmore.analysis.results import NotAvailableError
from elmore.analysis.training.samples import (
    Format,
    split_articles,
    split_pairs,
    write_sample,
    write_share,
)
from elmore.errors import InputError

SAME_DATA = "the same"
_SNLI_HELD_OUT = 1_000


class Published(NamedTuple):
    """Test scores of Peters et al. (2018), in percent."""

    data: str
    """The dataset of the paper; `SAME_DATA` if it is the same."""

    baseline: float
    elmo: float


class Files(NamedTuple):
    """The files of a training run."""

    train: tuple[Path, ...]
    dev: Path
    test: Path
    disturbed: tuple[Path, ...] = ()
    """Disturbed copies of the test file, to score as well."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """A dataset for one of the tasks."""

    title: str
    score: str
    """Name of the score in tables."""

    task: str
    """Name in `elmore.tasks.TASKS`."""

    files: tuple[str, str, str]
    """Patterns of the training, dev and test files, below `tasks/` in the folder of all data."""

    form: Format

    source: str
    """Where to get the data."""

    minutes: float
    """Duration of a run on an H200 that it shares with others. Long runs start first."""

    quick: int
    """Units of the training data in a quick run; dev and test data have half as many."""

    published: Published | None = None
    settings: tuple[str, ...] = ()
    seeds: int = 3
    about: str = ""
    """How data or splits differ from those of the paper."""

    split: Callable[[Files, Path], Files] = lambda files, _: files
    """Returns the files of a run, some of them written to the folder."""

    @property
    def heading(self) -> str:
        """Its title and its score, for tables."""
        return f"{self.title} ({self.score})"

    def find(self, data: Path) -> Files:
        """Return the files below the folder of all data.

        Raises:
            NotAvailableError: If a file is missing.
        """
        try:
            train, dev, test = (
                find_file(data / "tasks" / Path(name).parent, Path(name).name)
                for name in self.files
            )
        except NotAvailableError as error:
            raise NotAvailableError(f"{error}; source: {self.source}") from None
        return Files((train,), dev, test)

    def prepare(self, files: Files, folder: Path, *, share: float, seed: int, quick: bool) -> Files:
        """Return the files of a run; those that have to be written go to the folder.

        Args:
            files: The files of the dataset.
            folder: A folder for files.
            share: Share of the training data.
            seed: Selects the share.
            quick: Use a small sample of all files.
        """
        files = self.split(files, folder)

        def target(path: Path, prefix: str) -> Path:
            name = path.name if path.suffix not in (".xz", ".gz") else path.stem
            return folder / f"{prefix}-{name}"

        def sampled(path: Path, count: int) -> Path:
            write_sample(path, target(path, "sample"), self.form, count)
            return target(path, "sample")

        def shared(path: Path) -> Path:
            write_share(path, target(path, "share"), self.form, share, seed)
            return target(path, "share")

        if quick:
            files = Files(
                tuple(sampled(path, self.quick // len(files.train)) for path in files.train),
                sampled(files.dev, self.quick // 2),
                sampled(files.test, self.quick // 2),
            )
        return files._replace(train=tuple(map(shared, files.train))) if share < 1 else files


def _split_snli(files: Files, folder: Path) -> Files:
    """Train on most of the dev set if only a part of the training set is available."""
    if "subset" not in files.train[0].name:
        return files
    learned, held_out = folder / "dev-learned.jsonl", folder / "dev-held-out.jsonl"
    split_pairs(files.dev, learned, held_out, _SNLI_HELD_OUT)
    return files._replace(train=(*files.train, learned), dev=held_out)


def _split_squad(files: Files, folder: Path) -> Files:
    dev, test = folder / "dev-articles.json", folder / "test-articles.json"
    split_articles(files.dev, dev, test)
    return files._replace(dev=dev, test=test)


def find_vectors(data: Path) -> Path | None:
    """Return the file of word vectors below the folder of all data, if there is one."""
    try:
        return find_file(data / "tasks" / "vectors", "*100d*")
    except NotAvailableError:
        return None


DATASETS: dict[str, Dataset] = {
    "squad": Dataset(
        title="SQuAD 1.1",
        score="F1",
        task="qa",
        # The official test set is not public.
        files=("squad/train-v1.1.json", "squad/dev-v1.1.json", "squad/dev-v1.1.json"),
        form="squad",
        source="https://rajpurkar.github.io/SQuAD-explorer",
        minutes=13,
        quick=6,
        published=Published("SQuAD test", 81.1, 85.8),
        about="The official test set is not public. The dev set is split by article, in the order "
        "of titles: the first, third, ... select the epoch, the others are the test set.",
        split=_split_squad,
    ),
    "snli": Dataset(
        title="SNLI",
        score="accuracy",
        task="entailment",
        files=("snli/snli_1.0_train*.jsonl", "snli/snli_1.0_dev.jsonl", "snli/snli_1.0_test.jsonl"),
        form="lines",
        source="https://nlp.stanford.edu/projects/snli",
        minutes=6,
        quick=100,
        published=Published("all of SNLI", 88.0, 88.7),
        settings=("data.class_weights=balanced",),
        about="With `snli_1.0_train_subset.jsonl`, a part of the training set with few neutral "
        "pairs, the model also trains on the official dev set, except its last "
        f"{_SNLI_HELD_OUT:,} labeled pairs, which select the epoch. Classes have balanced weights. "
        "The test set is the official one.",
        split=_split_snli,
    ),
    "srl": Dataset(
        title="EWT SRL",
        score="F1",
        task="srl",
        files=("srl/ewt.train.conll", "srl/ewt.dev.conll", "srl/ewt.test.conll"),
        form="sentences",
        source="https://github.com/propbank/propbank-release",
        minutes=14,
        quick=24,
        published=Published("OntoNotes", 81.4, 84.6),
        about="PropBank roles of the English Web Treebank; the paper uses OntoNotes.",
    ),
    "coref": Dataset(
        title="OntoGUM coreference",
        score="average F1",
        task="coref",
        files=("coref/ontogum.train.conll", "coref/ontogum.dev.conll", "coref/ontogum.test.conll"),
        form="documents",
        source="https://github.com/amir-zeldes/gum",
        minutes=8,
        quick=2,
        published=Published("OntoNotes", 67.2, 70.4),
        about="OntoGUM has the annotation scheme of OntoNotes and is far smaller.",
    ),
    "conll2003": Dataset(
        title="CoNLL-2003 NER",
        score="F1",
        task="ner",
        files=("ner/conll2003/eng.train", "ner/conll2003/eng.testa", "ner/conll2003/eng.testb"),
        form="sentences",
        source="https://www.clips.uantwerpen.be/conll2003/ner",
        minutes=6,
        quick=100,
        published=Published(SAME_DATA, 90.15, 92.22),
        seeds=5,
    ),
    "sst5": Dataset(
        title="SST-5",
        score="accuracy",
        task="sentiment",
        files=("sst/train.txt", "sst/dev.txt", "sst/test.txt"),
        form="lines",
        source="https://nlp.stanford.edu/sentiment",
        minutes=4,
        quick=20,
        published=Published(SAME_DATA, 51.4, 54.7),
        seeds=5,
    ),
    "sick": Dataset(
        title="SICK",
        score="accuracy",
        task="entailment",
        files=("snli/SICK_train.txt", "snli/SICK_trial.txt", "snli/SICK_test*.txt"),
        form="table",
        source="https://zenodo.org/records/2787612",
        minutes=1,
        quick=100,
    ),
    "wnut17": Dataset(
        title="WNUT-17 NER",
        score="F1",
        task="ner",
        files=(
            "ner/wnut17/wnut17train.conll",
            "ner/wnut17/emerging.dev.conll",
            "ner/wnut17/emerging.test.annotated",
        ),
        form="sentences",
        source="https://noisy-text.github.io/2017/emerging-rare-entities.html",
        minutes=1,
        quick=100,
    ),
}
"""All datasets by name: those of Table 1 in the order of the paper, and two more."""


def check_datasets(names: Set[str]) -> None:
    """Raise an `InputError` if there is no dataset with one of these names."""
    unknown = names - DATASETS.keys()
    if unknown:
        raise InputError(f"unknown dataset {min(unknown)!r}; expected any of {', '.join(DATASETS)}")
