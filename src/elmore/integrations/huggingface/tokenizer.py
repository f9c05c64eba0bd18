"""`ElmoTokenizer`: text to words, and words to ids, as transformers expects it.

B texts, W words, C characters.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from transformers import BatchEncoding, PreTrainedTokenizer

from elmore.checkpoint.directory import (
    CONFIG,
    VOCABULARY,
    read_bilm_config,
    read_config,
    read_tokenization,
    write_config,
)
from elmore.checkpoint.pretrained import read_vocabulary
from elmore.embedder import get_word_encoder
from elmore.errors import InputError
from elmore.text.characters import NUM_CHARACTERS
from elmore.text.script import warn_about_script
from elmore.text.sentences import check_sentence
from elmore.text.tokenize import Tokenizer, TokenizerName, choose_tokenization, get_tokenizer

_PAD = "<pad>"


class ElmoTokenizer(PreTrainedTokenizer):
    """Splits text into words as the model was trained, and words into ids.

    Returns `input_ids` of shape (B, W, C) with the characters of each word, or (B, W) for a
    word-input model, and `attention_mask`. There are no boundary tokens: the model adds them.

    Args:
        config_file: The config.json of a directory written by elmore.
        vocab_file: The vocabulary of a word-input model; not used for others.
        tokenizer: See `elmore.load`.
        language: See `elmore.load`.
        kwargs: Arguments of `PreTrainedTokenizer`.
    """

    vocab_files_names = {"config_file": CONFIG, "vocab_file": VOCABULARY}  # noqa: RUF012
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012

    def __init__(
        self,
        config_file: Path | str,
        vocab_file: Path | str | None = None,
        tokenizer: TokenizerName | None = None,
        language: str | None = None,
        **kwargs: Any,
    ) -> None:
        folder = Path(config_file).parent
        config = read_bilm_config(folder)
        self._config = read_config(folder)
        self._vocabulary = None
        if config.vocab_size is not None:
            self._vocabulary = read_vocabulary(
                Path(vocab_file or folder / VOCABULARY),
                self._config.get("vocabulary_hash"),
                config.vocab_size,
            )
        self._encode_words = get_word_encoder(config, self._vocabulary)
        self._shape = () if self._vocabulary else (config.max_characters,)
        of_model = read_tokenization(folder)
        self._tokenization = choose_tokenization(of_model, tokenizer, language)
        self._language = of_model.language if of_model else None
        kwargs["pad_token"] = _PAD
        super().__init__(tokenizer=tokenizer, language=language, **kwargs)

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> "ElmoTokenizer":
        """Load the tokenizer of a directory written by elmore, or of a model on the Hub."""
        try:
            return super().from_pretrained(*args, **kwargs)
        except ImportError as error:
            if isinstance(error.__context__, InputError):  # for which transformers 4 needs protobuf
                raise error.__context__ from None
            raise

    @property
    def vocab_size(self) -> int:
        """The number of distinct ids: of characters or, for a word-input model, of words."""
        return len(self._vocabulary) + 1 if self._vocabulary else NUM_CHARACTERS

    def get_vocab(self) -> dict[str, int]:
        """Return the id of the padding and, for a word-input model, of each word."""
        words = self._vocabulary or ()
        return {_PAD: 0, **{word: i for i, word in enumerate(words, 1)}}

    def tokenize(self, text: str, *_: Any, **__: Any) -> list[str]:
        """Split text into words."""
        return self._get_split()(text)

    def _get_split(self) -> Tokenizer:
        # Not an attribute: a Moses tokenizer cannot be pickled, which `datasets.map` requires.
        return get_tokenizer(self._tokenization.tokenizer, self._tokenization.language)

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """Return the ids of a word, a list of C ids or one id, or those of several words."""
        if isinstance(tokens, str):
            return 0 if tokens == _PAD else self._encode_words([tokens])[0].tolist()
        return self._encode_words(tokens).tolist()

    def encode(self, text: str | Sequence[str], *args: Any, **kwargs: Any) -> Any:
        """Return the `input_ids` of one text."""
        return self(text, *args, **kwargs)["input_ids"]

    def __call__(
        self,
        text: str | Sequence[str] | Sequence[Sequence[str]],
        text_pair: None = None,
        *,
        is_split_into_words: bool = False,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: Literal["left", "right"] | None = None,
        return_tensors: str | None = None,
        **_: Any,
    ) -> BatchEncoding:
        """Encode a text or a list of texts.

        Args:
            text: The text or texts.
            text_pair: Not supported.
            is_split_into_words: The texts are lists of words.
            padding: True or `longest`; `max_length`; False.
            truncation: Keep up to `max_length` words of a text.
            max_length: In words; by default `model_max_length`.
            pad_to_multiple_of: Make the padded length a multiple of this number.
            padding_side: Where to pad; by default the attribute `padding_side`.
            return_tensors: `pt` or `np`; by default, lists are returned.
        """
        if text_pair is not None:
            raise InputError("ELMo reads one text at a time; text_pair is not supported")
        single = isinstance(text, str) or (is_split_into_words and all(map(_is_str, text)))
        batch: Sequence[Any] = [text] if single else text
        if is_split_into_words:
            tokenized: Iterable[list[str]] = ([*check_sentence(x, i)] for i, x in enumerate(batch))
        else:
            split = self._get_split()
            tokenized = (split(_check_text(x, i)) for i, x in enumerate(batch))
        sentences = list(warn_about_script(tokenized, self._language))
        if truncation not in (None, False, "do_not_truncate"):
            limit = self.model_max_length if max_length is None else max_length
            sentences = [words[:limit] for words in sentences]
        ids = self._encode_words([*chain.from_iterable(sentences)])
        rows = ids.split([len(words) for words in sentences]) if sentences else ()
        if return_tensors is None and padding in (False, "do_not_pad"):
            lists = [row.tolist() for row in rows]
            data: dict[str, Any] = {
                "input_ids": lists,
                "attention_mask": [[1] * len(row) for row in lists],
            }
        else:
            data = self._stack(rows, padding, max_length, pad_to_multiple_of, padding_side)
            data = {key: _convert(value, return_tensors) for key, value in data.items()}
        if single and return_tensors is None:
            data = {key: value[0] for key, value in data.items()}
        return BatchEncoding(data)

    def pad(
        self,
        encoded_inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        padding: bool | str = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: Literal["left", "right"] | None = None,
        return_tensors: str | None = None,
        **_: Any,
    ) -> BatchEncoding:
        """Pad encoded texts to one length, as data collators need it.

        Args:
            encoded_inputs: What the tokenizer returned for several texts, or a list of what it
                returned for each; further entries, such as labels, are kept.
            padding: See `__call__`.
            max_length: See `__call__`.
            pad_to_multiple_of: See `__call__`.
            padding_side: See `__call__`.
            return_tensors: See `__call__`.
        """
        if not isinstance(encoded_inputs, Mapping):
            names = encoded_inputs[0] if encoded_inputs else ("input_ids",)
            encoded_inputs = {name: [text[name] for text in encoded_inputs] for name in names}
        shape = (-1, *self._shape)
        rows = [torch.as_tensor(row).long().reshape(shape) for row in encoded_inputs["input_ids"]]
        padded = self._stack(rows, padding, max_length, pad_to_multiple_of, padding_side)
        others = {k: torch.as_tensor(v) for k, v in encoded_inputs.items() if k not in padded}
        data = {key: _convert(value, return_tensors) for key, value in (padded | others).items()}
        return BatchEncoding(data)

    def _stack(
        self,
        rows: Sequence[Int[Tensor, "W ..."]],
        padding: bool | str,
        max_length: int | None,
        multiple: int | None,
        side: Literal["left", "right"] | None,
    ) -> dict[str, Tensor]:
        """Return the texts as one padded batch."""
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        length = int(lengths.max()) if rows else 0
        if padding in (False, "do_not_pad") and (lengths != length).any():
            raise InputError("the texts have different lengths; pass padding=True")
        if padding == "max_length":
            length = max(length, max_length or 0)
        length = math.ceil(length / (multiple or 1)) * (multiple or 1)
        start = length - lengths if (side or self.padding_side) == "left" else 0 * lengths
        position = torch.arange(length) - start[:, None]
        ids = torch.zeros(len(rows), length, *self._shape, dtype=torch.int64)
        if rows:
            ids[(position >= 0) & (position < lengths[:, None])] = torch.cat([*rows])
        return {"input_ids": ids, "attention_mask": is_word(ids).long()}

    def save_vocabulary(
        self, save_directory: Path | str, filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Write config.json, and vocab.txt of a word-input model, unless they are there.

        Raises:
            InputError: If the directory has the config.json of another model.
        """
        if filename_prefix:
            raise InputError("the files of a model have fixed names; filename_prefix must be None")
        folder = Path(save_directory)
        config, vocabulary = folder / CONFIG, folder / VOCABULARY
        if not config.exists():
            write_config(self._config, folder)
        elif any(read_config(folder).get(key) != self._config.get(key) for key in ("bilm", "text")):
            raise InputError(f"{config} belongs to another model")
        if self._vocabulary is None:
            return (str(config),)
        self._vocabulary.write(vocabulary)
        return str(config), str(vocabulary)


def is_word(ids: Int[Tensor, "B W *C"]) -> Bool[Tensor, "B W"]:
    """Return which positions are not padding."""
    return ids != 0 if ids.ndim == 2 else ids.any(dim=-1)


def _is_str(value: object) -> bool:
    return isinstance(value, str)


def _check_text(text: object, index: int) -> str:
    if not isinstance(text, str):
        raise TypeError(
            f"text {index} is {type(text).__name__}; expected a string. For lists of words, pass "
            "is_split_into_words=True."
        )
    return text


def _convert(tensor: Tensor, return_tensors: str | None) -> Any:
    match return_tensors:
        case None:
            return tensor.tolist()
        case "pt":
            return tensor
        case "np":
            return tensor.numpy()
    raise InputError(f"return_tensors must be pt, np or None, got {return_tensors!r}")
