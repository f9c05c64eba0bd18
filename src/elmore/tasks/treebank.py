"""Penn Treebank tokens, from raw or from tokenized text.

Data sets contain one or the other, sometimes both, and users type either. A model needs the same
tokens for the same words:

He doesn't sing.       raw text        He does n't sing .
He does n't sing .     treebank text   He does n't sing .
He doesn 't sing .     Moses tokens    He does n't sing .
"""

import re

from elmore.text.tokenize import Tokenizer

_CLITIC = r"n't|'(?:s|m|d|re|ve|ll)"
_BEFORE_CLITIC = re.compile(rf"(?<=\w) (?=(?:{_CLITIC})(?!\S))|(?<=n) (?='t(?!\S))", re.IGNORECASE)
_WITH_CLITIC = re.compile(rf"(\S*\w)({_CLITIC})", re.IGNORECASE)
_ESCAPES = {
    "-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}",
    "``": '"', "''": '"',
}  # fmt: skip


def unescape(token: str) -> str:
    """Undo the escapes of treebanks, such as -LRB- for a parenthesis."""
    return _ESCAPES.get(token) or token.replace("\\/", "/").replace("\\*", "*")


def treebank_tokens(text: str, tokenize: Tokenizer) -> list[str]:
    """Split raw or tokenized text into Penn Treebank tokens, and undo escapes.

    With `str.split`, the text is tokenized already: clitics are not split.
    """
    text = " ".join(map(unescape, text.split()))
    if tokenize is str.split or "'" not in text:  # no clitics to split
        return tokenize(text)
    # Rejoin tokenized clitics first: Moses would split 's into ' and s.
    tokens = tokenize(_BEFORE_CLITIC.sub("", text))
    return [part for token in _join_negations(tokens) for part in _split_clitic(token)]


def _join_negations(tokens: list[str]) -> list[str]:
    """Rejoin negations, which Moses splits differently: doesn 't, not does n't."""
    joined: list[str] = []
    for token in tokens:
        if token.lower() == "'t" and joined and joined[-1][-1:] in "nN":
            joined[-1] += token
        else:
            joined.append(token)
    return joined


def _split_clitic(token: str) -> tuple[str, ...]:
    match = _WITH_CLITIC.fullmatch(token)
    return match.groups() if match else (token,)
