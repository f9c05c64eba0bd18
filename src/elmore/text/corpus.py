"""Text files to one encoded corpus on disk, made once and mapped into memory ever after.

A token is the number of its word among all words of the text, the most frequent ones first. So
the vocabulary of a language model is the first V of them, and the words beyond it keep their
spelling, which the biLM reads.

    tokens.u32     <S> w w w </S> <S> w w </S> ...   every sentence between its boundaries
    starts.i64     where each sentence starts, and where the last one ends
    words.txt      <S> </S> <UNK>, then all words by falling frequency
    counts.i64     how often each occurs
    corpus.json    what it was made of
"""

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from filelock import FileLock
from jaxtyping import Int

from elmore.atomic import atomic_file, atomic_folder, remove_leftovers
from elmore.errors import InputError
from elmore.text.characters import encode_words
from elmore.text.lines import read_lines
from elmore.text.sentences import BOS_WORD, EOS_WORD
from elmore.text.split import split_sentences
from elmore.text.tokenize import TokenizerName, get_tokenizer
from elmore.text.vocabulary import UNK_WORD, Vocabulary

BOS, EOS = range(2)
_MARKERS = (BOS_WORD, EOS_WORD, UNK_WORD)
_FORMAT = 1  # to be raised when the same text would be encoded differently
_LINES_AT_ONCE = 1000
_WORDS_AT_ONCE = 1 << 16
_REWRITTEN_AT_ONCE = 1 << 24


@dataclass(frozen=True, kw_only=True, slots=True)
class TextConfig:
    """How text becomes sentences of tokens."""

    tokenizer: TokenizerName = "moses"
    """`whitespace` for text that is tokenized already."""

    language: str = "en"
    """ISO 639-1 code, for the rules of the tokenizer and the sentence splitter."""

    sentences: Literal["split", "lines"] = "split"
    """Split each line into sentences, or take it as one."""

    replace_invalid: bool = False
    """Turn bytes that are not UTF-8 into U+FFFD, instead of refusing the text."""


