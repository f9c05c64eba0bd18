"""Requests and responses of the API, as the OpenAPI document describes them."""

import math
from abc import abstractmethod
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)


def _expect(values: str) -> WrapValidator:
    """Replace the errors of a union, one for each of its types, by one that lists the values."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise ValueError(f"expected {values}") from None

    return WrapValidator(validate)


Layers = Annotated[
    Literal["all", "top", "average", "sum"] | Annotated[int, Field(ge=0)],
    _expect("all, top, average, sum or a number from 0"),
]
Layer = Annotated[
    Literal["top", "average"] | Annotated[int, Field(ge=0)],
    _expect("top, average or a number from 0"),
]


def _check_unicode(text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("expected Unicode text, got a lone surrogate")
    return text


Text = Annotated[str, AfterValidator(_check_unicode)]
# For lists: stop at the first invalid item. To describe 500,000 of them takes seconds, in which the
# server answers nobody.
_FIRST_ERROR = Field(fail_fast=True)
Tokens = Annotated[list[Text], _FIRST_ERROR]

_BANK = "He sat by the [bank]."
_RATES = "The [bank] raised its rates."


class _Request(BaseModel):
    """Unknown fields and values of other types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _TextRequest(_Request):
    """A request with sentences to compute."""

    @abstractmethod
    def sentences(self) -> list[str | Tokens]:
        """Return the sentences, tokenized or not."""

    def characters(self) -> int:
        """Return the number of characters."""
        return sum(len(s) if isinstance(s, str) else sum(map(len, s)) for s in self.sentences())

    def estimate_words(self) -> int:
        """Return about how many words there are; texts are tokenized by the worker."""
        return sum(1 + (len(s) // 5 if isinstance(s, str) else len(s)) for s in self.sentences())


class _ModelRequest(_TextRequest):
    model: Text | None = Field(None, description="Name of a model; by default the first one.")


class Sentences(_ModelRequest):
    """Sentences as texts, which the server tokenizes, or as tokens."""

    texts: Annotated[list[Text], _FIRST_ERROR] | None = Field(
        None, min_length=1, description="Sentences to tokenize."
    )
    tokens: Annotated[list[Tokens], _FIRST_ERROR] | None = Field(
        None, min_length=1, description="Sentences that are already tokenized."
    )

    @model_validator(mode="after")
    def _has_one(self) -> "Sentences":
        if (self.texts is None) == (self.tokens is None):
            raise ValueError("expected either texts or tokens")
        return self

    def sentences(self) -> list[str | Tokens]:
        """Return the sentences, tokenized or not."""
        return [*(self.texts or ()), *(self.tokens or ())]


class EmbedRequest(Sentences):
    """Sentences, and the form of their vectors."""

    layers: Layers = Field(
        "all", description="All layers, the top one, their average, their sum, or one."
    )
    pooling: Literal["none", "mean", "max"] = Field(
        "none", description="none: one vector per token; mean or max: one per sentence."
    )
    format: Literal["json", "arrow", "npy"] = Field(
        "json",
        description="json; arrow: the file that `elmore embed` writes; npy: one array with the "
        "tokens of all sentences, whose lengths are in the header X-Lengths.",
    )
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"texts": ["He sat by the bank."], "layers": "top"},
                {"tokens": [["Banks", "fail"]], "layers": "average", "pooling": "mean"},
                {"texts": ["Banks fail.", "He sat."], "format": "npy"},
            ]
        }
    )


class EmbedResponse(BaseModel):
    """Tokens and vectors."""

    model: str
    tokens: list[Tokens]
    vectors: list[Any] = Field(
        description="For each sentence: layers x tokens x dim, or tokens x dim for one layer; with "
        "pooling layers x dim, or dim."
    )


class TokenizeRequest(_ModelRequest):
    """Sentences to tokenize as the training text of the model was."""

    texts: Annotated[list[Text], _FIRST_ERROR] = Field(min_length=1)
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"texts": ["Don't panic, said the guide."]}]}
    )

    def sentences(self) -> list[str | Tokens]:
        """Return the texts."""
        return [*self.texts]


class TokenizeResponse(BaseModel):
    """One list of tokens per sentence."""

    tokens: list[Tokens]


class Word(_Request):
    """A word in a sentence: in brackets in a text, or the position of a token."""

    text: Text | None = Field(None, description="A sentence with one word in brackets.")
    tokens: Tokens | None = None
    position: int | None = Field(None, ge=0, description="Index of the word in `tokens`.")
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"text": _BANK}, {"tokens": ["The", "bank", "failed"], "position": 1}]
        }
    )

    @model_validator(mode="after")
    def _is_complete(self) -> "Word":
        if (self.text is None) == (self.tokens is None):
            raise ValueError("expected either text or tokens")
        if (self.tokens is None) != (self.position is None):
            raise ValueError("position is for tokens: the word of a text is in brackets")
        if self.position is not None and self.position >= len(self.tokens or ()):
            raise ValueError(f"expected a position below {len(self.tokens or ())}")
        return self

    def sentence(self) -> str | Tokens:
        """Return the sentence, tokenized or not."""
        return self.text if self.text is not None else self.tokens or []


class WordInContext(BaseModel):
    """A word, and the tokens of its sentence."""

    word: str
    position: int
    tokens: Tokens


class SimilarityRequest(_ModelRequest):
    """Two words in two sentences."""

    first: Word
    second: Word
    matrix: bool = Field(False, description="Also compare all tokens of both sentences.")
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"first": {"text": _BANK}, "second": {"text": _RATES}}]}
    )

    def sentences(self) -> list[str | Tokens]:
        """Return both sentences."""
        return [self.first.sentence(), self.second.sentence()]


