"""spaCy. Oracles: `Embedder.embed` on the same tokens, numpy, and the tasks themselves."""

import json
import pickle
import shutil
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
import spacy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example

import elmore
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.integrations.spacy import set_hooks
from elmore.tasks import load_task, read_task_config, train_task
from elmore.tasks.ner.data import NerExample
from elmore.tasks.trained import TrainedTask
from tests.tasks.conftest import SENTENCES

TEXT = "He sat by the  bank.\nThe bank raised its rates."
TEXTS = [TEXT, "", " \n", "Banks fail", "x" * 100, "A" * 3 + " don't \t " + "bank " * 40]
SMALL = ["words.dim=16", "words.min_count=1", "words.char_filters=0", "training.batch_size=2"]
TAGGER = ["tagger.hidden=16", "training.lr=0.03", "training.epochs=12", "tagger.dropout=0"]
TAGGER += ["elmo.dropout=0", "words.dropout=0"]
NETWORK = ["network.hidden=8", "training.epochs=2"]
keeps_hooks_out = pytest.mark.filterwarnings("ignore:.*W109")  # spaCy serializes no hooks


def new_pipeline(component: str, *, sentences: bool = True, **config: object) -> Language:
    nlp = spacy.blank("en")
    if sentences:
        nlp.add_pipe("sentencizer")
    nlp.add_pipe(component, config={"device": "cpu", **config})
    return nlp


def words_of(tokens: Doc | Span) -> list[str]:
    return [token.text for token in tokens if not token.is_space]


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y) / float(np.sqrt(x @ x) * np.sqrt(y @ y))


@pytest.fixture
def nlp(folder: Path) -> Language:
    return new_pipeline("elmore", model=str(folder))


@pytest.fixture
def elmo(folder: Path) -> Embedder:
    return elmore.load(folder, device="cpu")


def test_components_are_entry_points() -> None:
    names = {point.name: point.load() for point in entry_points(group="spacy_factories")}
    for name in ("elmore", "elmore_ner", "elmore_classifier"):
        assert Language.get_factory_meta(name).factory == name
        assert names[name].__module__ == "elmore.integrations.spacy"


@pytest.mark.parametrize("sentences", [True, False])
@pytest.mark.parametrize("layers", ["average", "top", 0])
def test_vectors_equal_those_of_embed(
    folder: Path, elmo: Embedder, layers: str | int, sentences: bool
) -> None:
    nlp = new_pipeline("elmore", model=str(folder), layers=layers, sentences=sentences)
    docs = list(nlp.pipe(TEXTS))
    spans = [span for doc in docs for span in (doc.sents if sentences else [doc])]
    tokens = [words for span in spans if (words := words_of(span))]
    expected = iter(np.concatenate(elmo.embed(tokens, layers=layers)))
    for doc in docs:
        assert doc.tensor.shape == (len(doc), elmo.dim)
        assert doc.tensor.dtype == np.float32
        for token in doc:
            assert token.has_vector != token.is_space
            row = np.zeros(elmo.dim) if token.is_space else next(expected)
            np.testing.assert_array_equal(token.vector, row)
    assert next(expected, None) is None


@settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=4),
    st.integers(1, 5),
)
@pytest.mark.filterwarnings("ignore:most letters of the text are not Latin")
def test_any_text_has_the_vectors_of_its_tokens(
    nlp: Language, elmo: Embedder, texts: list[str], batch_size: int
) -> None:
    docs = list(nlp.pipe(texts, batch_size=batch_size))
    assert [doc.text for doc in docs] == texts
    for doc in docs:
        vectors = elmo.embed([words_of(sentence) for sentence in doc.sents], layers="average")
        expected = np.concatenate([np.zeros((0, elmo.dim)), *vectors])
        words = [token.i for token in doc if not token.is_space]
        np.testing.assert_allclose(doc.tensor[words], expected, rtol=0, atol=1e-5)
        assert not np.delete(doc.tensor, words, axis=0).any()
        assert doc.has_vector == bool(words)


