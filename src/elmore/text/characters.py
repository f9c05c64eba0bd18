"""Words as characters: the only input that the paper's biLM ever sees.

A word is its UTF-8 bytes between a begin-word and an end-word marker, padded to a fixed
width. There is no word vocabulary, so no word is out of vocabulary (section 3.4).

The ids are those of the released ELMo weights: 0 is "no token here", a byte `b` is `b + 1`,
and five markers follow the 256 bytes:

    a    ->  BOW  98  EOW  PAD PAD ...
    <S>  ->  BOW BOS  EOW  PAD PAD ...

N words, C characters.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from elmore.text.sentences import BOS_WORD, EOS_WORD, Sentence, TokenBatch, batch_sentences

BOS, EOS, BOW, EOW, PAD = range(257, 262)
NUM_CHARACTERS = 262
WIDTH = 50

SPECIAL_WORDS: Mapping[str, int] = {BOS_WORD: BOS, EOS_WORD: EOS}
"""Words that are one id instead of their spelling."""


def encode_words(
    words: Sequence[str], width: int = WIDTH, special: Mapping[str, int] = SPECIAL_WORDS
) -> Int[Tensor, "N C"]:
    """Return the `width` character ids of each word; bytes that do not fit are dropped.

    The cut may fall inside a character, and lone surrogates, which UTF-8 cannot express, vanish:
    both as in the released code.
    """
    spellings = [word.encode("utf-8", "ignore")[: width - 2] for word in words]
    lengths = np.fromiter(map(len, spellings), dtype=np.int64, count=len(words))
    ids = np.full((len(words), width), PAD, dtype=np.int64)
    ids[:, 0] = BOW
    inside = np.arange(width - 2) < lengths[:, None]
    ids[:, 1:-1][inside] = np.frombuffer(b"".join(spellings), dtype=np.uint8).astype(np.int64) + 1
    ids[np.arange(len(words)), lengths + 1] = EOW
    for i, word in enumerate(words):
        if word in special:
            ids[i] = PAD
            ids[i, :3] = BOW, special[word], EOW
    return torch.from_numpy(ids)


def encode_sentences(
    sentences: Iterable[Sentence],
    width: int = WIDTH,
    special: Mapping[str, int] = SPECIAL_WORDS,
) -> TokenBatch:
    """Encode tokenized sentences as one padded batch of characters.

    Args:
        sentences: Lists of tokens.
        width: Ids per token, the model's `config.max_characters`.
        special: Words with an id of their own; pass `SPECIAL_WORDS | {"<mask>": 250}` to give a
            word a byte that UTF-8 never uses (AllenNLP's `tokens_to_add`).
    """
    return batch_sentences(sentences, partial(encode_words, width=width, special=special))
