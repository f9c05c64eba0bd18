"""SQuAD scores. Oracles: the rules of the official script, applied by hand; torchmetrics."""

import random

import pytest
from torchmetrics.functional.text import squad

from elmore.tasks.qa.scores import exact_match, normalize, squad_scores, word_f1


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        ("The  Normans", "normans"),
        ("the U.S.", "us"),
        ("a well-known\tan\u00a0apple", "wellknown apple"),
        ("A.", ""),
        ("Theatre of an-other", "theatre of another"),  # articles within a word are kept
        ("\u00a35 \u2013 10", "\u00a35 \u2013 10"),  # only ASCII punctuation is removed
    ],
)
def test_articles_punctuation_and_case_are_normalized(answer: str, plain: str) -> None:
    assert normalize(answer) == plain


@pytest.mark.parametrize(
    ("predicted", "gold", "em", "f1"),
    [
        ("The Normans.", "normans", 1, 1),
        ("in 10th century", "10th century", 0, 2 * (2 / 3) * 1 / (2 / 3 + 1)),
        ("to be or not to be", "to be", 0, 2 * 2 / (6 + 2)),
        (
            "be be be",
            "be be",
            0,
            2 * 2 / 5,
        ),  # repeated words match as often as in the shorter answer
        ("cat", "dog", 0, 0),
        ("the", "a", 1, 0),  # both normalize to nothing; the official script gives the same
        ("", "dog", 0, 0),
    ],
)
def test_exact_match_and_f1(predicted: str, gold: str, em: float, f1: float) -> None:
    assert exact_match(predicted, gold) == em
    assert word_f1(predicted, gold) == pytest.approx(f1)


def test_prediction_is_scored_against_the_best_gold_answer() -> None:
    predicted = ["the big dog", "cat"]
    gold = [["a dog", "big dog", "horse"], ["big cat", "cow"]]
    assert squad_scores(predicted, gold) == pytest.approx({"em": 0.5, "f1": (1 + 2 / 3) / 2})


@pytest.mark.filterwarnings("ignore")
def test_scores_of_random_answers_equal_torchmetrics() -> None:
    rng = random.Random(0)
    words = ["the", "a", "An", "U.S.", "cat", "Cat,", "dog", "-", "caf\u00e9", "\u2013", "10", "''"]

    def answer() -> str:
        # For answers that normalize to nothing, torchmetrics follows SQuAD 2.0, so none do.
        return " ".join([*rng.choices(words, k=rng.randint(0, 5)), rng.choice(["cat", "dog"])])

    for _ in range(200):
        gold = [[answer() for _ in range(rng.randint(1, 4))] for _ in range(10)]
        predicted = [rng.choice(answers) if rng.random() < 0.3 else answer() for answers in gold]
        expected = squad(
            [{"prediction_text": text, "id": str(i)} for i, text in enumerate(predicted)],
            [
                {"answers": {"answer_start": [0] * len(texts), "text": texts}, "id": str(i)}
                for i, texts in enumerate(gold)
            ],
        )
        actual = squad_scores(predicted, gold)
        assert 100 * actual["em"] == pytest.approx(float(expected["exact_match"]), abs=1e-3)
        assert 100 * actual["f1"] == pytest.approx(float(expected["f1"]), abs=1e-3)
