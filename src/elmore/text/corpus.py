"""Text files to an encoded corpus on disk, encoded once and memory-mapped from then on.

Tokens are stored as word ids, which are assigned by decreasing frequency. The output vocabulary of
a language model is therefore the first V words. Words outside it are still in `words.txt`, because
the biLM reads their characters.

    tokens.u32     <S> w w w </S> <S> w w </S> ...   word ids with boundary tokens
    starts.i64     offset of each sentence in tokens.u32, then the end of the last sentence
    words.txt      <S> </S> <UNK>, then all words by decreasing frequency
    counts.i64     number of occurrences of each word
    corpus.json    source files, text settings and totals
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
_SPECIAL_WORDS = (BOS_WORD, EOS_WORD, UNK_WORD)
_FORMAT = 1  # increase when the encoding of a text changes, so that cached corpora are not reused
_LINES_PER_CHUNK = 1000
_WORDS_PER_CHUNK = 1 << 16
_TOKENS_PER_CHUNK = 1 << 24


@dataclass(frozen=True, kw_only=True, slots=True)
class TextConfig:
    """How to split text into sentences and tokens."""

    tokenizer: TokenizerName = "moses"
    """`whitespace` is for text that is already tokenized."""

    language: str = "en"
    """ISO 639-1 code; selects the rules of the tokenizer and the sentence splitter."""

    sentences: Literal["split", "lines"] = "split"
    """`split` splits each line into sentences; `lines` treats each line as one sentence."""

    replace_invalid: bool = False
    """Replace invalid UTF-8 with U+FFFD instead of raising an error."""


class Corpus:
    """An encoded corpus, memory-mapped from its folder.

    S sentences, W distinct words, C characters.
    """

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
        """Number of sentences."""
        return len(self.starts) - 1

    @property
    def lengths(self) -> Int[np.ndarray, " S"]:
        """Number of tokens per sentence, including its two boundary tokens."""
        return np.diff(self.starts)

    @property
    def num_tokens(self) -> int:
        """Number of predictions per direction: one per word and one boundary token per sentence."""
        return len(self.tokens) - self.num_sentences

    def words(self) -> list[str]:
        """Return all distinct words: `<S>`, `</S>`, `<UNK>`, then by decreasing frequency."""
        # Not splitlines: a word may contain a Unicode line separator.
        return (self.folder / "words.txt").read_text(encoding="utf-8").split("\n")[:-1]

    def targets(self, vocabulary: Vocabulary) -> Int[np.ndarray, " W"]:
        """Return the vocabulary id of each word, or that of `<UNK>` if it is out of vocabulary."""
        return np.fromiter(map(vocabulary.number, self.words()), np.int64, len(self.counts))

    def characters(self, width: int) -> Int[np.ndarray, "W C"]:
        """Return the character ids of all words, memory-mapped from a file written on first use."""
        path = self.folder / f"characters-{width}.u16"
        if not path.exists():
            words = self.words()
            with atomic_file(path) as temporary, temporary.open("wb") as file:
                for start in range(0, len(words), _WORDS_PER_CHUNK):
                    ids = encode_words(words[start : start + _WORDS_PER_CHUNK], width)
                    ids.numpy().astype(np.uint16).tofile(file)
        return np.memmap(path, np.uint16, "r").reshape(-1, width)

    def vocabulary(self, *, max_size: int, min_count: int) -> Vocabulary:
        """Return up to `max_size` of the words that occur at least `min_count` times."""
        num_frequent = int((self.counts[len(_SPECIAL_WORDS) :] >= min_count).sum())
        size = min(len(_SPECIAL_WORDS) + num_frequent, max_size)
        return Vocabulary(islice(self.words(), size))


def encode_corpus(
    files: Sequence[Path],
    cache: Path,
    config: TextConfig | None = None,
    *,
    workers: int | None = None,
    watch: Callable[[Iterator["Encoded"]], Iterator["Encoded"]] = iter,
) -> Corpus:
    """Encode text files, or open the cached result for the same content and settings.

    Args:
        files: Text files, optionally compressed; see `read_lines`.
        cache: Folder of encoded corpora.
        config: How to split text into sentences and tokens.
        workers: Number of tokenizer processes; by default one per core. With more than one, guard a
            script's entry point with `if __name__ == "__main__":`.
        watch: Wraps the iterator over encoded chunks, for example to show progress.

    Raises:
        InputError: If there are no files, a file is not valid text, or the files have no words.
    """
    config = config or TextConfig()
    if not files:
        raise InputError("expected at least one text file")
    if workers is not None and workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}")
    folder = cache / _fingerprint(files, config)
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / f"{folder.name}.lock"):
            if not folder.exists():  # another process may have encoded it in the meantime
                remove_leftovers(folder)
                with atomic_folder(folder) as temporary:
                    chunks = _encode_in_parallel(
                        _read_chunks(files, config), config, workers or os.cpu_count() or 1
                    )
                    _write(temporary, watch(chunks), files, config)
    return Corpus(folder)


class Encoded(NamedTuple):
    """A chunk of lines, encoded with ids that are local to the chunk."""

    words: list[str]
    """Distinct words in order of first occurrence."""

    tokens: np.ndarray
    """Indices into `words`, of all sentences, without boundary tokens."""

    lengths: np.ndarray
    """Number of words per sentence."""


def sentences_of(lines: Iterable[str], config: TextConfig) -> Iterator[list[str]]:
    """Split lines into tokenized sentences; sentences without words are skipped."""
    tokenize = get_tokenizer(config.tokenizer, config.language)
    for line in lines:
        split = split_sentences(line, config.language) if config.sentences == "split" else [line]
        yield from filter(None, map(tokenize, split))


def encode_lines(lines: Iterable[str], config: TextConfig) -> Encoded:
    """Split lines into sentences and tokens, and encode them."""
    ids: dict[str, int] = {}
    tokens: list[int] = []
    lengths: list[int] = []
    for words in sentences_of(lines, config):
        tokens += [ids.setdefault(word, len(ids)) for word in words]
        lengths.append(len(words))
    return Encoded(list(ids), np.array(tokens, np.uint32), np.array(lengths, np.int64))


def _fingerprint(files: Sequence[Path], config: TextConfig) -> str:
    """Hash everything that the encoded corpus depends on."""
    settings = {**asdict(config), "format": _FORMAT}
    if config.tokenizer == "moses" or config.sentences == "split":
        settings["sacremoses"] = version("sacremoses")
    digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16)
    for path in files:
        digest.update(path.suffix.encode())  # decides how the file is decompressed
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


def _read_chunks(files: Iterable[Path], config: TextConfig) -> Iterator[list[str]]:
    for path in files:
        lines = read_lines(path, replace_invalid=config.replace_invalid)
        while chunk := list(islice(lines, _LINES_PER_CHUNK)):
            yield chunk


def _encode_in_parallel(
    chunks: Iterator[list[str]], config: TextConfig, workers: int
) -> Iterator[Encoded]:
    """Encode chunks of lines in several processes, and yield the results in order."""
    if workers == 1:
        yield from (encode_lines(chunk, config) for chunk in chunks)
        return
    pending: deque[Future[Encoded]] = deque()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for chunk in chunks:
            pending.append(pool.submit(encode_lines, chunk, config))
            if len(pending) > 2 * workers:  # bounds memory, and still keeps every worker busy
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _write(
    folder: Path, chunks: Iterator[Encoded], files: Sequence[Path], config: TextConfig
) -> None:
    """Write tokens with ids by first occurrence, then replace these by ids by frequency."""
    id_of = {word: i for i, word in enumerate(_SPECIAL_WORDS)}
    counts = np.zeros(1 << 16, np.int64)
    starts = [np.zeros(1, np.int64)]
    with (folder / "tokens.u32").open("wb") as file:
        for chunk in chunks:
            ids = np.array([id_of.setdefault(w, len(id_of)) for w in chunk.words], np.uint32)
            while len(id_of) > len(counts):
                counts = np.concatenate([counts, np.zeros_like(counts)])
            tokens, ends = _add_boundaries(ids[chunk.tokens], chunk.lengths)
            counts[: len(id_of)] += np.bincount(tokens, minlength=len(id_of))
            starts.append(file.tell() // tokens.itemsize + ends)
            tokens.tofile(file)
    counts = counts[: len(id_of)]
    if not counts.any():
        names = ", ".join(map(str, files))
        raise InputError(f"no words in {names}; expected text, one paragraph or sentence per line")
    # A stable sort keeps words of equal frequency in order of first occurrence.
    order = np.argsort(-counts[len(_SPECIAL_WORDS) :], kind="stable") + len(_SPECIAL_WORDS)
    order = np.concatenate([np.arange(len(_SPECIAL_WORDS)), order])
    _reassign_ids(folder / "tokens.u32", order)
    np.concatenate(starts).tofile(folder / "starts.i64")
    counts[order].tofile(folder / "counts.i64")
    words = list(id_of)
    with (folder / "words.txt").open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{words[i]}\n" for i in order)
    facts = {
        "files": [path.name for path in files],
        "text": asdict(config),
        "sentences": int(sum(map(len, starts)) - 1),
        "words": int(counts[len(_SPECIAL_WORDS) :].sum()),
        "distinct_words": len(words) - len(_SPECIAL_WORDS),
    }
    (folder / "corpus.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def _add_boundaries(tokens: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Add boundary tokens, and return where each sentence ends.

    [a b c], [2, 1] -> [<S> a b </S> <S> c </S>], [4, 7]
    """
    ends = np.cumsum(lengths + 2)
    with_boundaries = np.empty(len(tokens) + 2 * len(lengths), np.uint32)
    is_word = np.ones(len(with_boundaries), bool)
    is_word[ends - 1] = is_word[ends - lengths - 2] = False
    with_boundaries[ends - lengths - 2] = BOS
    with_boundaries[ends - 1] = EOS
    with_boundaries[is_word] = tokens
    return with_boundaries, ends


def _reassign_ids(path: Path, order: np.ndarray) -> None:
    """Replace each token id in a file by its index in `order`, one chunk at a time."""
    new_ids = np.empty(len(order), np.uint32)
    new_ids[order] = np.arange(len(order), dtype=np.uint32)
    tokens = np.memmap(path, np.uint32, "r+")
    for start in range(0, len(tokens), _TOKENS_PER_CHUNK):
        chunk = tokens[start : start + _TOKENS_PER_CHUNK]
        chunk[:] = new_ids[chunk]
    tokens.flush()
