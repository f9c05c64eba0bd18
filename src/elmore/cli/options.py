"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

Text = Annotated[
    Path,
    Parameter(
        allow_leading_hyphen=True,
        help="Text file, one sentence a line, UTF-8; .gz, .xz or .bz2 too; - is standard input.",
    ),
]
Model = Annotated[Path | None, Parameter(alias="-m", help="Folder, HDF5 weights, or an archive.")]
Options = Annotated[
    Path | None, Parameter(help="options.json of HDF5 weights, if it is not beside them.")
]
Vocab = Annotated[Path | None, Parameter(help="Vocabulary of a model that reads words.")]
Output = Annotated[Path, Parameter(alias="-o")]
Overwrite = Annotated[bool, Parameter(negative="", help="Replace what is there.")]
Json = Annotated[bool, Parameter(negative="", help="Print the result as JSON.")]
TokenizerOption = Annotated[
    Literal["moses", "whitespace", "spacy"],
    Parameter(help="How text becomes tokens; whitespace for text that is tokenized already."),
]
DeviceOption = Annotated[Literal["auto", "cpu", "cuda"], Parameter(help="Where to compute.")]
PrecisionOption = Annotated[
    Literal["fp32", "bf16"], Parameter(help="fp32 is exact, bf16 smaller and about as good.")
]
ReplaceInvalid = Annotated[
    bool, Parameter(negative="", help="Turn bytes that are not UTF-8 into U+FFFD.")
]
