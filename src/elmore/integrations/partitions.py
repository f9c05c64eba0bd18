"""Files of sentences in, files of vectors out: the partitions of a corpus, in any order.

    parts/a.parquet  parts/b.txt.gz   ->   out/run.json  out/a.parquet  out/b.parquet

`run.json` has the settings of all outputs. Every output also records them, and a checksum of its
input. So whoever embeds a partition finds out by itself whether this was done before.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from glob import glob
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq

import elmore
from elmore.atomic import atomic_file, leftovers
from elmore.checksum import identify_file
from elmore.errors import InputError
from elmore.integrations.arrow import ArrowEmbedder
from elmore.integrations.input_files import OPEN, format_of, open_partition, stem_of
from elmore.prefetch import prefetch
from elmore.schema import check, check_unchanged, one_of, read_json, write_json
from elmore.vectors.embed_file import model_settings
from elmore.vectors.formats import FORMATS, RECORD
from elmore.vectors.read import read_record, read_vectors

OutputFormat = Literal["parquet", "arrow"]

_RUN = "run.json"
_MAX_ATTEMPTS = 3
_OTHER_SETTINGS = "Use the same model and settings, or choose another folder."


class Partition(NamedTuple):
    """An output: its rows, the words that were embedded, and whether it was complete before."""

    file: Path
    rows: int
    words: int
    skipped: bool


def find_partitions(files: Path | str | Iterable[Path | str]) -> list[Path]:
    """Return the absolute paths of input files, sorted by name.

    Args:
        files: A file, a folder, a pattern such as `parts/*.parquet`, or several of these.

    Raises:
        InputError: If there are none, one has another suffix, or two have the same stem.
    """
    paths: set[Path] = set()
    for name in [files] if isinstance(files, Path | str) else files:
        if Path(name).is_dir():
            found = [path for path in Path(name).iterdir() if format_of(path) in OPEN]
        elif Path(name).exists():
            found = [Path(name)]
        else:  # `Path.glob` takes no absolute patterns
            found = [Path(match) for match in glob(str(name), recursive=True)]  # noqa: PTH207
        if not found:
            raise InputError(f"no files match {name}; expected {', '.join(OPEN)} files")
        paths.update(path.resolve() for path in found)
    if not paths:
        raise InputError("expected at least one file")
    by_stem: dict[str, Path] = {}
    for path in sorted(paths):
        if format_of(path) not in OPEN:
            raise InputError(
                f"{path}: expected a name that ends in {', '.join(OPEN)}; .txt and .jsonl may "
                "be compressed"
            )
        other = by_stem.setdefault(stem_of(path), path)
        if other != path:
            raise InputError(f"{other} and {path} would have the same output. Rename one of them.")
    return [*by_stem.values()]


def open_output(folder: Path, settings: Mapping[str, Any]) -> None:
    """Create the folder of a run, or check that it has outputs with the same settings.

    Raises:
        InputError: If its outputs have other settings, or elmore did not write it.
    """
    file = folder / _RUN
    if file.exists():
        earlier = read_json(file, "the settings of a run").get("settings")
        if not isinstance(earlier, dict):
            raise InputError(f"{file} is damaged. Choose another folder, or delete this one.")
        check_unchanged(earlier, settings, f"the outputs in {folder} have", _OTHER_SETTINGS)
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{folder} exists and elmore did not write it: it has no {_RUN}. Choose another folder."
        )
    write_json(file, {"settings": settings})


def run_settings(embed: ArrowEmbedder, *, replace_invalid: bool) -> dict[str, Any]:
    """Return what outputs depend on, apart from their input. This loads the model."""
    return {
        "elmore_version": elmore.__version__,
        "column": embed.column,
        "layers": embed.layers,
        "dtype": embed.dtype,
        "replace_invalid": replace_invalid,
        **model_settings(embed.embedder),
    }


class PartitionEmbedder:
    """Embeds input files, each to an output with the same stem in a folder.

    An output appears when it is complete. Outputs that exist are verified: complete ones are kept,
    damaged ones are replaced. Like an `ArrowEmbedder`, it is cheap to send to other processes.

    Args:
        embed: Embeds the rows of a file.
        folder: The output folder; see `open_output`.
        settings: `run_settings` of the process that started the run. Each process checks that its
            own model has the same.
        output_format: `parquet`, or `arrow`, which is much faster to write.
        replace_invalid: In .txt files, replace bytes that are not UTF-8 by U+FFFD.
    """

    def __init__(
        self,
        embed: ArrowEmbedder,
        folder: Path,
        settings: Mapping[str, Any],
        *,
        output_format: OutputFormat = "parquet",
        replace_invalid: bool = False,
    ) -> None:
        check("output_format", output_format, one_of(*get_args(OutputFormat)))
        self._embed = embed
        self._folder = folder
        self._settings = settings
        self._suffix = f".{output_format}"
        self._replace_invalid = replace_invalid

    def __call__(self, file: Path) -> Partition:
        """Embed a file, unless its output is complete.

        Raises:
            InputError: If the file cannot be embedded, or its output must not be replaced.
            OSError: If the operating system reports an error, such as a full disk.
        """
        output = self._folder / f"{stem_of(file)}{self._suffix}"
        with naming_file(file):
            identity = identify_file(file)
            rows = self._count_rows(output, identity)
            if rows is not None:
                return Partition(output, rows, 0, skipped=True)
            if len(leftovers(output)) >= _MAX_ATTEMPTS:
                raise InputError(
                    f"{_MAX_ATTEMPTS} processes died while they embedded it, perhaps because they "
                    "ran out of memory"
                )
            with atomic_file(output) as temporary:
                temporary.touch()  # counted above, if this process dies
                rows, words = self._write(file, temporary, identity)
        return Partition(output, rows, words, skipped=False)

    def _write(self, file: Path, path: Path, identity: Mapping[str, Any]) -> tuple[int, int]:
        """Write the output of a file to `path`; return the number of rows and words."""
        own = run_settings(self._embed, replace_invalid=self._replace_invalid)
        started = "the process that started this run has"
        check_unchanged(self._settings, own, started, _OTHER_SETTINGS)
        columns, batches = open_partition(file, replace_invalid=self._replace_invalid)
        if "id" not in columns.names:
            columns = columns.insert(0, pa.field("id", pa.int64()))
            batches = _with_row_numbers(batches)
        record = json.dumps({"settings": self._settings, "input": identity})
        schema = self._embed.schema(columns).with_metadata({RECORD: record})
        rows = words = 0

        def outputs() -> Iterator[pa.RecordBatch]:
            nonlocal rows, words
            for batch in self._embed.stream(batches):
                rows += batch.num_rows
                words += len(batch.column("tokens").flatten())
                yield batch

        on_gpu = self._embed.embedder.device.type == "cuda"
        FORMATS[self._suffix](path, schema, _ahead(outputs()) if on_gpu else outputs())
        return rows, words

    def _count_rows(self, output: Path, identity: Mapping[str, Any]) -> int | None:
        """Return the number of rows of a complete output; None if it has to be computed.

        Raises:
            InputError: If it has other settings or another input, or elmore did not write it.
        """
        if not output.exists():
            return None
        record = read_record(output)
        if record is None:
            if _is_readable(output):
                raise InputError(f"elmore did not write {output}. Move it, or delete it.")
            return None
        check_unchanged(record["settings"], self._settings, f"{output} has", _OTHER_SETTINGS)
        if record.get("input") != identity:
            raise InputError(
                f"{output} was made from another version of this file. Delete it to embed this one."
            )
        try:
            return sum(1 for _ in read_vectors(output))
        except InputError:  # damaged
            return None


@contextmanager
def naming_file(file: Path) -> Iterator[None]:
    """Name the input in errors about its contents."""
    try:
        yield
    except (InputError, pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        reason = " ".join(str(error).split())
        raise InputError(reason if str(file) in reason else f"{file}: {reason}") from error


def _is_readable(file: Path) -> bool:
    """Return whether a file is an Arrow or Parquet file, by its suffix."""
    try:
        if file.suffix == ".parquet":
            pq.read_schema(file)
        else:
            with pa.memory_map(str(file)) as source:
                pa.ipc.open_file(source)
    except (OSError, pa.ArrowException):
        return False
    return True


def _with_row_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in batches:
        ids = pa.array(range(first, first + batch.num_rows), pa.int64())
        yield pa.record_batch([ids, *batch.columns], names=["id", *batch.schema.names])
        first += batch.num_rows


def _ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compute batches in a thread, while earlier ones are written."""
    computed = prefetch(lambda _: next(batches, None), count())
    for batch in computed:
        if batch is None:
            computed.close()
            return
        yield batch