class Corpus:
    """An encoded corpus, mapped from its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.facts = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
            self.tokens = np.memmap(folder / "tokens.u32", np.uint32, "r")
            self.starts = np.fromfile(folder / "starts.i64", np.int64)
            self.counts = np.fromfile(folder / "counts.i64", np.int64)
        except (OSError, ValueError) as error:
            raise InputError(f"{folder} is not an encoded corpus ({error})") from error

    @property
    def num_sentences(self) -> int:
        """Sentences in the corpus."""
        return len(self.starts) - 1

    @property
    def lengths(self) -> Int[np.ndarray, " S"]:
        """Tokens of each sentence, its boundaries included."""
        return np.diff(self.starts)

    @property
    def num_tokens(self) -> int:
        """Words to predict: every word, and the boundary at the end of each sentence."""
        return len(self.tokens) - self.num_sentences

    def words(self) -> list[str]:
        """Return all distinct words, the markers first, then by falling frequency."""
        # Not splitlines: a word may hold a Unicode line separator.
        return (self.folder / "words.txt").read_text(encoding="utf-8").split("\n")[:-1]

    def targets(self, vocabulary: Vocabulary) -> Int[np.ndarray, " W"]:
        """Return, for each word, its number in a vocabulary: that of `<UNK>` if it is not there."""
        return np.fromiter(map(vocabulary.number, self.words()), np.int64, len(self.counts))

    def characters(self, width: int) -> Int[np.ndarray, "N C"]:
        """Return the character ids of all words, mapped from a file that is made on first use."""
        path = self.folder / f"characters-{width}.u16"
        if not path.exists():
            words = self.words()
            with atomic_file(path) as temporary, temporary.open("wb") as file:
                for start in range(0, len(words), _WORDS_AT_ONCE):
                    ids = encode_words(words[start : start + _WORDS_AT_ONCE], width)
                    ids.numpy().astype(np.uint16).tofile(file)
        return np.memmap(path, np.uint16, "r").reshape(-1, width)

    def vocabulary(self, *, max_size: int, min_count: int) -> Vocabulary:
        """Return the words that a language model predicts: frequent enough, and not too many."""
        enough = int((self.counts[len(_MARKERS) :] >= min_count).sum())
        size = min(len(_MARKERS) + enough, max_size)
        return Vocabulary(islice(self.words(), size))


def encode_corpus(
    files: Sequence[Path],
    cache: Path,
    config: TextConfig | None = None,
    *,
    workers: int | None = None,
    watch: Callable[[Iterator["Encoded"]], Iterator["Encoded"]] = iter,
) -> Corpus:
    """Encode text files, or find them encoded already: the cache goes by content.

    Args:
        files: Text files, compressed or not; see `read_lines`.
        cache: Folder of encoded corpora.
        config: How text becomes tokens.
        workers: Processes that tokenize; all cores if not given. In a script of your own, more than
            one needs the usual `if __name__ == "__main__":`.
        watch: Wraps the stream of encoded pieces, to show how far it is.
    """
    config = config or TextConfig()
    if not files:
        raise InputError("expected at least one text file")
    if workers is not None and workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}")
    folder = cache / _fingerprint(files, config)
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / f"{folder.name}.lock"):  # who comes second finds it encoded
            if not folder.exists():
                remove_leftovers(folder)
                with atomic_folder(folder) as temporary:
                    pieces = _encode_in_parallel(
                        _pieces(files, config), config, workers or os.cpu_count() or 1
                    )
                    _write(temporary, watch(pieces), files, config)
    return Corpus(folder)


class Encoded(NamedTuple):
    """Some lines of text: the words in them, tokens as rows of those, sentence by sentence."""

    words: list[str]
    tokens: np.ndarray
    lengths: np.ndarray


def sentences_of(lines: Iterable[str], config: TextConfig) -> Iterator[list[str]]:
    """Split lines into tokenized sentences; those without words are left out."""
    tokenize = get_tokenizer(config.tokenizer, config.language)
    for line in lines:
        split = split_sentences(line, config.language) if config.sentences == "split" else [line]
        yield from filter(None, map(tokenize, split))


def encode_lines(lines: Iterable[str], config: TextConfig) -> Encoded:
    """Split, tokenize and number some lines."""
    row: dict[str, int] = {}
    tokens: list[int] = []
    lengths: list[int] = []
    for words in sentences_of(lines, config):
        tokens += [row.setdefault(word, len(row)) for word in words]
        lengths.append(len(words))
    return Encoded(list(row), np.array(tokens, np.uint32), np.array(lengths, np.int64))


def _fingerprint(files: Sequence[Path], config: TextConfig) -> str:
    """Name the content: the same bytes in the same order, treated in the same way."""
    treatment = {**asdict(config), "format": _FORMAT}
    if config.tokenizer == "moses" or config.sentences == "split":
        treatment["sacremoses"] = version("sacremoses")
    digest = hashlib.blake2b(json.dumps(treatment, sort_keys=True).encode(), digest_size=16)
    for path in files:
        digest.update(path.suffix.encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


def _pieces(files: Iterable[Path], config: TextConfig) -> Iterator[list[str]]:
    for path in files:
        lines = read_lines(path, replace_invalid=config.replace_invalid)
        while piece := list(islice(lines, _LINES_AT_ONCE)):
            yield piece


def _encode_in_parallel(
    pieces: Iterator[list[str]], config: TextConfig, workers: int
) -> Iterator[Encoded]:
    """Encode pieces in several processes, and yield them in their order."""
    if workers == 1:
        yield from (encode_lines(piece, config) for piece in pieces)
        return
    waiting: deque[Future[Encoded]] = deque()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for piece in pieces:
            waiting.append(pool.submit(encode_lines, piece, config))
            if len(waiting) > 2 * workers:  # no more in memory than keeps everyone busy
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _write(
    folder: Path, pieces: Iterator[Encoded], files: Sequence[Path], config: TextConfig
) -> None:
    """Write tokens by first appearance, then number them anew by frequency."""
    number = {word: i for i, word in enumerate(_MARKERS)}
    counts = np.zeros(1 << 16, np.int64)
    starts = [np.zeros(1, np.int64)]
    with (folder / "tokens.u32").open("wb") as file:
        for piece in pieces:
            numbers = np.array([number.setdefault(w, len(number)) for w in piece.words], np.uint32)
            while len(number) > len(counts):
                counts = np.concatenate([counts, np.zeros_like(counts)])
            framed, ends = _frame(numbers[piece.tokens], piece.lengths)
            counts[: len(number)] += np.bincount(framed, minlength=len(number))
            starts.append(file.tell() // framed.itemsize + ends)
            framed.tofile(file)
    counts = counts[: len(number)]
    if not counts.any():
        names = ", ".join(map(str, files))
        raise InputError(f"no words in {names}; expected text, one paragraph or sentence a line")
    # A stable order: of equally frequent words the first to appear comes first.
    order = np.argsort(-counts[len(_MARKERS) :], kind="stable") + len(_MARKERS)
    order = np.concatenate([np.arange(len(_MARKERS)), order])
    _renumber(folder / "tokens.u32", order)
    np.concatenate(starts).tofile(folder / "starts.i64")
    counts[order].tofile(folder / "counts.i64")
    words = list(number)
    with (folder / "words.txt").open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{words[i]}\n" for i in order)
    facts = {
        "files": [path.name for path in files],
        "text": asdict(config),
        "sentences": int(sum(map(len, starts)) - 1),
        "words": int(counts[len(_MARKERS) :].sum()),
        "distinct_words": len(words) - len(_MARKERS),
    }
    (folder / "corpus.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def _frame(tokens: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Put boundaries around sentences: [a b c], [2, 1] -> [<S> a b </S> <S> c </S>], [4, 7]."""
    ends = np.cumsum(lengths + 2)
    framed = np.empty(len(tokens) + 2 * len(lengths), np.uint32)
    inside = np.ones(len(framed), bool)
    inside[ends - 1] = inside[ends - lengths - 2] = False
    framed[ends - lengths - 2] = BOS
    framed[ends - 1] = EOS
    framed[inside] = tokens
    return framed, ends


def _renumber(path: Path, order: np.ndarray) -> None:
    """Replace each token by its place in `order`, a block at a time."""
    place = np.empty(len(order), np.uint32)
    place[order] = np.arange(len(order), dtype=np.uint32)
    tokens = np.memmap(path, np.uint32, "r+")
    for start in range(0, len(tokens), _REWRITTEN_AT_ONCE):
        block = tokens[start : start + _REWRITTEN_AT_ONCE]
        block[:] = place[block]
    tokens.flush()