def test_spans_and_docs_have_the_mean_of_their_words(nlp: Language) -> None:
    doc = nlp(TEXT)
    for tokens in (doc, doc[2:7], doc[5:6]):
        rows = [token.vector for token in tokens if not token.is_space]
        np.testing.assert_allclose(tokens.vector, np.mean(rows, axis=0), rtol=0, atol=1e-6)
        assert tokens.vector_norm == pytest.approx(np.sqrt((tokens.vector**2).sum()))
        assert tokens.has_vector
    space = next(token for token in doc if token.is_space)
    assert not space.has_vector
    assert space.vector_norm == 0
    assert not doc[space.i : space.i + 1].has_vector
    empty = nlp("")
    assert empty.vector.shape == doc.vector.shape
    assert (empty.has_vector, empty.vector_norm) == (False, 0)


def test_similarity_is_the_cosine_in_context(nlp: Language) -> None:
    doc = nlp(TEXT)
    first, second = (token for token in doc if token.text == "bank")
    assert first.similarity(second) < 0.9999  # spaCy's own is 1 for equally spelled words
    items = [first, second, doc[0:3], doc[first.i : first.i + 1], doc]
    for x in items:
        for y in items:
            assert x.similarity(y) == pytest.approx(cosine(x.vector, y.vector), abs=1e-5)
    for item in items:
        assert item.similarity(nlp(" ")) == 0
        with pytest.raises(InputError, match="32 dimensions with one of 0; expected two tokens"):
            item.similarity(nlp.make_doc("bank"))


def test_static_vectors_of_the_pipeline_are_not_used(nlp: Language) -> None:
    nlp.vocab.set_vector("bank", np.ones(32, "f"))
    doc = nlp("the bank")
    np.testing.assert_array_equal(doc[1].vector, doc.tensor[1])
    np.testing.assert_array_equal(doc[1:].vector, doc.tensor[1])
    assert doc[0].has_vector
    assert doc.similarity(nlp("the bank")) == pytest.approx(1)


def test_all_layers_on_demand(folder: Path, nlp: Language, elmo: Embedder) -> None:
    assert nlp(TEXT)._.elmo_layers is None
    deep = new_pipeline("elmore", model=str(folder), all_layers=True, sentences=False)
    doc = deep("He sat by the bank .")
    [expected] = elmo.embed([words_of(doc)])
    np.testing.assert_array_equal(doc._.elmo_layers, expected)
    np.testing.assert_array_equal(doc.tensor, expected.mean(axis=0))
    [again] = DocBin(docs=[doc], store_user_data=True).get_docs(deep.vocab)
    np.testing.assert_array_equal(again._.elmo_layers, expected)


def test_saved_pipelines_refer_to_the_model(
    folder: Path, nlp: Language, embedder: Embedder, tmp_path: Path
) -> None:
    expected = nlp(TEXT).tensor
    saved = tmp_path / "pipeline"
    nlp.to_disk(saved)
    assert [file.name for file in (saved / "elmore").iterdir()] == ["model.json"]
    np.testing.assert_array_equal(spacy.load(saved)(TEXT).tensor, expected)
    from_bytes = new_pipeline("elmore", model=str(folder)).from_bytes(nlp.to_bytes())
    np.testing.assert_array_equal(from_bytes(TEXT).tensor, expected)
    component = nlp.get_pipe("elmore")
    pickled = pickle.dumps(component)
    assert len(pickled) < 1000
    np.testing.assert_array_equal(
        pickle.loads(pickled)(nlp.make_doc("He sat")).tensor.shape, (2, 32)
    )
    embedder.save(tmp_path / "other")
    moved = {"components.elmore.model": str(tmp_path / "other")}
    with pytest.raises(InputError, match="elmore was saved with another model: the hash"):
        spacy.load(saved, config=moved)
    shutil.copytree(folder, tmp_path / "moved")
    moved = {"components.elmore.model": str(tmp_path / "moved")}
    np.testing.assert_array_equal(spacy.load(saved, config=moved)(TEXT).tensor, expected)


@keeps_hooks_out
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_processes_return_the_same_vectors(nlp: Language) -> None:
    texts = TEXTS * 3
    for doc, expected in zip(
        nlp.pipe(texts, n_process=2, batch_size=4), nlp.pipe(texts), strict=True
    ):
        np.testing.assert_allclose(doc.tensor, expected.tensor, rtol=0, atol=1e-5)
        assert set_hooks(doc).similarity(expected) == pytest.approx(float(doc.has_vector))


