"""The package en-tasks. Oracle: sentences labeled by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest

import elmore
from elmore.embedder import Embedder
from elmore.tasks.trained import TrainedTask

pytestmark = pytest.mark.models

FOLDER = Path(__file__).parent
SIX = ("coref", "entailment", "ner", "qa", "sentiment", "srl")


@pytest.fixture(scope="module")
def load() -> Callable[[str], TrainedTask]:
    """Load a task of this folder; all of them share one biLM."""
    bilm = elmore.load("en", device="cpu")
    return lambda name: elmore.tasks.load(FOLDER / name, device="cpu", bilm=bilm)


def test_each_task_of_the_paper_has_a_baseline() -> None:
    names = {path.parent.name for path in FOLDER.glob("*/task.json")}
    assert names == {*SIX, *(f"{name}-baseline" for name in SIX)}


@pytest.mark.parametrize("name", SIX)
def test_task_is_pinned_to_the_included_model(name: str) -> None:
    other = Embedder(elmore.BiLM(elmore.BiLMConfig.tiny()), device="cpu")
    with pytest.raises(elmore.InputError, match="was trained with another biLM"):
        elmore.tasks.load(FOLDER / name, device="cpu", bilm=other)


def test_entities(load) -> None:
    [result] = load("ner")(["Ada Lovelace lived in London."])
    entities = [(entity["label"], entity["text"]) for entity in result["entities"]]
    assert entities == [("PER", "Ada Lovelace"), ("LOC", "London")]


def test_semantic_roles(load) -> None:
    [result] = load("srl")(["She [gave] him a book in the library yesterday."])
    assert {role["label"]: role["text"] for role in result["roles"]} == {
        "ARG0": "She",
        "V": "gave",
        "ARG1": "a book",
        "ARG2": "him",
        "ARGM-LOC": "in the library",
        "ARGM-TMP": "yesterday",
    }


def test_coreference(load) -> None:
    text = "Marie Curie was born in Warsaw. She moved to Paris, where the physicist met her friend."
    [result] = load("coref")([text])
    clusters = [[mention["text"] for mention in cluster] for cluster in result["clusters"]]
    assert clusters == [["Marie Curie", "She", "the physicist", "her"]]


def test_answers(load) -> None:
    passage = "Ada Lovelace was born in London in 1815. Charles Babbage designed the machine."
    answers = {"Where was Ada born?": "London", "Who designed the machine?": "Charles Babbage"}
    results = load("qa")([(question, passage) for question in answers])
    assert [result["answer"] for result in results] == list(answers.values())


def test_entailment(load) -> None:
    premise = "A man is playing a guitar on stage."
    labels = {"A man is making music.": "entailment", "The man is asleep.": "contradiction"}
    results = load("entailment")([(premise, hypothesis) for hypothesis in labels])
    assert [result["label"] for result in results] == list(labels.values())


def test_sentiment(load) -> None:
    labels = {
        "A gripping, beautifully acted film.": "very positive",
        "The plot is predictable and the jokes fall flat.": "very negative",
    }
    results = load("sentiment")(list(labels))
    assert [result["label"] for result in results] == list(labels.values())
