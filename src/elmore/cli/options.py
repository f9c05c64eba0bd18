"""Options that several commands share."""

import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from elmore.embedder import Embedder


def reject_options(_: Any, value: Path | str) -> None:
    """Reject arguments that look like options, which would otherwise be read as file names."""
    if re.match(r"--?\w[\w-]*(=|$)", str(value)) and not os.path.exists(value):  # noqa: PTH110, a text
        raise ValueError("There is no such option; for a file of this name, put ./ before it.")


Text = Annotated[
    Path,
    Parameter(
        allow_leading_hyphen=True,
        validator=reject_options,
        help="UTF-8 text file, one sentence per line, optionally .gz, .xz, .bz2 or .zst; - for "
        "standard input.",
    ),
]
Vocab = Annotated[
    Path | None,
    Parameter(help="Vocabulary file of a word-input model; by default vocab.txt next to it."),
]
Output = Annotated[Path, Parameter(alias="-o")]
Resume = Annotated[bool, Parameter(help="Resume an interrupted run.")]
Overwrite = Annotated[bool, Parameter(help="Replace existing output.")]
Json = Annotated[bool, Parameter(name="--json", help="Print the result as JSON.")]
Changes = Annotated[tuple[str, ...], Parameter(name="--set", consume_multiple=False)]
SEVERAL = Parameter(consume_multiple=True)
"""An option with several values, as in `--train a.txt b.txt`."""
REPEATED = Parameter(consume_multiple=False, show_default=False)
"""An option that may be given several times, with one value each."""
Tokenizer = Annotated[
    Literal["moses", "whitespace", "spacy"] | None,
    Parameter(
        help="Tokenizer of the text; by default that of the model, or moses for a new model. Use "
        "whitespace for text that is already tokenized."
    ),
]
Language = Annotated[
    str | None,
    Parameter(
        help="ISO 639-1 code; selects the rules of the tokenizer. By default that of the model, or "
        "en for a new model."
    ),
]
OwnTask = Annotated[
    str | None,
    Parameter(help="module:name of a task of your own, if the run was trained with one."),
]
TaskPrecision = Annotated[
    Literal["fp32", "bf16", "int8"] | None,
    Parameter(
        help="Precision of the biLM; bf16 and int8 (for CPUs) are faster. By default, training "
        "uses fp32, and a trained task keeps the precision of its training."
    ),
]
BILM_NAMES = ("--model", "--init-bilm")  # --init-bilm is the former name
TrainedBiLM = Annotated[
    str | None,
    Parameter(
        name=BILM_NAMES, alias="-m", help="Path of the biLM, if it has moved since training."
    ),
]
ReplaceInvalid = Annotated[bool, Parameter(help="Replace invalid UTF-8 and NUL with U+FFFD.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model to load, and how to run it."""

    model: Annotated[Path | None, Parameter(alias="-m")] = None
    """Name of an installed model, a directory, HDF5 weights, an archive of either, or an id on the
    Hugging Face Hub, user/model or user/model@revision; by default en, the included English
    model."""

    options: Path | None = None
    """options.json of HDF5 weights; by default the one next to them."""

    vocab: Vocab = None

    tokenizer: Tokenizer = None

    language: Language = None

    device: str = "auto"
    """Where to compute: auto, cpu, cuda or cuda:NUMBER."""

    precision: Literal["fp32", "bf16", "int8"] = "fp32"
    """fp32 is full precision. bf16 halves the memory and is accurate to about three significant
    digits. int8, for CPUs, is faster still and accurate to about two."""

    def load(self) -> "Embedder":
        """Load the model."""
        from elmore.embedder import load

        return load(**asdict(self))


DEFAULT_MODEL = ModelOptions()


@Parameter(name="*", group="FASTA options")
@dataclass(frozen=True, kw_only=True)
class FastaOptions:
    """Options for FASTA files alone."""

    per_protein: bool = False
    """Write one vector per protein, the mean over its residues."""

    id_field: Annotated[int | None, Parameter(allow_leading_hyphen=True)] = None
    """Field of the headers to use as id: a number from 0, or -1 for the whole header. By default
    the first word."""

    split_char: Annotated[str, Parameter(allow_leading_hyphen=True)] = "|"
    """Separates the fields of a header."""


DEFAULT_FASTA = FastaOptions()


@Parameter(name="*", group="Ray")
@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """For `--engine ray`: how to run on a cluster."""

    column: str | None = None
    """Column with the sentences: strings, or lists of tokens. By default text."""

    output_format: Literal["parquet", "arrow"] | None = None
    """Format of the outputs; arrow is much faster to write. By default parquet."""

    actors: int | None = None
    """Number of processes that embed; by default as many as the cluster has room for."""

    num_cpus: float | None = None
    """CPUs, and so threads, per actor; by default 1."""

    num_gpus: float | None = None
    """GPUs per actor; 0.5 lets two actors share one. By default 1 if the cluster has GPUs."""

    def given(self) -> dict[str, Any]:
        """Return the options that have a value."""
        return {name: value for name, value in asdict(self).items() if value is not None}


DEFAULT_RAY = RayOptions()
