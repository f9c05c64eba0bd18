"""Where tokens are in the rows of a GPU batch, for both directions.

A GPU is fast when a step has many rows, and a padded place costs as much as a token. So `pack`
puts sentences one after another into rows of about the same length:

    row 0   forward   a b c d        sentences abc, d      starts at a, d
            backward  d c b a                              starts at d, c
    row 1   forward   e f g h        sentence efgh
            backward  h g f e

Where sentences have states of their own, `align` gives each a row and lets all end at the last
place, so that the state after the last step is the state after the sentence:

    row 0   forward   _ a b c        row 1   forward   e f g h
            backward  _ c b a                backward  h g f e

T places, 2 directions, B rows, S sentences, N tokens of all sentences.
"""

import heapq
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

_MAX_ROWS = 512
_MULTIPLE = 8  # of places; with powers of two for rows, batches have few different shapes


class Layout(NamedTuple):
    """The places of the tokens of several sentences, in the order in which they are read."""

    tokens: Int[np.ndarray, "T 2 B"]
    """The token read at each place; 0 where there is none."""

    starts: Bool[np.ndarray, "T 2 B"]
    """Whether a sentence starts at a place."""

    place: Int[np.ndarray, "2 N"]
    """The place of each token, for the forward and the backward direction."""

    row: Int[np.ndarray, " N"]
    """The row of each token."""


def pack(tokens: Int[np.ndarray, " N"], lengths: Int[np.ndarray, " S"]) -> Layout:
    """Put sentences into up to 512 rows, several in a row; the longest decides how many rows."""
    rows = min(_MAX_ROWS, int(lengths.sum()) // max(1, int(lengths.max(initial=0))))
    B = 1 << (max(rows, 1).bit_length() - 1)
    start, row, T = _assign_rows(lengths, B)
    T = _round_up(T)
    # The backward direction reads a row from its end: place p is T - 1 - p there.
    return _lay_out(tokens, lengths, np.stack([start, T - start - lengths]), row, (T, B))


def align(tokens: Int[np.ndarray, " N"], lengths: Int[np.ndarray, " S"]) -> Layout:
    """Give every sentence a row, in their order, and let all end at the last place."""
    T = _round_up(int(lengths.max(initial=1)))
    B = 1 << max(0, len(lengths) - 1).bit_length()
    start = np.stack([T - lengths, T - lengths])
    return _lay_out(tokens, lengths, start, np.arange(len(lengths)), (T, B))


def _lay_out(
    tokens: Int[np.ndarray, " N"],
    lengths: Int[np.ndarray, " S"],
    start: Int[np.ndarray, "2 S"],
    row: Int[np.ndarray, " S"],
    shape: tuple[int, int],
) -> Layout:
    """Put sentences at the places where each direction starts to read them."""
    (T, B), N = shape, len(tokens)
    first = np.cumsum(lengths) - lengths
    k = np.arange(N) - np.repeat(first, lengths)  # position in the sentence
    n = np.repeat(lengths, lengths)
    place = np.repeat(start, lengths, axis=1) + np.stack([k, n - 1 - k])
    row_of_token = np.repeat(row, lengths)
    layout = Layout(
        np.zeros((T, 2, B), dtype=np.int64),
        np.zeros((T, 2, B), dtype=bool),
        place,
        row_of_token,
    )
    not_empty = lengths > 0
    for d in range(2):
        layout.tokens[place[d], d, row_of_token] = tokens
        layout.starts[start[d, not_empty], d, row[not_empty]] = True
    return layout


def _assign_rows(
    lengths: Int[np.ndarray, " S"], B: int
) -> tuple[Int[np.ndarray, " S"], Int[np.ndarray, " S"], int]:
    """Return the place where each sentence starts, its row, and the length of the longest row.

    Greedy: the longest remaining sentence is added to the shortest row.
    """
    order = np.argsort(-lengths, kind="stable")
    rows = list(range(B))  # a heap of length * B + row: integers compare fast
    starts = [heapq.heapreplace(rows, rows[0] + size) for size in (B * lengths[order]).tolist()]
    places = np.zeros((2, len(lengths)), dtype=np.int64)
    places[:, order] = np.divmod(np.array(starts, dtype=np.int64), B)
    return places[0], places[1], max(rows) // B


def _round_up(places: int) -> int:
    return max(_MULTIPLE, places + -places % _MULTIPLE)
