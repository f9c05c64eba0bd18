"""Files of sentences in, files of vectors out: the partitions of a corpus, in any order.

    parts/a.parquet  parts/b.txt.gz   ->   out/run.json  out/a.parquet  out/b.parquet

`run.json` has the settings of all outputs. Every output also records them, and a checksum of its
input. So whoever embeds a partition finds out by itself whether this was done before.
"""

import json
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import glob
from itertools import count, islice
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
from elmore.prefetch import prefetch
from elmore.schema import check, one_of, read_json
from elmore.text.lines import open_bytes, read_lines
from elmore.vectors.embed_file import model_settings
from elmore.vectors.formats import FORMATS, RECORD
from elmore.vectors.read import read_record, read_vectors

OutputFormat = Literal["parquet", "arrow"]

_RUN = "run.json"
_MAX_ATTEMPTS = 3
_ROWS = 1024  # of an input batch
_READ_BYTES = 2**24
_COMPRESSED = (".gz", ".xz", ".bz2", ".zst")


class Partition(NamedTuple):
    """An output: its rows, the words that were embedded, and whether it was complete before."""

    file: Path
    rows: int
    words: int
    skipped: bool


class Opened(NamedTuple):
    """The columns of an input file, and its rows."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


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
            found = [path for path in Path(name).iterdir() if _format_of(path) in _OPEN]
        elif Path(name).exists():
            found = [Path(name)]
        else:  # `Path.glob` takes no absolute patterns
            found = [Path(match) for match in glob(str(name), recursive=True)]  # noqa: PTH207
        if not found:
            raise InputError(f"no files match {name}; expected {', '.join(_OPEN)} files")
        paths.update(path.resolve() for path in found)
    if not paths:
        raise InputError("expected at least one file")
    by_stem: dict[str, Path] = {}
    for path in sorted(paths):
        if _format_of(path) not in _OPEN:
            raise InputError(
                f"{path}: expected a name that ends in {', '.join(_OPEN)}; .txt and .jsonl may "
                "be compressed"
            )
        other = by_stem.setdefault(_stem(path), path)
        if other != path:
            raise InputError(f"{other} and {path} would have the same output. Rename one of them.")
    return [*by_stem.values()]


def open_partition(path: Path, *, replace_invalid: bool = False) -> Opened:
    """Open an input file. Lines of text have the column `text`."""
    return _OPEN[_format_of(path)](path, replace_invalid)


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
        _check_settings(f"the outputs in {folder} have", earlier, settings)
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{folder} exists and elmore did not write it: it has no {_RUN}. Choose another folder."
        )
    with atomic_file(file) as temporary:
        temporary.write_text(json.dumps({"settings": settings}, indent=2), encoding="utf-8")


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
        output = self._folder / f"{_stem(file)}{self._suffix}"
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
        _check_settings("the process that started this run has", self._settings, own)
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
        _check_settings(f"{output} has", record["settings"], self._settings)
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


def _check_settings(where: str, earlier: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        if earlier.get(name) != value:
            raise InputError(
                f"{where} {name} = {earlier.get(name)!r}, not {value!r}. Use the same model and "
                "settings, or choose another folder."
            )


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


def _open_parquet(path: Path, _: bool) -> Opened:
    def batches() -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(_ROWS)

    return Opened(pq.read_schema(path), batches())


def _open_json(path: Path, _: bool) -> Opened:
    """Read the file twice: all of it decides on the types of the columns."""
    schema = pa.schema([])
    for block in _json_blocks(path):
        schema = _merge(schema, block.schema)
    if not len(schema):
        raise InputError("no JSON objects; expected one per line")
    blocks = _json_blocks(path, schema)
    return Opened(schema, (batch for block in blocks for batch in block.to_batches(_ROWS)))


def _json_blocks(path: Path, schema: pa.Schema | None = None) -> Iterator[pa.Table]:
    """Yield the rows of a file with one JSON object per line, a limited number at a time.

    Args:
        path: The file.
        schema: Types of all columns; by default, each table has those of its own rows.
    """
    read_options = pa.json.ReadOptions(block_size=_READ_BYTES)
    parse_options = pa.json.ParseOptions(explicit_schema=schema)
    number = 0  # of lines before these
    for lines in _blocks_of_lines(path):
        if not lines.isspace():
            try:
                yield pa.json.read_json(pa.BufferReader(lines), read_options, parse_options)
            except pa.ArrowInvalid as error:
                where = _find_invalid_json(lines.splitlines(), number)
                raise InputError(f"{where}: {error}") from error
        number += lines.count(b"\n")


def _find_invalid_json(lines: Sequence[bytes], before: int) -> str:
    """Return the number of the first line that is not JSON; those of all, if each is JSON."""
    for number, line in enumerate(lines, start=before + 1):
        try:
            json.loads(line.strip() or b"{}")
        except ValueError:
            return f"line {number:,}"
    return f"lines {before + 1:,} to {before + len(lines):,}"


def _blocks_of_lines(path: Path) -> Iterator[bytes]:
    """Yield the contents of a file in parts of up to `_READ_BYTES` that end with a line."""
    rest = b""
    try:
        with open_bytes(path) as file:
            while chunk := file.read(_READ_BYTES - len(rest)):
                lines, newline, rest = (rest + chunk).rpartition(b"\n")
                if newline:
                    yield lines + newline
                elif len(rest) == _READ_BYTES:
                    raise InputError(
                        f"more than {_READ_BYTES:,} bytes without a line break; expected one JSON "
                        "object per line"
                    )
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        if path.suffix not in _COMPRESSED:
            raise
        raise InputError(f"damaged {path.suffix} file ({error})") from error
    if rest:
        yield rest


def _merge(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return the columns of both, with types for the values of both, as Arrow infers them.

    Arrow takes strings for timestamps if all of them look like one.
    """
    try:
        return pa.unify_schemas([schema, other], promote_options="permissive")
    except pa.ArrowTypeError:
        as_text = [
            pa.schema(
                pa.field(
                    field.name, pa.string() if pa.types.is_timestamp(field.type) else field.type
                )
                for field in columns
            )
            for columns in (schema, other)
        ]
        return pa.unify_schemas(as_text, promote_options="permissive")


def _open_text(path: Path, replace_invalid: bool) -> Opened:
    schema = pa.schema({"text": pa.string()})

    def batches() -> Iterator[pa.RecordBatch]:
        lines = read_lines(path, replace_invalid=replace_invalid)
        while chunk := [*islice(lines, _ROWS)]:
            yield pa.record_batch([pa.array(chunk, pa.string())], schema)

    return Opened(schema, batches())


_OPEN: dict[str, Callable[[Path, bool], Opened]] = {
    ".parquet": _open_parquet,
    ".jsonl": _open_json,
    ".txt": _open_text,
}


def _format_of(path: Path) -> str:
    """Return the suffix of the format, without that of the compression."""
    suffix = Path(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix
    is_compressed_parquet = suffix == ".parquet" != path.suffix
    return "" if is_compressed_parquet else suffix


def _stem(path: Path) -> str:
    """Return the name without the suffixes of its format and compression."""
    return (path.with_suffix("") if path.suffix in _COMPRESSED else path).stem
