"""Every library gives the same vectors. Oracle: `Embedder.embed`, to the bit.

To add a library, add a function to `WORD_DOORS` or `SENTENCE_DOORS`. It loads a model directory and
returns a function from texts to vectors, averaged over the layers.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer, pipeline

import elmore
import elmore.integrations.huggingface
from elmore.integrations.sklearn import ElmoVectorizer

Embed = Callable[[list[str]], list[np.ndarray]]

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
    "word " * 300,
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


def open_sklearn(folder: Path) -> Embed:
    return lambda texts: [*ElmoVectorizer(folder, device="cpu").transform(texts)]


WORD_DOORS = {
    "transformers": open_transformers,
    "pipeline": open_pipeline,
    "sentence-transformers": open_sentence_transformers,
}
SENTENCE_DOORS = {"scikit-learn": open_sklearn}

pytestmark = [
    pytest.mark.filterwarnings("ignore:most letters of the text are not Latin"),
    pytest.mark.usefixtures("packed_or_plain"),
]


@pytest.mark.parametrize("open_door", WORD_DOORS.values(), ids=WORD_DOORS)
def test_word_vectors_of_hostile_texts_are_equal(
    open_door: Callable[[Path], Embed], folder: Path
) -> None:
    embed, elmo = open_door(folder), elmore.load(folder, device="cpu")
    for text in TEXTS:
        [expected] = elmo.embed([text], layers="average")
        [actual] = embed([text])
        np.testing.assert_array_equal(actual, expected, err_msg=ascii(text)[:80])


@pytest.mark.parametrize("open_door", SENTENCE_DOORS.values(), ids=SENTENCE_DOORS)
def test_sentence_vectors_of_hostile_texts_are_equal(
    open_door: Callable[[Path], Embed], folder: Path
) -> None:
    embed, elmo = open_door(folder), elmore.load(folder, device="cpu")
    for text in TEXTS:
        [words] = elmo.embed([text], layers="average")
        expected = words.mean(axis=0) if len(words) else np.zeros(elmo.dim)
        [actual] = embed([text])
        np.testing.assert_array_equal(actual, expected, err_msg=ascii(text)[:80])


def test_batch_of_hostile_texts_is_equal(folder: Path) -> None:
    expected = elmore.load(folder, device="cpu").embed(TEXTS, layers="average")
    for text, x, y in zip(TEXTS, expected, open_transformers(folder)(TEXTS), strict=True):
        np.testing.assert_array_equal(y, x, err_msg=ascii(text)[:80])
