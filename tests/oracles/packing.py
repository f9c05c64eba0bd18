"""bilm-tf's packing in plain Python lists, from the description of what it does."""

from collections.abc import Iterable


def pack(
    sentences: Iterable[list[str]], rows: int, steps: int, *, backward: bool
) -> list[tuple[list[list[str]], list[list[str]]]]:
    """Return all full windows as (read, predicted), each a list of rows of words."""
    supply = iter(sentences)
    current: list[list[str]] = [[] for _ in range(rows)]
    windows = []
    while True:
        read: list[list[str]] = [[] for _ in range(rows)]
        predicted: list[list[str]] = [[] for _ in range(rows)]
        for row in range(rows):
            while len(read[row]) < steps:
                if len(current[row]) <= 1:  # the last word of a sentence is never read
                    words = next(supply, None)
                    if words is None:
                        return windows
                    framed = ["<S>", *words, "</S>"]
                    current[row] = framed[::-1] if backward else framed
                count = min(len(current[row]) - 1, steps - len(read[row]))
                read[row] += current[row][:count]
                predicted[row] += current[row][1 : count + 1]
                current[row] = current[row][count:]
        windows.append((read, predicted))