@keeps_hooks_out
def test_serialized_documents_keep_their_vectors(nlp: Language) -> None:
    doc = nlp(TEXT)
    first, second = (token.i for token in doc if token.text == "bank")
    expected = doc[first].similarity(doc[second])
    from_bytes = set_hooks(Doc(nlp.vocab).from_bytes(doc.to_bytes()))
    for copied in (from_bytes, doc.copy(), pickle.loads(pickle.dumps(doc)), doc[:].as_doc()):
        np.testing.assert_array_equal(copied.tensor, doc.tensor)
        assert copied[first].similarity(copied[second]) == expected


def test_documents_without_vectors_get_no_hooks(nlp: Language) -> None:
    [doc] = DocBin(docs=[nlp(TEXT)]).get_docs(nlp.vocab)
    with pytest.raises(InputError, match="no vectors in doc"):
        set_hooks(doc)


def test_merged_tokens_have_a_vector(nlp: Language) -> None:
    doc = nlp("He lived in New York once")
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[3:5])
    assert [token.has_vector for token in doc] == [True] * 5
    merged = nlp(doc)
    assert merged.tensor.shape == (5, 32)


def test_components_that_share_the_tensor_are_rejected(folder: Path) -> None:
    config = {"model": str(folder), "device": "cpu"}
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec")
    tagger = {"@architectures": "spacy.Tagger.v2", "tok2vec": {}}
    tagger["tok2vec"] = {"@architectures": "spacy.Tok2VecListener.v1", "width": 96}
    nlp.add_pipe("tagger", config={"model": tagger})
    doc = Doc(nlp.vocab, words=["a", "b"], tags=["X", "Y"])
    nlp.initialize(lambda: [Example(doc, doc)])
    nlp.add_pipe("elmore", config=config)
    assert nlp("a b").tensor.shape == (2, 32)
    nlp.remove_pipe("elmore")
    nlp.add_pipe("elmore", config=config, before="tagger")
    with pytest.raises(InputError, match="which tagger read from tok2vec; add elmore"):
        nlp("a b")
    nlp.remove_pipe("elmore")
    nlp.add_pipe("elmore", config=config, first=True)
    with pytest.raises(InputError, match=r"tok2vec overwrites doc\.tensor; add elmore"):
        nlp("a b")


def test_invalid_settings_are_rejected(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="layers must be top, average or a number"):
        new_pipeline("elmore", model=str(folder), layers=9)
    with pytest.raises(InputError, match="no such model"):
        new_pipeline("elmore", model=str(tmp_path / "none"))
    with pytest.raises(InputError, match="holds no trained task"):
        new_pipeline("elmore_ner", model=str(folder))


def train(task: str, folder: Path, path: Path, data: str, *changes: str) -> Path:
    path.write_text(data)
    run = path.with_suffix("")
    config = read_task_config(task, changes=[*SMALL, f"elmo.model={folder}", *changes])
    train_task(task, run, train=path, dev=path, config=config, device="cpu", progress=False)
    return run