class SimilarityResponse(BaseModel):
    """Cosine similarities."""

    first: WordInContext
    second: WordInContext
    layers: list[float] = Field(description="Cosine similarity of both words by layer, 0 first.")
    average: float = Field(description="That of the average of the layers.")
    matrix: list[list[list[float]]] | None = Field(
        None, description="Layers x tokens of the first sentence x tokens of the second."
    )


class Mix(_Request):
    """Eq. (1) of the paper: gamma * sum of s_j h_j, with s = softmax(weights)."""

    weights: Annotated[list[Annotated[float, Field(ge=-50, le=50)]], _FIRST_ERROR] = Field(
        description="One weight per layer, before the softmax."
    )
    gamma: float = Field(1.0, ge=-1e3, le=1e3)
    model_config = ConfigDict(json_schema_extra={"examples": [{"weights": [0, 1, -1]}]})

    def softmax(self) -> list[float]:
        """Return s."""
        largest = max(self.weights, default=0)
        terms = [math.exp(w - largest) for w in self.weights]
        return [term / sum(terms) for term in terms]


class _WordRequest(_ModelRequest):
    word: Word

    def sentences(self) -> list[str | Tokens]:
        """Return the sentence of the word."""
        return [self.word.sentence()]


class _SearchRequest(_WordRequest):
    layer: Layer = Field("top", description="Layer to compare; not used with `mix`.")
    mix: Mix | None = Field(None, description="Compare mixed layers instead of one layer.")


class NeighborsRequest(_SearchRequest):
    """A word in context, to compare with all words of the corpus."""

    k: int = Field(5, ge=1, le=50, description="Number of neighbors.")
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"word": {"text": "They put on a [play] last night."}, "k": 3},
                {"word": {"text": _BANK}, "mix": {"weights": [0, 1, 1], "gamma": 1}},
            ]
        }
    )


class Neighbor(WordInContext):
    """A word of the corpus."""

    similarity: float = Field(description="Cosine similarity to the query.")
    line: int = Field(description="Index of its sentence in the corpus, from 0.")


class NeighborsResponse(BaseModel):
    """The nearest words of the corpus."""

    query: WordInContext
    length: float = Field(description="Length of the query's vector, which gamma scales.")
    neighbors: list[Neighbor]


class MapRequest(_SearchRequest):
    """A word in context, to be drawn with its occurrences in the corpus."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"word": {"text": "They put on a [play] last night."}}]}
    )


class Point(WordInContext):
    """An occurrence of a word."""

    x: float
    y: float
    cluster: int
    line: int | None = Field(description="Index of its sentence in the corpus; null: the query.")


class MapResponse(BaseModel):
    """Occurrences of a word in two dimensions (PCA of unit vectors); the query is the first."""

    points: list[Point]


class InsideRequest(_WordRequest):
    """A word in a sentence, to be followed through the model."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"word": {"text": _BANK}}]})


class Byte(BaseModel):
    """A character id of the input: a byte, or a marker such as BOW (begin of word)."""

    id: int
    value: str = Field(description="Two hexadecimal digits, or the name of a marker.")
    character: str | None = Field(description="The character, at its first byte.")


class FilterMatch(BaseModel):
    """A character filter at its strongest position."""

    filter: int
    activation: float
    start: int = Field(description="Index of the first id that the filter saw.")


class FilterGroup(BaseModel):
    """All filters of a width."""

    width: int
    filters: int
    fired: int = Field(description="Filters with a positive activation.")
    strongest: list[FilterMatch]


class LayerValues(BaseModel):
    """A vector of the word."""

    layer: int
    norm: float
    similarity: float = Field(description="Cosine similarity to layer 0, the word alone.")
    values: list[float]


class InsideResponse(BaseModel):
    """A word on its way through the model."""

    query: WordInContext
    bytes: list[Byte]
    filters: list[FilterGroup]
    layers: list[LayerValues]


TaskInput = Annotated[
    Text | dict[Text, Text], _expect("Unicode text, or an object with the texts by name")
]


class TaskRequest(_TextRequest):
    """Inputs of a task: a text each, or an object with the texts of tasks that need several."""

    inputs: Annotated[list[TaskInput], _FIRST_ERROR] = Field(min_length=1)
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"inputs": ["Ada Lovelace lived in London."]},
                {"inputs": [{"premise": "A man sings.", "hypothesis": "A man is silent."}]},
            ]
        }
    )

    def sentences(self) -> list[str | Tokens]:
        """Return the inputs, each as one text."""
        return [i if isinstance(i, str) else " ".join(i.values()) for i in self.inputs]


class TaskResponse(BaseModel):
    """One prediction per input, in the form that `elmore predict` prints."""

    task: str
    predictions: list[dict[str, Any]] = Field(
        description="Predictions; `error` instead where an input is invalid."
    )


class ModelInfo(BaseModel):
    """A model."""

    name: str
    language: str
    tokenizer: str
    precision: str
    layers: int
    dim: int
    weights_hash: str | None
    reads_characters: bool
    corpus_sentences: int | None = Field(
        description="Sentences in which neighbors are searched; null if there are none."
    )


class TaskInfo(BaseModel):
    """A trained task."""

    name: str
    task: str
    elmo: bool = Field(description="False for a baseline.")
    inputs: list[str]
    model_config = ConfigDict(from_attributes=True)


class ModelsResponse(BaseModel):
    """What is loaded."""

    version: str
    models: list[ModelInfo]
    tasks: list[TaskInfo]
    limits: dict[str, int | float]


class Problem(BaseModel):
    """Why a request was not answered."""

    detail: str
