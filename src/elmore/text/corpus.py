"""Text files to an encoded corpus on disk, encoded once and memory-mapped from then on.

Word ids are assigned by decreasing frequency, so the output vocabulary of a language model is the
first V words. Words outside it are still in `words.txt`, because the biLM reads their characters.

    tokens.u32     <S> w w w </S> <S> w w </S> ...   word ids with boundary tokens
    starts.i64     offset of each sentence in tokens.u32, then the end of the last sentence
    words.txt      <S> </S> <UNK>, then all words by decreasing frequency
    counts.i64     number of occurrences of each word
    checksums.txt  CRC-32 of each of these files
"""

import hashlib
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from itertools import islice
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from filelock import FileLock
from jaxtyping import Int

from elmore.atomic import atomic_folder, remove_leftovers
from elmore.checksum import file_crc32
from elmore.errors import InputError, as_input_error
from elmore.prefetch import prefetch
from elmore.progress import Progress, track
from elmore.schema import at_least, check
from elmore.text.characters import encode_words
from elmore.text.lines import read_lines
from elmore.text.sentences import BOS_WORD, EOS_WORD
from elmore.text.split import split_sentences
from elmore.text.tokenize import TokenizerConfig, get_tokenizer
from elmore.text.vocabulary import UNK_WORD, Vocabulary

T = TypeVar("T")

BOS, EOS = range(2)
_SPECIAL_WORDS = (BOS_WORD, EOS_WORD, UNK_WORD)
_FORMAT = 5  # increase when the encoding of a text changes, so that cached corpora are not reused
_LINES_PER_CHUNK = 1000
_WORDS_PER_CHUNK = 1 << 16
_TOKENS_PER_CHUNK = 1 << 24
_FILES = ("tokens.u32", "starts.i64", "counts.i64", "words.txt")
_CHECKSUMS = "checksums.txt"


@dataclass(frozen=True, kw_only=True, slots=True)
class TextConfig(TokenizerConfig):
    """How to split text into sentences and tokens."""

    sentences: Literal["split", "lines"] = "split"
    """`split` splits each line into sentences; `lines` treats each line as one sentence."""

    replace_invalid: bool = False
    """Replace invalid UTF-8 with U+FFFD instead of raising an error."""


def read_sentences(path: Path, config: TextConfig) -> Iterator[list[str]]:
    """Yield the tokenized sentences of a text file; those without words are skipped."""
    return tokenize_lines(read_lines(path, replace_invalid=config.replace_invalid), config)


def tokenize_lines(lines: Iterable[str], config: TextConfig) -> Iterator[list[str]]:
    """Yield the tokenized sentences of lines of text; those without words are skipped."""
    tokenize = get_tokenizer(config.tokenizer, config.language)
    language = config.tokenization.language
    for line in lines:
        split = split_sentences(line, language) if config.sentences == "split" else [line]
        yield from filter(None, map(tokenize, split))


