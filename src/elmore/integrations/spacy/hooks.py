"""Vectors and similarities of tokens, spans and documents, from the rows of `doc.tensor`.

Without these hooks, spaCy would use the static vectors of a pipeline that has some, and the
similarity of two equally spelled words would be 1 in any context.
"""

import numpy as np
from spacy.tokens import Doc, Span, Token

from elmore.errors import InputError


def set_hooks(doc: Doc) -> Doc:
    """Make the vectors and similarities of a document those of ELMo; return the document.

    The component `elmore` calls this. Call it for documents that were serialized, for example by
    another process: spaCy keeps `doc.tensor`, but no hooks.

    Raises:
        InputError: If the document has no vectors.
    """
    if doc.tensor.ndim != 2 or len(doc.tensor) != len(doc):
        raise InputError(
            "the document has no vectors in doc.tensor; run the component elmore on it again, or "
            "serialize it with Doc.to_bytes, because DocBin leaves out the tensor"
        )
    # Not vector_norm of spans and tokens: spaCy computes it from the vector, and Span.vector_norm
    # would call the hook of the vector.
    doc.user_hooks |= {
        "vector": _mean,
        "has_vector": _has_vector,
        "vector_norm": _norm,
        "similarity": _similarity,
    }
    doc.user_span_hooks |= {
        "vector": _mean,
        "has_vector": _has_vector,
        "similarity": _similarity,
    }
    doc.user_token_hooks |= {
        "vector": _row,
        "has_vector": _has_vector,
        "similarity": _similarity,
    }
    return doc


def _row(token: Token) -> np.ndarray:
    return token.doc.tensor[token.i]


def _mean(span: Doc | Span) -> np.ndarray:
    """Return the mean over the words; whitespace tokens have no vector."""
    rows = span.tensor
    words = rows[rows.any(axis=1)]
    return words.mean(axis=0) if len(words) else np.zeros(rows.shape[1], rows.dtype)


def _has_vector(item: Doc | Span | Token) -> bool:
    return bool(item.tensor.any())


def _norm(doc: Doc) -> float:
    return float(np.linalg.norm(_mean(doc)))


def _similarity(item: Doc | Span | Token, other: Doc | Span | Token) -> float:
    """Return the cosine of two vectors; 0 if one of them has no words."""
    x, y = item.vector, other.vector
    if x.shape != y.shape:
        raise InputError(
            f"cannot compare a vector of {len(x)} dimensions with one of {len(y)}; expected two "
            "tokens, spans or documents with vectors of the same model"
        )
    norms = np.linalg.norm(x) * np.linalg.norm(y)
    return float(x @ y / norms) if norms else 0.0
