"""The batch row and the step at which a GPU reads each token, for both directions.

A GPU is fast when a step has many rows, and padding costs as much as a token. `pack` therefore puts
independent sentences one after another into rows of about the same length:

    row 0   forward   a b c d        sentences abc and d, which start at a and d
            backward  d c b a                             and at d and c
    row 1   forward   e f g h        sentence efgh
            backward  h g f e

Sentences that start from different states get one row each. `align` pads them on the left, so that
the state after the last step is the state after the sentence:

    row 0   forward   _ a b c        row 1   forward   e f g h
            backward  _ c b a                backward  h g f e

T steps, 2 directions, B batch rows, S sentences, N tokens of all sentences.
"""

import heapq
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

_MAX_ROWS = 512
_MULTIPLE = 8  # of T; B is a power of two, so few shapes occur and few graphs are captured


class Layout(NamedTuple):
    """Where each token of several sentences is read."""

    step: Int[np.ndarray, "2 N"]
    """The step of each token, for the forward and the backward direction."""

    row: Int[np.ndarray, " N"]
    """The batch row of each token."""

    starts: Bool[np.ndarray, "T 2 B"]
    """Whether a sentence starts at a step of a row."""


def pack(lengths: Int[np.ndarray, " S"]) -> Layout:
    """Pack sentences into up to 512 rows, each about as long as the longest sentence."""
    rows = min(_MAX_ROWS, int(lengths.sum()) // max(1, int(lengths.max(initial=0))))
    B = 1 << (max(rows, 1).bit_length() - 1)
    start, row, T = _assign_rows(lengths, B)
    T = _round_up(T)
    # The backward direction reads a row from its end: step t is T - 1 - t there.
    return _lay_out(lengths, np.stack([start, T - start - lengths]), row, (T, B))


def align(lengths: Int[np.ndarray, " S"]) -> Layout:
    """Put each sentence into a row of its own, in their order, so that all end at the last step."""
    T = _round_up(int(lengths.max(initial=1)))
    B = 1 << max(0, len(lengths) - 1).bit_length()
    return _lay_out(lengths, np.stack([T - lengths] * 2), np.arange(len(lengths)), (T, B))


def _lay_out(
    lengths: Int[np.ndarray, " S"],
    start: Int[np.ndarray, "2 S"],
    row: Int[np.ndarray, " S"],
    shape: tuple[int, int],
) -> Layout:
    """Return the layout, given the step at which each direction starts to read each sentence."""
    T, B = shape
    first = np.cumsum(lengths) - lengths
    k = np.arange(lengths.sum()) - np.repeat(first, lengths)  # position in the sentence
    last = np.repeat(lengths, lengths) - 1
    step = np.repeat(start, lengths, axis=1) + np.stack([k, last - k])
    starts = np.zeros((T, 2, B), dtype=bool)
    not_empty = lengths > 0
    for d in range(2):
        starts[start[d, not_empty], d, row[not_empty]] = True
    return Layout(step, np.repeat(row, lengths), starts)


def _assign_rows(
    lengths: Int[np.ndarray, " S"], B: int
) -> tuple[Int[np.ndarray, " S"], Int[np.ndarray, " S"], int]:
    """Return the step at which each sentence starts, its row, and the length of the longest row.

    Greedy: the longest remaining sentence is added to the shortest row.
    """
    order = np.argsort(-lengths, kind="stable")
    heap = list(range(B))  # of length * B + row: integers compare fast
    keys = [heapq.heapreplace(heap, heap[0] + size) for size in (B * lengths[order]).tolist()]
    start_and_row = np.zeros((2, len(lengths)), dtype=np.int64)
    start_and_row[:, order] = np.divmod(np.array(keys, dtype=np.int64), B)
    return start_and_row[0], start_and_row[1], max(heap) // B


def _round_up(steps: int) -> int:
    return max(_MULTIPLE, steps + -steps % _MULTIPLE)
