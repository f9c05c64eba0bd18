"""Description of an evaluation: its data, its function, and published scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from elmore.analysis.quick import Sampler
from elmore.analysis.results import Plot, Result
from elmore.analysis.training.run import Plan, Results, TrainingRun
from elmore.checkpoint.language_model import SavedLanguageModel
from elmore.embedder import Embedder, Precision


class Model(NamedTuple):
    """The model to evaluate."""

    name: str
    embedder: Embedder
    read_language_model: Callable[[], SavedLanguageModel]
    """Reads the biLM with its softmax; raises `NoSoftmaxError` if it has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One evaluation of a biLM as it is."""

    title: str
    folder: str = ""
    """Subfolder of the data folder in which the patterns in `files` are looked up."""

    files: tuple[str | Path, ...]
    """Patterns of its files, which may be compressed; or paths that the user has named."""

    measure: Callable[[Model, Sequence[Path]], Result]
    """Returns the scores, given the paths of its files in the order of `files`."""

    source: str
    """Where to get the data."""

    about: str
    """What the scores are."""

    published: str = ""
    """Published scores to compare with, and how their conditions differ."""

    paper: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Scores of the paper, by row and column, to show beside ours."""

    precision: Precision | None = None
    """Precision of the computation, if it is not that of the embedder."""

    device: str | None = None
    """Device of the computation, if it is not that of the embedder."""

    plot: Callable[[Result], list[Plot]] = lambda _result: []
    """Returns the figures."""

    decimals: int = 1
    """Decimals of the scores in the report."""

    quick: Mapping[str | Path, Sampler] = field(default_factory=dict)
    """Functions that write samples for a quick run, by the entries of `files`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPart:
    """A table or figure of trained tasks."""

    title: str

    runs: Callable[[Plan], list[TrainingRun]]
    """Returns the training runs."""

    measure: Callable[[Plan, Results], Result]
    """Returns the table, given the results of the runs that have finished."""

    about: str
    """What the scores are."""

    published: str = ""
    """Published results to compare with."""

    plot: Callable[[Plan, Results], list[Plot]] = lambda _plan, _results: []
    """Returns the figures."""

    decimals: int = 2
    """Decimals of the scores in the report."""
