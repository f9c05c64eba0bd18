"""Vectors as response bodies: JSON, Arrow, npy.

J layers, W words, S sentences, D dim.
"""

from collections.abc import Sequence
from io import BytesIO

import numpy as np
import orjson
import pyarrow as pa
from jaxtyping import Float

from elmore.errors import InputError
from elmore.inference.batches import Embedded
from elmore.server.messages import ARROW, NPY, Answer
from elmore.server.schemas import EmbedRequest
from elmore.vectors.rows import VectorForm, VectorRow, to_batch

BYTES_PER_NUMBER = {"json": 12, "arrow": 4, "npy": 4}
"""About the size of a float32 in each format."""


def as_json(value: object, status: int = 200) -> Answer:
    """Return a JSON body; floats of arrays have as many digits as they need to be read back."""
    return Answer(status, orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY))


def refuse(error: InputError) -> Answer:
    """Return the answer to an invalid request."""
    return as_json({"detail": str(error)}, 422)


def embedded_sentences(request: EmbedRequest, model: str, sentences: list[Embedded]) -> Answer:
    """Return tokens and vectors, all layers or one, pooled or not, in the requested format."""
    tokens = [tokens for tokens, _ in sentences]
    arrays = [_pool(vectors, request.pooling) for _, vectors in sentences]
    match request.format:
        case "json":
            # orjson takes contiguous arrays only.
            vectors = list(map(np.ascontiguousarray, arrays))
            return as_json({"model": model, "tokens": tokens, "vectors": vectors})
        case "npy":
            return _as_npy(arrays, pooled=request.pooling != "none")
        case "arrow":
            if request.pooling != "none":
                return _pooled_as_arrow(tokens, arrays)
            return _as_arrow(tokens, arrays)


def _pool(vectors: Float[np.ndarray, "*J W D"], pooling: str) -> Float[np.ndarray, "..."]:
    if pooling == "none":
        return vectors
    if not vectors.shape[-2]:
        return np.zeros((*vectors.shape[:-2], vectors.shape[-1]), vectors.dtype)
    return vectors.mean(axis=-2) if pooling == "mean" else vectors.max(axis=-2)


def _as_npy(arrays: Sequence[np.ndarray], *, pooled: bool) -> Answer:
    joined = np.stack(arrays) if pooled else np.concatenate(arrays, axis=-2)
    file = BytesIO()
    np.save(file, joined, allow_pickle=False)
    lengths = () if pooled else (("X-Lengths", ",".join(str(a.shape[-2]) for a in arrays)),)
    return Answer(200, file.getvalue(), NPY, lengths)


def _as_arrow(tokens: list[list[str]], arrays: Sequence[np.ndarray]) -> Answer:
    *layers, _, dim = arrays[0].shape
    form = VectorForm(layers[0] if layers else None, dim, "float32")
    rows = [VectorRow(i, *row) for i, row in enumerate(zip(tokens, arrays, strict=True))]
    return _arrow_file(to_batch(rows, form))


def _pooled_as_arrow(tokens: list[list[str]], arrays: Sequence[np.ndarray]) -> Answer:
    stacked = np.stack(arrays)
    vectors = pa.array(stacked.reshape(-1))
    for size in reversed(stacked.shape[1:]):
        vectors = pa.FixedSizeListArray.from_arrays(vectors, size)
    ids = pa.array(range(len(tokens)), pa.int64())
    columns = [ids, pa.array(tokens, pa.list_(pa.string())), vectors]
    return _arrow_file(pa.record_batch(columns, names=["id", "tokens", "vectors"]))


def _arrow_file(batch: pa.RecordBatch) -> Answer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return Answer(200, sink.getvalue().to_pybytes(), ARROW)
