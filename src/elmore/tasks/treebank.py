"""Tokens as the Penn Treebank has them, from text that is tokenized already or not.

Data sets of tasks come as one or the other, sometimes mixed, and people type what they like.
Words mean the same to a model only if all of it ends as the same tokens:

He doesn't sing.    He does n't sing .      text as it is written, and as treebanks have it
He does n't sing .  He does n't sing .      what both become
"""

import re

from elmore.text.tokenize import Tokenizer

_CLITIC = r"n't|'(?:s|m|d|re|ve|ll)"
_BEFORE_CLITIC = re.compile(rf"(?<=\w) (?=(?:{_CLITIC})(?!\S))", re.IGNORECASE)
_WITH_CLITIC = re.compile(rf"(\S*\w)({_CLITIC})", re.IGNORECASE)
_ESCAPES = {
    "-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}",
    "``": '"', "''": '"',
}  # fmt: skip


def unescape(token: str) -> str:
    """Return a token of a treebank as it is written: a bracket for -LRB-, / for its escape."""
    return _ESCAPES.get(token) or token.replace("\\/", "/").replace("\\*", "*")


def treebank_tokens(text: str, tokenize: Tokenizer) -> list[str]:
    """Split a text, tokenized already or not, into the tokens that a treebank has."""
    text = " ".join(map(unescape, text.split()))
    if "'" not in text:  # most text, and then there is nothing else to do
        return tokenize(text)
    # Put together first what Moses would otherwise split wrongly: 's to ' s.
    tokens = tokenize(_BEFORE_CLITIC.sub("", text))
    return [part for token in _join_moses(tokens) for part in _split(token)]


def _join_moses(tokens: list[str]) -> list[str]:
    """Put Moses' halves of a negation together: [does, n't] is [doesn, 't] there."""
    joined: list[str] = []
    for token in tokens:
        if token.lower() == "'t" and joined and joined[-1][-1:] in "nN":
            joined[-1] += token
        else:
            joined.append(token)
    return joined


def _split(token: str) -> tuple[str, ...]:
    found = _WITH_CLITIC.fullmatch(token)
    return found.groups() if found else (token,)
