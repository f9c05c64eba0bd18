"""Options that several commands share."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from elmore.embedder import Embedder

Text = Annotated[
    Path,
    Parameter(
        allow_leading_hyphen=True,
        help="Text file, one sentence a line, UTF-8; .gz, .xz, .bz2 or .zst too; - is stdin.",
    ),
]
Vocab = Annotated[Path | None, Parameter(help="Vocabulary of a model that reads words.")]
Output = Annotated[Path, Parameter(alias="-o")]
Resume = Annotated[bool, Parameter(negative="", help="Go on with an interrupted run.")]
Overwrite = Annotated[bool, Parameter(negative="", help="Replace what is there.")]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print the result as JSON.")]
Changes = Annotated[tuple[str, ...], Parameter(name="--set", consume_multiple=False, negative="")]
ReplaceInvalid = Annotated[
    bool, Parameter(negative="", help="Turn bytes that are not UTF-8 into U+FFFD.")
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, and how it computes."""

    model: Annotated[Path | None, Parameter(alias="-m")] = None
    """A folder, HDF5 weights, or an archive of either; en, the English model that ships with
    elmore, if not given."""

    options: Path | None = None
    """options.json of HDF5 weights, if it is not beside them."""

    vocab: Vocab = None

    tokenizer: Literal["moses", "whitespace", "spacy"] = "moses"
    """How text becomes tokens; whitespace for text that is tokenized already."""

    language: str = "en"
    """ISO 639-1 code, for the rules of the tokenizer."""

    device: str = "auto"
    """Where to compute: auto, cpu, cuda or cuda:NUMBER."""

    precision: Literal["fp32", "bf16", "int8"] = "fp32"
    """fp32 is exact; bf16 takes half the memory and keeps about three digits; int8, for CPUs, is
    faster still and keeps about two."""

    def load(self) -> "Embedder":
        """Load the model."""
        from elmore.embedder import load

        return load(
            self.model,
            options=self.options,
            vocab=self.vocab,
            device=self.device,
            precision=self.precision,
            tokenizer=self.tokenizer,
            language=self.language,
        )


DEFAULT_MODEL = ModelOptions()
