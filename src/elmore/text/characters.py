"""Words to character ids, the input of the paper's biLM.

A word is encoded as its UTF-8 bytes between a begin-word (BOW) and an end-word (EOW) id, padded to
a fixed width. There is no input vocabulary, so no word is out of vocabulary (section 3.4).

The ids are those of the released ELMo weights: 0 pads sentences, a byte `b` has the id `b + 1`, and
five special ids follow the 256 bytes:

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

from elmore.errors import warn_user
from elmore.text.sentences import BOS_WORD, EOS_WORD, Sentence, TokenBatch, batch_sentences

BOS, EOS, BOW, EOW, PAD = range(257, 262)
NUM_CHARACTERS = 262
WIDTH = 50

SPECIAL_WORDS: Mapping[str, int] = {BOS_WORD: BOS, EOS_WORD: EOS}
"""Words that are encoded as a single id instead of their bytes."""


def encode_words(
    words: Sequence[str],
    width: int = WIDTH,
    special: Mapping[str, int] = SPECIAL_WORDS,
    *,
    warn: bool = True,
) -> Int[Tensor, "N C"]:
    """Return `width` character ids for each word, truncated or padded.

    As in the released code, truncation may split a multi-byte character, and lone surrogates, which
    UTF-8 cannot encode, are dropped. Warns if a word is truncated, unless `warn` is false.
    """
    encoded = [word.encode("utf-8", "ignore") for word in words]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(words))
    if len(words) and lengths.max() > width - 2:
        if warn:  # with the same text for all words: Python shows equal warnings only once
            warn_user(
                f"some tokens are longer than {width - 2} bytes, and the model reads only the "
                f"first {width - 2}. Unless they are URLs, check the tokenizer and the language.",
            )
        encoded = [word[: width - 2] for word in encoded]
        lengths = lengths.clip(max=width - 2)
    ids = np.full((len(words), width), PAD, dtype=np.int64)
    ids[:, 0] = BOW
    is_byte = np.arange(width - 2) < lengths[:, None]
    ids[:, 1:-1][is_byte] = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.int64) + 1
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
    """Encode tokenized sentences as one padded batch of character ids.

    Args:
        sentences: Lists of tokens.
        width: Character ids per token: `config.max_characters` of the model.
        special: Words that are encoded as a single id. To add one, as with AllenNLP's
            `tokens_to_add`, use an id that no UTF-8 byte has:
            `SPECIAL_WORDS | {"<mask>": 250}`.

    Raises:
        TypeError: If a sentence is not a sequence of strings.
    """
    return batch_sentences(sentences, partial(encode_words, width=width, special=special))
