"""Every library gives the same vectors. Oracle: `Embedder.embed`.

To add a library, add a function to `WORD_DOORS`, `SENTENCE_DOORS` or `FILES`. It loads a model
directory and returns a function from texts to vectors, averaged over the layers. The vectors are
equal to the bit, unless its `Door` has a tolerance, with the reason in a comment.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import onnxruntime
import pyarrow as pa
import pytest
import spacy
from sentence_transformers import SentenceTransformer
from spacy.tokens import Doc
from transformers import AutoModel, AutoTokenizer, pipeline

import elmore
import elmore.integrations.huggingface
from elmore.checkpoint.hdf5 import write_hdf5
from elmore.compat import allennlp, simple_elmo
from elmore.integrations import onnx
from elmore.integrations.arrow import ArrowEmbedder
from elmore.integrations.sklearn import ElmoVectorizer

Embed = Callable[[list[str]], list[np.ndarray]]
ROUNDING = 1e-6


class Door(NamedTuple):
    """A library that embeds texts, and how far its vectors may be from those of `embed`."""

    open: Callable[[Path], Embed]
    atol: float = 0
    batch_atol: float = 0
    """For several texts at once."""

    surrogates: bool = True
    """Whether it takes text that is not valid Unicode."""


TEXTS = [
    "He sat by the bank.",
    "",
    " \t\n ",
    "x" * 5000,
    "x" * 5000 + "y and " + "x" * 5000 + "z",
    "a\x01b \x1b[31mred\x1b[0m \x7f\u0085 \u200b\u200e\ufeff",
    "I \u2764\ufe0f \U0001f469\u200d\U0001f680 \U0001f1f0\U0001f1f7!",
    "\uc624\ub298 \uc740\ud589\uc5d0 \uac14\ub2e4.",
    "\u1112\u1161\u11ab\u1100\u1173\u11af",  # decomposed Hangul
    "\u03a9mega, \u043c\u0438\u0440 and \u4e16\u754c: \u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc",
    "<pad> <S> </S> <UNK> [CLS] <s>",
    "e\u0301\u0301\u0301 \ud800 lone surrogate",
    "word " * 100,
    "&amp; <br/> don't http://x.example/?a=b&c=d",
]


def open_transformers(folder: Path) -> Embed:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)

    def embed(texts: list[str]) -> list[np.ndarray]:
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        rows = zip(model(**batch).last_hidden_state, batch.attention_mask.bool(), strict=True)
        return [row[mask].numpy() for row, mask in rows]

    return embed


def open_pipeline(folder: Path) -> Embed:
    extract = pipeline("feature-extraction", model=str(folder), device="cpu")
    return lambda texts: [x[0].numpy() for x in extract(texts, return_tensors=True)]


def open_sentence_transformers(folder: Path) -> Embed:
    model = SentenceTransformer(str(folder), device="cpu")
    model[0].auto_model.refresh()  # some versions embed a text while they load a model

    def embed(texts: list[str]) -> list[np.ndarray]:
        rows = model.encode(texts, output_value=None)
        return [row["token_embeddings"][row["attention_mask"].bool()].numpy() for row in rows]

    return embed


def open_spacy(folder: Path) -> Embed:
    nlp = spacy.blank("en")
    nlp.add_pipe("elmore", config={"model": str(folder), "device": "cpu"})

    def embed(texts: list[str]) -> list[np.ndarray]:
        docs = (Doc(nlp.vocab, words=elmore.tokenize(text)) for text in texts)
        return [doc.tensor for doc in nlp.pipe(docs)]

    return embed


def open_elmo(folder: Path) -> Embed:
    elmo = elmore.load(folder, device="cpu")
    module = elmore.Elmo(elmo.bilm, weights="average", dropout=0.0)

    def embed(texts: list[str]) -> list[np.ndarray]:
        batch = elmo.encode(texts)
        [mixed] = module(batch)
        return [
            row[mask].detach().numpy() for row, mask in zip(mixed, batch.word_mask, strict=True)
        ]

    return embed


def open_allennlp(folder: Path) -> Embed:
    with TemporaryDirectory() as name:
        module = allennlp.Elmo(*to_hdf5(folder, Path(name)), dropout=0, stateful=False)

    def embed(texts: list[str]) -> list[np.ndarray]:
        output = module(allennlp.batch_to_ids([*map(elmore.tokenize, texts)]))
        rows = zip(output["elmo_representations"][0], output["mask"], strict=True)
        return [row[mask].detach().numpy() for row, mask in rows]

    return embed


def open_elmo_embedder(folder: Path) -> Embed:
    with TemporaryDirectory() as name:
        elmo = allennlp.ElmoEmbedder(*to_hdf5(folder, Path(name)), stateful=False)
    return lambda texts: [x.mean(axis=0) for x in elmo.embed_batch([*map(elmore.tokenize, texts)])]


def to_hdf5(folder: Path, output: Path) -> tuple[Path, Path]:
    options, weights = output / "options.json", output / "weights.hdf5"
    write_hdf5(elmore.load(folder, device="cpu").bilm, weights, options)
    return options, weights


def open_simple_elmo(folder: Path) -> Embed:
    model = simple_elmo.ElmoModel(stateful=False, device="cpu")
    model.load(folder)

    def embed(texts: list[str]) -> list[np.ndarray]:
        tokens = [*map(elmore.tokenize, texts)]
        rows = zip(model.get_elmo_vectors(tokens), tokens, strict=True)
        return [row[: len(words)] for row, words in rows]

    return embed


def open_arrow(folder: Path) -> Embed:
    """Open what Ray, Spark and Dask call."""
    add_vectors = ArrowEmbedder(folder, layers="average", device="cpu")
    add_vectors.embedder.refresh()  # one per process, which another test may have used

    def embed(texts: list[str]) -> list[np.ndarray]:
        rows = add_vectors(pa.table({"text": texts}))["vectors"].to_pylist()
        return [np.array(row, np.float32).reshape(-1, add_vectors.embedder.dim) for row in rows]

    return embed


def open_onnx(folder: Path) -> Embed:
    elmo = elmore.load(folder, device="cpu")
    with TemporaryDirectory() as name:
        session = onnxruntime.InferenceSession(onnx.export(Path(name) / "elmo.onnx", elmo).file)

    def embed(texts: list[str]) -> list[np.ndarray]:
        layers, mask = session.run(["layers", "mask"], {"ids": elmo.encode(texts).ids.numpy()})
        return [x[words] for x, words in zip(layers.mean(axis=1), mask, strict=True)]

    return embed


def open_files(suffix: str) -> Callable[[Path], Embed]:
    def open_folder(folder: Path) -> Embed:
        elmo = elmore.load(folder, device="cpu")

        def embed(texts: list[str]) -> list[np.ndarray]:
            with TemporaryDirectory() as name:
                text, output = Path(name) / "text.txt", Path(name) / f"vectors{suffix}"
                lines = (line.replace("\n", " ") + "\n" for line in texts)
                text.write_text("".join(lines), encoding="utf-8", newline="")
                elmore.embed_file(text, output, model=elmo, layers="average")
                return [np.array(row.vectors) for row in elmore.read_vectors(output)]

        return embed

    return open_folder


def open_sklearn(folder: Path) -> Embed:
    return lambda texts: [*ElmoVectorizer(folder, device="cpu").transform(texts)]


WORD_DOORS = {
    "transformers": Door(open_transformers),
    # One text at a time.
    "pipeline": Door(open_pipeline, batch_atol=ROUNDING),
    # Sorts texts by length.
    "sentence-transformers": Door(open_sentence_transformers, batch_atol=ROUNDING),
    "spaCy": Door(open_spacy, surrogates=False),
    # Adds up a third of each layer.
    "Elmo": Door(open_elmo, ROUNDING, ROUNDING),
    "allennlp.Elmo": Door(open_allennlp, ROUNDING, ROUNDING),
    # In HDF5, the bias of the forget gate is lower by 1.
    "allennlp.ElmoEmbedder": Door(open_elmo_embedder, ROUNDING, ROUNDING),
    # Runs the LSTMs over the boundary tokens of each sentence, in larger products of matrices.
    "simple_elmo": Door(open_simple_elmo, ROUNDING, ROUNDING),
    "Arrow": Door(open_arrow, surrogates=False),
    # Other products of matrices, and other approximations of the exponential function.
    "ONNX Runtime": Door(open_onnx, 1e-5, 1e-5),
}
FILES = {
    suffix: Door(open_files(suffix), surrogates=False)
    for suffix in (".parquet", ".arrow", ".h5", ".npz")
}
SENTENCE_DOORS = {"scikit-learn": Door(open_sklearn)}

BATCH_DOORS = {**WORD_DOORS, **FILES}

pytestmark = pytest.mark.filterwarnings("ignore:most letters of the text are not Latin")


def texts_for(door: Door) -> list[str]:
    return [text for text in TEXTS if door.surrogates or "\ud800" not in text]


def assert_equal(actual: np.ndarray, expected: np.ndarray, atol: float, text: str) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol, err_msg=ascii(text)[:80])


@pytest.mark.usefixtures("packed_or_plain")
@pytest.mark.parametrize("door", WORD_DOORS.values(), ids=WORD_DOORS)
def test_word_vectors_of_hostile_texts_are_equal(door: Door, folder: Path) -> None:
    embed, elmo = door.open(folder), elmore.load(folder, device="cpu")
    for text in texts_for(door):
        [expected] = elmo.embed([text], layers="average")
        [actual] = embed([text])
        assert_equal(actual, expected, door.atol, text)


@pytest.mark.parametrize("door", BATCH_DOORS.values(), ids=BATCH_DOORS)
def test_word_vectors_of_a_batch_are_equal(door: Door, folder: Path) -> None:
    texts = texts_for(door)
    expected = elmore.load(folder, device="cpu").embed(texts, layers="average")
    for text, x, y in zip(texts, door.open(folder)(texts), expected, strict=True):
        assert_equal(x, y, door.batch_atol, text)


@pytest.mark.usefixtures("packed_or_plain")
@pytest.mark.parametrize("door", SENTENCE_DOORS.values(), ids=SENTENCE_DOORS)
def test_sentence_vectors_of_hostile_texts_are_equal(door: Door, folder: Path) -> None:
    embed, elmo = door.open(folder), elmore.load(folder, device="cpu")
    for text in texts_for(door):
        [words] = elmo.embed([text], layers="average")
        expected = words.mean(axis=0) if len(words) else np.zeros(elmo.dim)
        [actual] = embed([text])
        assert_equal(actual, expected, door.atol, text)
