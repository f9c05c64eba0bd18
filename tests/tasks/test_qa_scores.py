"""Oracles: cases worked out by hand after the official script; torchmetrics."""

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
        ("Theatre of an-other", "theatre of another"),  # no article within a word
        ("\u00a35 \u2013 10", "\u00a35 \u2013 10"),  # only ASCII punctuation goes
    ],
)
def test_answers_are_normalized(answer: str, plain: str) -> None:
    assert normalize(answer) == plain


@pytest.mark.parametrize(
    ("found", "right", "em", "f1"),
    [
        ("The Normans.", "normans", 1, 1),
        ("in 10th century", "10th century", 0, 2 * (2 / 3) * 1 / (2 / 3 + 1)),
        ("to be or not to be", "to be", 0, 2 * 2 / (6 + 2)),
        ("be be be", "be be", 0, 2 * 2 / 5),  # a word counts as often as both have it
        ("cat", "dog", 0, 0),
        ("the", "a", 1, 0),  # both are nothing: the official script has it so
        ("", "dog", 0, 0),
    ],
)
def test_pairs_known_by_hand(found: str, right: str, em: float, f1: float) -> None:
    assert exact_match(found, right) == em
    assert word_f1(found, right) == pytest.approx(f1)


def test_the_best_of_the_right_answers_counts() -> None:
    found = ["the big dog", "cat"]
    right = [["a dog", "big dog", "horse"], ["big cat", "cow"]]
    assert squad_scores(found, right) == pytest.approx({"em": 0.5, "f1": (1 + 2 / 3) / 2})


@pytest.mark.filterwarnings("ignore")
def test_scores_of_random_answers_are_those_of_torchmetrics() -> None:
    draw = random.Random(0)
    words = ["the", "a", "An", "U.S.", "cat", "Cat,", "dog", "-", "caf\u00e9", "\u2013", "10", "''"]

    def answer() -> str:
        # With a word that stays: of nothing, torchmetrics has the F1 of SQuAD 2.
        return " ".join([*draw.choices(words, k=draw.randint(0, 5)), draw.choice(["cat", "dog"])])

    for _ in range(200):
        right = [[answer() for _ in range(draw.randint(1, 4))] for _ in range(10)]
        found = [draw.choice(answers) if draw.random() < 0.3 else answer() for answers in right]
        theirs = squad(
            [{"prediction_text": text, "id": str(i)} for i, text in enumerate(found)],
            [
                {"answers": {"answer_start": [0] * len(texts), "text": texts}, "id": str(i)}
                for i, texts in enumerate(right)
            ],
        )
        ours = squad_scores(found, right)
        assert 100 * ours["em"] == pytest.approx(float(theirs["exact_match"]), abs=1e-3)
        assert 100 * ours["f1"] == pytest.approx(float(theirs["f1"]), abs=1e-3)
