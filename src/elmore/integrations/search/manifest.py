"""The manifest of an index: its model, its corpus, its parameters and its files."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from elmore.checksum import identify_file
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.schema import from_mapping, read_json, write_json
from elmore.vectors.embed_file import model_settings

MANIFEST, SENTENCES = "manifest.json", "sentences.arrow"
PART, _PART_PATTERN = "words-{:05}.faiss", "words-?????.faiss"
FILES = (MANIFEST, SENTENCES, _PART_PATTERN)
"""Patterns of the names of all files of an index."""

Kind = Literal["flat", "ivf-sq8", "ivf-pq"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRecord:
    """The model of the vectors, and the tokenization of the corpus."""

    weights_hash: str
    config_hash: str
    vocabulary_hash: str | None
    tokenizer: str
    language: str

    @classmethod
    def of(cls, embedder: Embedder) -> "ModelRecord":
        """Return the record of an embedder."""
        settings = model_settings(embedder)
        del settings["precision"]  # recorded apart: it may differ
        return cls(**settings)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRecord:
    """The size and the checksum of a file."""

    name: str
    bytes: int
    crc32: int

    @classmethod
    def of(cls, path: Path) -> "FileRecord":
        """Read a file and return its record."""
        return cls(**identify_file(path))


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What an index holds, and how it was built."""

    elmore_version: str
    model: ModelRecord
    precision: str
    """Precision of the model that embedded the corpus."""

    layer: str | int
    sentences: int
    """Lines of the corpus."""

    words: int
    dim: int
    kind: Kind
    factory: str
    """The index, as faiss's `index_factory` takes it."""

    lists: int
    """Inverted lists, the clusters of vectors."""

    probes: int
    """Lists that a query searches."""

    candidates: int
    """Words per neighbor whose sentences a query compares exactly."""

    recall_at_10: float
    """Share of the 10 nearest neighbors that are found, the mean of some words of the corpus."""

    recall_queries: int
    """Number of these words."""

    files: tuple[FileRecord, ...]
    """The sentences, and one or more parts of the index."""

    @property
    def parts(self) -> list[str]:
        """The names of the parts of the index."""
        return [file.name for file in self.files if file.name != SENTENCES]

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.bytes for file in self.files)

    def write(self, folder: Path) -> None:
        """Write the manifest of a folder."""
        write_json(folder / MANIFEST, asdict(self))


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an index.

    Raises:
        InputError: If there is none, or a file is missing or has another size.
    """
    path = folder / MANIFEST
    values = read_json(path, "an index written by `elmore index`")
    manifest = from_mapping(Manifest, values, str(path))
    for file in manifest.files:
        path = folder / file.name
        if not path.is_file() or path.stat().st_size != file.bytes:
            raise InputError(
                f"{path} is missing or damaged: expected {file.bytes:,} bytes. Copy or build the "
                "index again."
            )
    return manifest
