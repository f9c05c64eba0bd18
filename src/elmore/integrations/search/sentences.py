"""The sentences of an index: a memory-mapped Arrow file, with a number for each word.

Words are numbered from 0 through the corpus. A blank line is a sentence without words, so that the
number of a sentence is that of its line.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from elmore.errors import InputError

_SCHEMA = pa.schema({"first_word": pa.int64(), "tokens": pa.list_(pa.string())})
_BATCH_SENTENCES = 1024


def write_sentences(path: Path, sentences: Iterable[list[str]]) -> None:
    """Write tokenized sentences, in bounded memory."""
    words, rest = 0, iter(sentences)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        while batch := list(islice(rest, _BATCH_SENTENCES)):
            lengths = np.fromiter(map(len, batch), np.int64, len(batch))
            ends = words + lengths.cumsum()
            columns = {"first_word": ends - lengths, "tokens": batch}
            writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
            words = int(ends[-1])


class SentenceFile:
    """Sentences by their number, and words by theirs. Nothing is read until it is needed."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = pa.ipc.open_file(pa.memory_map(str(path)))
        except pa.ArrowInvalid as error:
            raise InputError(f"{path} is not readable; build the index again") from error
        batches = range(self._file.num_record_batches)
        self._first_words = [self._batch(i)["first_word"][0].as_py() for i in batches]
        self._size = sum(self._batch(i).num_rows for i in batches)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[list[str]]:
        batches = map(self._batch, range(self._file.num_record_batches))
        return chain.from_iterable(batch["tokens"].to_pylist() for batch in batches)

    def __getitem__(self, line: int) -> list[str]:
        """Return the tokens of a sentence."""
        i, row = divmod(line, _BATCH_SENTENCES)
        return self._batch(i)["tokens"][row].as_py()

    @property
    def num_words(self) -> int:
        """The number of words of all sentences."""
        if not len(self):
            return 0
        batch = self._batch(self._file.num_record_batches - 1)
        return batch["first_word"][-1].as_py() + len(batch["tokens"][-1])

    def line_of(self, word: int) -> int:
        """Return the number of the sentence that has a word."""
        i = bisect_right(self._first_words, word) - 1
        first_words = self._batch(i)["first_word"].to_numpy()
        # Blank lines have the first word of the sentence after them: the last one has the word.
        return i * _BATCH_SENTENCES + int(np.searchsorted(first_words, word, side="right")) - 1

    def first_word(self, line: int) -> int:
        """Return the number of the first word of a sentence."""
        i, row = divmod(line, _BATCH_SENTENCES)
        return self._batch(i)["first_word"][row].as_py()

    def _batch(self, i: int) -> pa.RecordBatch:
        return self._file.get_batch(i)
