"""scikit-learn: texts or token lists to sentence vectors, as a step of a `Pipeline`.

    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    from elmore.integrations.sklearn import ElmoVectorizer

    classifier = make_pipeline(ElmoVectorizer(), LogisticRegression())
    classifier.fit(texts, labels)

An estimator holds the name or path of a model, not its weights.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32

from elmore.checkpoint.hub import parse_id
from elmore.checkpoint.pretrained import find_model
from elmore.embedder import Embedder, Precision, load
from elmore.errors import require
from elmore.text.tokenize import TokenizerName

require("sklearn", extra="sklearn")
from sklearn.base import (  # noqa: E402
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)


class ElmoVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Returns one vector per text: the mean or maximum over the vectors of its words.

    It learns nothing, so `transform` works without `fit`. Clones share the loaded model; a pickle
    does not contain the weights, which are read from the same name or path again.

    Args:
        model: See `elmore.load`.
        layers: `average` of the layers, `top` or the index of a layer.
        pool: `mean` or `max` over the words.
        device: See `elmore.load`.
        precision: See `elmore.load`.
        tokenizer: See `elmore.load`.
        language: See `elmore.load`.
    """

    def __init__(
        self,
        model: Path | str | None = None,
        *,
        layers: Literal["top", "average"] | int = "average",
        pool: Literal["mean", "max"] = "mean",
        device: str = "auto",
        precision: Precision = "fp32",
        tokenizer: TokenizerName | None = None,
        language: str | None = None,
    ) -> None:
        self.model = model
        self.layers = layers
        self.pool = pool
        self.device = device
        self.precision = precision
        self.tokenizer = tokenizer
        self.language = language

    def fit(self, X: Iterable[str | Sequence[str]], y: object = None) -> "ElmoVectorizer":  # noqa: ARG002
        """Load the model; the texts are not used."""
        self._load()
        return self

    def transform(self, X: Iterable[str | Sequence[str]]) -> Float32[np.ndarray, "S D"]:
        """Return the vectors of texts, one row each.

        Args:
            X: Strings, which are tokenized, or lists of tokens.
        """
        return self._load().sentence_vectors(X, layers=self.layers, pool=self.pool)

    @property
    def _n_features_out(self) -> int:
        return self._load().dim

    def _load(self) -> Embedder:
        path = _find(self.model) if self._is_on_hub() else find_model(self.model)
        files = path.iterdir() if path.is_dir() else [path]
        changed = max((file.stat().st_mtime_ns for file in files if file.exists()), default=0)
        options = (self.device, self.precision, self.tokenizer, self.language)
        return _load(path.resolve(), changed, *options)

    def _is_on_hub(self) -> bool:
        return bool(self.model and parse_id(self.model) and not Path(self.model).exists())

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = False
        return tags


@lru_cache
def _find(model: Path | str) -> Path:
    """Look a model up once per process: a branch on the Hub may move after `fit`."""
    return find_model(model)


@lru_cache(maxsize=1)
def _load(
    path: Path,
    changed: int,  # noqa: ARG001  # a model that is written again is loaded again
    device: str,
    precision: Precision,
    tokenizer: TokenizerName | None,
    language: str | None,
) -> Embedder:
    return load(path, device=device, precision=precision, tokenizer=tokenizer, language=language)
