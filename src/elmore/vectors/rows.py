"""Sentences with their vectors, as rows of arrays and as Arrow record batches.

J layers, W words, D dim.
"""

import math
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Float

Dtype = Literal["float32", "float16"]

_SURROGATE = re.compile("[\ud800-\udfff]")


class VectorRow(NamedTuple):
    """One sentence: its line number, its tokens, and its vectors (J, W, D) or (W, D)."""

    id: int
    tokens: list[str]
    vectors: Float[np.ndarray, "..."]


class VectorForm(NamedTuple):
    """What all rows of a file share. Without `num_layers`, the vectors of a row are (W, D)."""

    num_layers: int | None
    dim: int
    dtype: Dtype

    @property
    def schema(self) -> pa.Schema:
        """The columns of a file; J and D are part of the type, W varies from row to row."""
        vectors = pa.list_(pa.list_(pa.from_numpy_dtype(self.dtype), self.dim))
        if self.num_layers is not None:
            vectors = pa.list_(vectors, self.num_layers)
        return pa.schema({"id": pa.int64(), "tokens": pa.list_(pa.string()), "vectors": vectors})


def to_batch(rows: Sequence[VectorRow], form: VectorForm) -> pa.RecordBatch:
    """Return the rows as one record batch, without copying vectors that are contiguous.

    Lone surrogates, which UTF-8 does not have, become U+FFFD.
    """
    schema = form.schema
    lengths = np.array([len(row.tokens) for row in rows], dtype=np.int64)
    ids = pa.array([row.id for row in rows], pa.int64())
    words = list(chain.from_iterable(row.tokens for row in rows))
    try:
        strings = pa.array(words, pa.string())
    except UnicodeEncodeError:
        strings = pa.array([_SURROGATE.sub("\ufffd", word) for word in words], pa.string())
    tokens = pa.ListArray.from_arrays(_offsets(lengths), strings)

    values = _join([row.vectors for row in rows], np.dtype(form.dtype))
    of_row = schema.field("vectors").type
    of_layer = of_row if form.num_layers is None else of_row.value_type
    flat = pa.Array.from_buffers(
        pa.from_numpy_dtype(form.dtype), values.size, [None, pa.py_buffer(values)]
    )
    vectors = pa.FixedSizeListArray.from_arrays(flat, type=of_layer.value_type)
    lists = lengths if form.num_layers is None else lengths.repeat(form.num_layers)
    vectors = pa.ListArray.from_arrays(_offsets(lists), vectors, type=of_layer)
    if form.num_layers is not None:
        vectors = pa.FixedSizeListArray.from_arrays(vectors, type=of_row)
    return pa.record_batch([ids, tokens, vectors], schema=schema)


def from_batch(batch: pa.RecordBatch) -> Iterator[VectorRow]:
    """Yield the rows of a record batch; their vectors are read-only views of it."""
    lists = batch.column("vectors")
    layers: tuple[int, ...] = ()
    if pa.types.is_fixed_size_list(lists.type):
        layers = (lists.type.list_size,)
        lists = lists.flatten()
    if not (pa.types.is_list(lists.type) and pa.types.is_fixed_size_list(lists.type.value_type)):
        raise ValueError(f"unexpected type of the vectors, {lists.type}")
    J, D = math.prod(layers), lists.type.value_type.list_size
    vectors = lists.flatten().flatten().to_numpy().reshape(-1, D)
    lengths = lists.value_lengths().to_numpy()[::J].tolist()
    columns = batch.column("id").to_pylist(), batch.column("tokens").to_pylist()
    start = 0
    for i, tokens, W in zip(*columns, lengths, strict=True):
        end = start + J * W
        yield VectorRow(i, tokens, vectors[start:end].reshape(*layers, W, D))
        start = end


def _offsets(lengths: np.ndarray) -> pa.Array:
    return pa.array(np.concatenate([[0], lengths.cumsum()]), pa.int32())


def _join(arrays: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Return all values as one flat array: a view if the arrays follow each other in one block."""
    arrays = [np.ascontiguousarray(array, dtype) for array in arrays if array.size]
    block = arrays[0].base if arrays else None
    if isinstance(block, np.ndarray) and block.flags.c_contiguous and block.dtype == dtype:
        first = place = _address(arrays[0])
        for array in arrays:
            if array.base is not block or _address(array) != place:
                break
            place += array.nbytes
        else:
            start, end = ((p - _address(block)) // dtype.itemsize for p in (first, place))
            return block.reshape(-1)[start:end]
    return np.concatenate([np.empty(0, dtype), *(array.ravel() for array in arrays)])


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
