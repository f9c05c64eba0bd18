"""Exact match and F1 of answers, as in the official evaluation script of SQuAD 1.1."""

import re
import string
from collections import Counter
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize(answer: str) -> str:
    """Return an answer in lower case, without punctuation, articles and extra whitespace.

    Punctuation is removed before articles: `the U.S.` -> `us`, `A.` -> empty.
    """
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(predicted: str, gold: str) -> float:
    """Return 1 if two answers are equal after normalization, else 0."""
    return float(normalize(predicted) == normalize(gold))


def word_f1(predicted: str, gold: str) -> float:
    """Return the F1 of the bags of words of two normalized answers."""
    predicted_words, gold_words = normalize(predicted).split(), normalize(gold).split()
    common = (Counter(predicted_words) & Counter(gold_words)).total()
    return 2 * common / (len(predicted_words) + len(gold_words)) if common else 0.0


def squad_scores(predicted: Sequence[str], gold: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return F1 and exact match, averaged over questions.

    A question with several gold answers counts with the one that scores best.
    """
    pairs = list(zip(predicted, gold, strict=True))
    metrics = {"f1": word_f1, "em": exact_match}
    return {
        name: sum(max(metric(text, answer) for answer in answers) for text, answers in pairs)
        / len(pairs)
        for name, metric in metrics.items()
    }