class Corpus:
    """An encoded corpus. Its tokens are memory-mapped, because they may not fit into memory.

    S sentences, W distinct words, C characters.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with as_input_error(f"{folder} is not an encoded corpus", OSError, ValueError):
            self.tokens = np.memmap(folder / "tokens.u32", np.uint32, "r")
            self.starts = np.fromfile(folder / "starts.i64", np.int64)
            self.counts = np.fromfile(folder / "counts.i64", np.int64)
            intact = (folder / _CHECKSUMS).read_text(encoding="utf-8") == _checksums(folder)
        if not intact:
            raise InputError(f"{folder} is damaged. Delete it, and the text is encoded again.")

    @property
    def num_sentences(self) -> int:
        """Number of sentences."""
        return len(self.starts) - 1

    @property
    def num_words(self) -> int:
        """Number of words of the text."""
        return len(self.tokens) - 2 * self.num_sentences

    @property
    def lengths(self) -> Int[np.ndarray, " S"]:
        """Number of tokens per sentence, including its two boundary tokens."""
        return np.diff(self.starts)

    def words(self) -> list[str]:
        """Return all distinct words: `<S>`, `</S>`, `<UNK>`, then by decreasing frequency."""
        # Not splitlines: a word may contain a Unicode line separator.
        return (self.folder / "words.txt").read_text(encoding="utf-8").split("\n")[:-1]

    def targets(self, vocabulary: Vocabulary) -> Int[np.ndarray, " W"]:
        """Return the vocabulary id of each word, or that of `<UNK>` if it is out of vocabulary."""
        return np.fromiter(map(vocabulary.word_to_id, self.words()), np.int64, len(self.counts))

    def characters(self, width: int) -> Int[np.ndarray, "W C"]:
        """Return the character ids of all words."""
        words = self.words()
        characters = np.empty((len(words), width), np.uint16)
        for start in range(0, len(words), _WORDS_PER_CHUNK):
            chunk = slice(start, start + _WORDS_PER_CHUNK)
            characters[chunk] = encode_words(words[chunk], width).numpy()
        return characters

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
    progress: Progress | None = None,
) -> Corpus:
    """Encode text files, or open the cached result for the same content and settings.

    Args:
        files: Text files, optionally compressed; see `read_lines`. A file that is listed several
            times is read that often in each epoch.
        cache: Folder of encoded corpora.
        config: How to split text into sentences and tokens.
        workers: Number of tokenizer processes; by default one per core. With more than one, guard a
            script's entry point with `if __name__ == "__main__":`.
        progress: Shows how many chunks of 1000 lines are encoded; see `elmore.embed_file`.

    Raises:
        InputError: If there are no files, a file is not valid text, or the files have no words.
    """
    config = (config or TextConfig()).for_model(None)
    get_tokenizer(config.tokenizer, config.language)  # raises if spaCy does not support it
    if not files:
        raise InputError("expected at least one text file")
    check("workers", workers, at_least(1), optional=True)
    for path in files:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: expected a regular file, because it is read twice")
    folder = cache / _fingerprint(files, config)
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f"{folder.name}.lock")):
            if not folder.exists():  # another process may have encoded it in the meantime
                remove_leftovers(folder)
                with atomic_folder(folder) as temporary:
                    distinct = list(dict.fromkeys(files))
                    chunks = _encode_files(distinct, config, workers or os.cpu_count() or 1)
                    _write(temporary, track(chunks, "thousand lines encoded", progress), files)
                    if _fingerprint(files, config) != folder.name:
                        raise InputError(
                            "a text file changed while it was being encoded; run the command again"
                        )
    return Corpus(folder)


def _fingerprint(files: Sequence[Path], config: TextConfig) -> str:
    """Hash everything that the encoded corpus depends on."""
    settings = {**asdict(config), "format": _FORMAT}
    if config.tokenizer == "moses" or config.sentences == "split":
        settings["sacremoses"] = version("sacremoses")
    if config.tokenizer == "spacy":
        settings["spacy"] = version("spacy")
    digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16)
    numbers = {path: number for number, path in reversed(list(enumerate(files)))}
    for path in files:
        digest.update(str(numbers[path]).encode())  # listed twice, it is encoded once
        digest.update(path.suffix.encode())  # decides how the file is decompressed
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


class _Chunk(NamedTuple):
    """Encoded sentences, with word ids that are valid only in this chunk."""

    path: Path
    """The file that the sentences are from."""

    words: list[str]
    """The special words, then the other distinct words in order of first occurrence."""

    tokens: np.ndarray
    """Word ids of all sentences, with boundary tokens."""

    lengths: np.ndarray
    """Number of tokens per sentence."""


def _encode_lines(chunk: tuple[Path, list[str]], config: TextConfig) -> _Chunk:
    path, lines = chunk
    ids = {word: i for i, word in enumerate(_SPECIAL_WORDS)}
    tokens: list[int] = []
    lengths: list[int] = []
    for words in tokenize_lines(lines, config):
        tokens += (BOS, *(ids.setdefault(word, len(ids)) for word in words), EOS)
        lengths.append(len(words) + 2)
    return _Chunk(path, list(ids), np.array(tokens, np.uint32), np.array(lengths, np.int64))


def _read_chunks(files: Iterable[Path], config: TextConfig) -> Iterator[tuple[Path, list[str]]]:
    for path in files:
        lines = read_lines(path, replace_invalid=config.replace_invalid)
        while chunk := list(islice(lines, _LINES_PER_CHUNK)):
            yield path, chunk


def _encode_files(files: Sequence[Path], config: TextConfig, workers: int) -> Iterator[_Chunk]:
    """Encode files in several processes, and yield the results in order."""
    encode, chunks = partial(_encode_lines, config=config), _read_chunks(files, config)
    if workers == 1:
        yield from map(encode, chunks)
        return
    pool = _Pool(workers, get_context("spawn"), initializer=_init_worker)
    try:
        yield from prefetch(encode, chunks, ahead=2 * workers, workers=pool)
    finally:
        pool.shutdown(cancel_futures=True)


class _Pool(ProcessPoolExecutor):
    """A pool whose processes print no traceback on Ctrl-C, which a terminal sends to all."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if not hasattr(signal, "pthread_sigmask"):  # Windows
            return super().submit(fn, *args, **kwargs)
        # This may start a process, which inherits the mask until it calls `_init_worker`.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _init_worker() -> None:
    """End this process without a traceback on Ctrl-C, and when its parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)  # the queue would keep this process waiting

    Thread(target=wait, daemon=True).start()


def _write(folder: Path, chunks: Iterable[_Chunk], files: Sequence[Path]) -> None:
    """Write tokens with ids by first occurrence, then replace these by ids by frequency.

    The chunks are those of the distinct files. Sentences of a file that is listed again are copied.
    """
    id_of: dict[str, int] = {}
    counts = np.zeros(0, np.int64)
    times = Counter(files)
    lengths: dict[Path, list[np.ndarray]] = {path: [] for path in times}
    with (folder / "tokens.u32").open("wb") as file:
        for chunk in chunks:
            ids = np.array([id_of.setdefault(w, len(id_of)) for w in chunk.words], np.uint32)
            tokens = ids[chunk.tokens]
            lengths[chunk.path].append(chunk.lengths)
            file.write(tokens.data)  # unlike that of tofile, its error says that the disk is full
            previous = counts
            counts = np.bincount(tokens, minlength=len(id_of)) * times[chunk.path]
            counts[: len(previous)] += previous
    if not counts.any():
        names = ", ".join(map(str, files))
        raise InputError(f"no words in {names}; expected text, one paragraph or sentence per line")
    starts = _append_repeats(folder / "tokens.u32", lengths, times)
    # A stable sort keeps words of equal frequency in order of first occurrence.
    special = len(_SPECIAL_WORDS)
    order = np.r_[:special, np.argsort(-counts[special:], kind="stable") + special]
    _renumber(folder / "tokens.u32", order)
    (folder / "starts.i64").write_bytes(starts.data)
    (folder / "counts.i64").write_bytes(counts[order].data)
    words = list(id_of)
    with (folder / "words.txt").open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{words[i]}\n" for i in order)
    (folder / _CHECKSUMS).write_text(_checksums(folder), encoding="utf-8")


def _append_repeats(
    path: Path, lengths: dict[Path, list[np.ndarray]], times: Counter[Path]
) -> np.ndarray:
    """Append the tokens of each file that is listed again; return the starts of all sentences."""
    by_file = [np.concatenate([np.zeros(0, np.int64), *chunks]) for chunks in lengths.values()]
    ends = np.cumsum([x.sum() for x in by_file])
    repeats = [i for i, count in enumerate(times.values()) for _ in range(count - 1)]
    tokens = np.memmap(path, np.uint32, "r")
    with path.open("ab") as file:
        for i in repeats:
            for start in range(ends[i] - by_file[i].sum(), ends[i], _TOKENS_PER_CHUNK):
                file.write(tokens[start : min(start + _TOKENS_PER_CHUNK, ends[i])].tobytes())
    return np.cumsum(np.concatenate([[0], *by_file, *(by_file[i] for i in repeats)]))


def _checksums(folder: Path) -> str:
    """Return the checksums of the files of a corpus, one per line."""
    return "".join(f"{file_crc32(folder / name):08x} {name}\n" for name in _FILES)


def _renumber(path: Path, order: np.ndarray) -> None:
    """Replace each token id in a file by its index in `order`, one chunk at a time."""
    new_ids = np.empty(len(order), np.uint32)
    new_ids[order] = np.arange(len(order), dtype=np.uint32)
    tokens = np.memmap(path, np.uint32, "r+")
    for start in range(0, len(tokens), _TOKENS_PER_CHUNK):
        chunk = tokens[start : start + _TOKENS_PER_CHUNK]
        chunk[:] = new_ids[chunk]
    tokens.flush()