@pytest.fixture(scope="module")
def runs(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Trained tasks."""
    path = tmp_path_factory.mktemp("runs")
    topics = "sport\tThey won, again.\nvote\tA vote in the house.\nsport\tA draw.\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmore.tasks.train.plot_task", lambda *_: None)
        return {
            "ner": train("ner", folder, path / "ner.conll", SENTENCES, *TAGGER),
            "classify": train("classify", folder, path / "one.tsv", topics, *NETWORK),
            "multi": train(
                "classify", folder, path / "many.tsv", topics, *NETWORK, "data.multi_label=true"
            ),
            "sentiment": train(
                "sentiment",
                folder,
                path / "tone.tsv",
                "good\tIt works.\nbad\tIt fails.\n",
                *NETWORK,
            ),
        }


@pytest.fixture
def ner(runs: dict[str, Path]) -> Language:
    return new_pipeline("elmore_ner", model=str(runs["ner"]))


def expected_entities(task: TrainedTask, doc: Doc) -> list[tuple[str, str]]:
    """Return the words and the type of each entity."""
    sentences = [words for span in doc.sents if (words := words_of(span))]
    predictions = task.predict([NerExample(words, []) for words in sentences])
    return [
        (" ".join(words[start:end]), label)
        for words, spans in zip(sentences, predictions, strict=True)
        for label, start, end in spans
    ]


def test_entities_are_those_of_the_task(ner: Language, runs: dict[str, Path]) -> None:
    task = load_task(runs["ner"], device="cpu")
    texts = ["Ada Lovelace lived in  London.\nParis is far from New \n York. ", "", " ", "Ada"]
    docs = list(ner.pipe(texts * 2))
    for doc in docs:
        entities = [(" ".join(words_of(entity)), entity.label_) for entity in doc.ents]
        assert entities == expected_entities(task, doc)
        for entity in doc.ents:
            assert doc.text[entity.start_char : entity.end_char] == entity.text
            assert 0 < entity._.elmo_probability <= 1
        assert doc.has_annotation("ENT_IOB")
    entities = [(entity.text, entity.label_) for entity in docs[0].ents]
    assert {("Ada Lovelace", "PER"), ("New \n York", "LOC")} <= set(entities)
    assert ner.pipe_labels["elmore_ner"] == ["LOC", "PER"]


def test_entities_of_earlier_components_stay(ner: Language) -> None:
    ruler = ner.add_pipe("entity_ruler", before="elmore_ner")
    ruler.add_patterns([{"label": "NAME", "pattern": "Lovelace lived"}])
    doc = ner("Ada Lovelace lived in London.")
    assert [(entity.text, entity.label_) for entity in doc.ents] == [
        ("Lovelace lived", "NAME"),
        ("London", "LOC"),
    ]


def test_pipeline_evaluates_tasks(ner: Language) -> None:
    text = "Ada Lovelace lived in London."
    gold = {"entities": [(0, 12, "PER"), (13, 18, "LOC")]}
    scores = ner.evaluate([Example.from_dict(ner.make_doc(text), gold)])
    assert scores["ents_p"] == scores["ents_r"] == 0.5


@pytest.mark.parametrize("name", ["classify", "multi", "sentiment"])
def test_categories_have_the_probabilities_of_the_task(name: str, runs: dict[str, Path]) -> None:
    nlp = new_pipeline("elmore_classifier", model=str(runs[name]), sentences=False)
    task = load_task(runs[name], device="cpu")
    texts = ["They won, again.", "A vote.\nIt doesn't fail!"]
    docs = list(nlp.pipe([*texts, "", " \n "]))
    for doc, expected in zip(docs[:2], task(texts), strict=True):
        assert doc.cats == pytest.approx(expected["probabilities"], abs=1e-5)
        assert [*doc.cats] == nlp.pipe_labels["elmore_classifier"]
        assert name == "multi" or sum(doc.cats.values()) == pytest.approx(1)
    assert [doc.cats for doc in docs[2:]] == [{}, {}]
    label = max(docs[0].cats, key=docs[0].cats.get)
    gold = {"cats": {x: float(x == label) for x in docs[0].cats}}
    assert nlp.evaluate([Example.from_dict(nlp.make_doc(texts[0]), gold)])["cats_micro_f"] == 1


def test_saved_tasks_refer_to_the_run(ner: Language, runs: dict[str, Path], tmp_path: Path) -> None:
    ner.to_disk(tmp_path / "pipeline")
    doc = spacy.load(tmp_path / "pipeline")("Ada lived in London.")
    assert [entity.text for entity in doc.ents] == [e.text for e in ner(doc.text).ents]
    saved = tmp_path / "pipeline" / "elmore_ner" / "model.json"
    assert [*json.loads(saved.read_text())] == ["weights_hash"]
    saved.write_text('{"weights_hash": "other"}')
    with pytest.raises(InputError, match="elmore_ner was saved with another model"):
        spacy.load(tmp_path / "pipeline")
    with pytest.raises(InputError, match="is a task of ner; expected classify or sentiment"):
        new_pipeline("elmore_classifier", model=str(runs["ner"]))
