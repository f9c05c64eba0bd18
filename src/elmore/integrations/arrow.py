"""Arrow tables with sentences in, the same tables with vectors out.

One callable for every engine that maps a function over Arrow data: Ray Data, Spark (`mapInArrow`),
Dask and Hugging Face datasets.

    from elmore.integrations.arrow import ArrowEmbedder

    embed = ArrowEmbedder(column="text", layers="top")
    embed(pyarrow.table({"id": [7], "text": ["He sat by the bank."]}))  # id, text, tokens, vectors
"""

from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, get_args

import pyarrow as pa
import torch

from elmore.embedder import Dtype, Embedder, load
from elmore.errors import InputError
from elmore.inference.layers import Layers, check_layers
from elmore.schema import check, one_of
from elmore.text.sentences import Sentence
from elmore.vectors.parts import BATCH_BYTES
from elmore.vectors.rows import VectorForm, VectorRow, to_batch

_loading = Lock()


class ArrowEmbedder:
    """Adds the columns `tokens` and `vectors` to Arrow tables, one output row per input row.

    The other columns are kept, and so is the order of the rows. A null sentence has no words, like
    an empty one. The types of the new columns are those of the files of `elmore.embed_file`.

    An instance holds the name of a model, not its weights, so it is cheap to send to workers. A
    process loads the model when it embeds its first table, and keeps it for all others.

    Args:
        model: See `elmore.load`.
        column: The column with the sentences: strings, which are tokenized, or lists of tokens.
        layers: `all` (J, W, D) for each row; `top`, `average` or a layer number (W, D).
        dtype: Type of the vectors.
        variable_lists: Use lists of variable size in the type of the vectors. Spark needs this.
        threads: Threads of PyTorch and Arrow in this process; by default, their settings are not
            changed. Use the number of CPUs that the engine assigns to a worker.
        load_options: The other arguments of `load`, such as `device` and `precision`.
    """

    def __init__(
        self,
        model: Path | str | None = None,
        *,
        column: str = "text",
        layers: Layers = "all",
        dtype: Dtype = "float32",
        variable_lists: bool = False,
        threads: int | None = None,
        **load_options: Any,
    ) -> None:
        if model is not None and not isinstance(model, Path | str):
            raise TypeError(f"expected the name or path of a model, got {type(model).__name__}")
        check("dtype", dtype, one_of(*get_args(Dtype)))
        self.model = model
        self.column = column
        self.layers = layers
        self.dtype: Dtype = dtype
        self.variable_lists = variable_lists
        self.threads = threads
        self.load_options = load_options

    @property
    def embedder(self) -> Embedder:
        """The model, loaded once per process."""
        with _loading:
            if self.threads is not None:
                torch.set_num_threads(self.threads)
                pa.set_cpu_count(self.threads)
            return _load(self.model, tuple(sorted(self.load_options.items())))

    def __call__(self, table: pa.Table | pa.RecordBatch) -> pa.Table:
        """Return the table with vectors. All of them are in memory; see `stream`."""
        batches = [table] if isinstance(table, pa.RecordBatch) else table.to_batches()
        return pa.Table.from_batches(self.stream(batches), self.schema(table.schema))

    def stream(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield record batches with vectors, in bounded memory.

        An input batch becomes one or more output batches, of about 16 MiB each.

        Raises:
            InputError: If the column is missing, or is not text.
        """
        embedder, form = self.embedder, self._form
        waiting: deque[pa.RecordBatch] = deque()

        def sentences() -> Iterator[str | Sentence]:
            first = 0
            for batch in batches:
                self.check(batch.schema)
                waiting.append(batch)
                yield from _sentences(batch.column(self.column), self.column, first)
                first += batch.num_rows

        rows: list[VectorRow] = []
        size = 0  # of these rows, in bytes
        done = 0  # rows of the first batch in `waiting` that were yielded
        for tokens, vectors in embedder.stream(sentences(), layers=self.layers, dtype=self.dtype):
            while not waiting[0].num_rows:
                yield self._join(waiting.popleft(), rows, form)
            rows.append(VectorRow(done + len(rows), tokens, vectors))
            size += vectors.nbytes + 64 * (len(tokens) + 4)  # about what Python's objects take
            last = done + len(rows) == waiting[0].num_rows
            if last or size >= BATCH_BYTES:
                yield self._join(waiting[0].slice(done, len(rows)), rows, form)
                done = 0 if last else done + len(rows)
                rows, size = [], 0
                if last:
                    waiting.popleft()
        for batch in waiting:  # without rows
            yield self._join(batch, rows, form)

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of the output for those of the input.

        Raises:
            InputError: If the column is missing, or is not text.
        """
        self.check(schema)
        added = self._form.schema
        vectors = added.field("vectors").type
        return pa.schema(
            {
                **{name: schema.field(name).type for name in schema.names},
                "tokens": added.field("tokens").type,
                "vectors": _with_variable_lists(vectors) if self.variable_lists else vectors,
            }
        )

    def check(self, schema: pa.Schema) -> None:
        """Raise `InputError` unless a table with these columns can be embedded."""
        names = ", ".join(map(repr, schema.names))
        if len({*schema.names}) < len(schema.names):
            raise InputError(f"expected columns with different names, got {names}")
        if self.column not in schema.names:
            raise InputError(
                f"there is no column {self.column!r}. Choose the column that has the sentences: "
                f"{names or 'the table has no columns'}"
            )
        kind = schema.field(self.column).type
        if not (_is_string(kind) or (_is_list(kind) and _is_string(kind.value_type))):
            raise InputError(
                f"the column {self.column!r} is of type {kind}; expected strings or lists of "
                "strings"
            )
        for name in {"tokens", "vectors"} & set(schema.names) - {self.column}:
            raise InputError(
                f"the input has a column {name!r}, as the output will have. Rename or drop it."
            )
        if self.column == "vectors" or (self.column == "tokens" and not _is_list(kind)):
            raise InputError(
                f"the column {self.column!r} would be replaced in the output. Rename it."
            )

    @property
    def _form(self) -> VectorForm:
        embedder = self.embedder
        check_layers(self.layers, embedder.num_layers)
        num_layers = embedder.num_layers if self.layers == "all" else None
        return VectorForm(num_layers, embedder.dim, self.dtype)

    def _join(
        self, batch: pa.RecordBatch, rows: list[VectorRow], form: VectorForm
    ) -> pa.RecordBatch:
        """Return the batch with the columns of its rows added."""
        added = to_batch(rows, form)
        schema = self.schema(batch.schema)
        columns = {name: batch.column(name) for name in batch.schema.names}
        columns |= {name: added.column(name) for name in ("tokens", "vectors")}
        return pa.record_batch([columns[f.name].cast(f.type) for f in schema], schema)


def _sentences(column: pa.Array, name: str, first_row: int) -> Iterator[str | Sentence]:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"column {name!r}, rows from {first_row:,} on: damaged text ({error})"
        ) from error
    for row, sentence in enumerate(column.to_pylist(), start=first_row):
        if isinstance(sentence, list) and None in sentence:
            raise InputError(
                f"column {name!r}, row {row:,}: token {sentence.index(None)} is null; expected a "
                "string"
            )
        yield [] if sentence is None else sentence


def _is_string(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(check(kind) for check in checks)


def _is_list(kind: pa.DataType) -> bool:
    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(kind) for check in checks)


def _with_variable_lists(kind: pa.DataType) -> pa.DataType:
    return pa.list_(_with_variable_lists(kind.value_type)) if _is_list(kind) else kind


@lru_cache(maxsize=1)
def _load(model: Path | str | None, options: tuple[tuple[str, Any], ...]) -> Embedder:
    return load(model, **dict(options))
