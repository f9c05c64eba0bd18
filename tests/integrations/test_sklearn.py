"""scikit-learn. Oracles: `Embedder.sentence_vectors`; scikit-learn's own estimator checks."""

import pickle
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

import elmore
from elmore.embedder import Embedder
from elmore.integrations import sklearn as integration
from elmore.integrations.sklearn import ElmoVectorizer
from tests.integrations.hub import Files, Hub

TEXTS = ["He sat by the bank.", "", "Banks fail", "The bank of the river"]
# scikit-learn itself runs no check for text input; these use no numbers as input.
CHECKS = [
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_valid_tag_types,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_mixin_order,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_set_params,
    estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
]


@pytest.fixture
def vectorizer(folder: Path) -> ElmoVectorizer:
    return ElmoVectorizer(folder, device="cpu")


@pytest.fixture
def elmo(folder: Path) -> Embedder:
    return elmore.load(folder, device="cpu")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_estimator_checks_pass(check: object) -> None:
    check("ElmoVectorizer", ElmoVectorizer())


def test_transform_gives_sentence_vectors(vectorizer: ElmoVectorizer, elmo: Embedder) -> None:
    np.testing.assert_array_equal(vectorizer.transform(TEXTS), elmo.sentence_vectors(TEXTS))
    tokens = [["He", "sat"], [], ["Banks", "fail"]]
    np.testing.assert_array_equal(vectorizer.fit_transform(tokens), elmo.sentence_vectors(tokens))
    vectorizer.set_params(layers="top", pool="max")
    expected = elmo.sentence_vectors(TEXTS, layers="top", pool="max")
    for texts in (pd.Series(TEXTS), np.array(TEXTS), np.array(TEXTS, dtype=object)):
        np.testing.assert_array_equal(vectorizer.transform(texts), expected)


@pytest.mark.parametrize("texts", ["one text", 5, pd.DataFrame({"text": TEXTS}), np.eye(2)])
def test_other_input_is_rejected(vectorizer: ElmoVectorizer, texts: object) -> None:
    with pytest.raises(TypeError, match=r"expected a .*list"):
        vectorizer.transform(texts)


def test_pandas_output_has_named_columns(vectorizer: ElmoVectorizer, elmo: Embedder) -> None:
    table = vectorizer.set_output(transform="pandas").transform(pd.Series(TEXTS, index=[*"abcd"]))
    assert [*table.index] == [*"abcd"]
    assert [*table.columns] == [f"elmovectorizer{i}" for i in range(elmo.dim)]
    np.testing.assert_array_equal(table.to_numpy(), elmo.sentence_vectors(TEXTS))


def test_pickle_has_no_weights(vectorizer: ElmoVectorizer, elmo: Embedder) -> None:
    vectorizer.fit(TEXTS).transform(TEXTS)
    pickled = pickle.dumps(vectorizer)
    assert len(pickled) < 1000
    np.testing.assert_array_equal(
        pickle.loads(pickled).transform(TEXTS), elmo.sentence_vectors(TEXTS)
    )


def test_grid_search_loads_the_model_once(
    vectorizer: ElmoVectorizer, elmo: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = []
    integration._load.cache_clear()
    monkeypatch.setattr(
        integration, "load", lambda *a, **k: loads.append(a) or elmore.load(*a, **k)
    )
    words = [["good", "bad"][n % 2] for n in range(12)]
    texts = [f"a {word} thing {n}" for n, word in enumerate(words)]
    pipeline = make_pipeline(vectorizer, LogisticRegression(C=1000))
    search = GridSearchCV(pipeline, {"elmovectorizer__layers": ["average", 0]}, cv=2)
    search.fit(texts, words)
    assert len(loads) == 1
    assert set(search.predict(texts)) <= {"good", "bad"}
    expected = LogisticRegression(C=1000).fit(elmo.sentence_vectors(texts), words)
    fitted = clone(pipeline).fit(texts, words)
    np.testing.assert_allclose(
        fitted.predict_proba(texts),
        expected.predict_proba(elmo.sentence_vectors(texts)),
        rtol=0,
        atol=1e-4,
    )


def test_model_that_was_written_again_is_loaded_again(
    folder: Path, tmp_path: Path, embedder: Embedder
) -> None:
    path = tmp_path / "model"
    shutil.copytree(folder, path)
    vectorizer = ElmoVectorizer(path, device="cpu", tokenizer="whitespace")
    before = vectorizer.fit_transform(TEXTS)
    shutil.rmtree(path)
    embedder.save(path)
    after = vectorizer.fit_transform(TEXTS)
    assert not np.array_equal(after, before)
    np.testing.assert_allclose(
        after, elmore.load(path, device="cpu", tokenizer="whitespace").sentence_vectors(TEXTS)
    )


def test_model_on_the_hub_is_looked_up_once(hub: Hub, files: Files, elmo: Embedder) -> None:
    hub.commit("user/elmo", files, "main")
    vectorizer = ElmoVectorizer("user/elmo", device="cpu")
    expected = elmo.sentence_vectors(TEXTS)
    np.testing.assert_array_equal(vectorizer.fit_transform(TEXTS), expected)
    hub.commit("user/elmo", {"config.json": b"{}"}, "main")
    hub.requests.clear()
    np.testing.assert_array_equal(clone(vectorizer).transform(TEXTS), expected)
    assert hub.requests == []
