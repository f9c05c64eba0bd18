"""Exact match and F1 of answers, as the official script of SQuAD 1.1 counts them."""

import re
import string
from collections import Counter
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize(answer: str) -> str:
    """Return an answer in lower case without punctuation, articles and superfluous space.

    Punctuation first, then articles: `the U.S.` -> `us`, `A.` -> nothing.
    """
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(found: str, right: str) -> float:
    """Return 1 if two answers are the same, else 0."""
    return float(normalize(found) == normalize(right))


def word_f1(found: str, right: str) -> float:
    """Return the F1 of the words that two answers have in common, however often each has them."""
    ours, theirs = normalize(found).split(), normalize(right).split()
    common = (Counter(ours) & Counter(theirs)).total()
    return 2 * common / (len(ours) + len(theirs)) if common else 0.0


def squad_scores(found: Sequence[str], right: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return both scores, the mean over questions of the best over their right answers."""
    pairs = list(zip(found, right, strict=True))
    return {
        "f1": sum(max(word_f1(ours, one) for one in all_) for ours, all_ in pairs) / len(pairs),
        "em": sum(max(exact_match(ours, one) for one in all_) for ours, all_ in pairs) / len(pairs),
    }
