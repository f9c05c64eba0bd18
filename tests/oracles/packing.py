"""The batching of bilm-tf in plain Python: each row is filled with one sentence after the other."""

from collections.abc import Iterable


def pack(
    sentences: Iterable[list[str]], rows: int, steps: int, *, backward: bool
) -> list[tuple[list[list[str]], list[list[str]]]]:
    """Return all full windows as (inputs, targets), each a list of rows of words."""
    remaining = iter(sentences)
    current: list[list[str]] = [[] for _ in range(rows)]
    windows = []
    while True:
        inputs: list[list[str]] = [[] for _ in range(rows)]
        targets: list[list[str]] = [[] for _ in range(rows)]
        for row in range(rows):
            while len(inputs[row]) < steps:
                if len(current[row]) <= 1:  # the last token is only a target, never an input
                    words = next(remaining, None)
                    if words is None:
                        return windows
                    tokens = ["<S>", *words, "</S>"]
                    current[row] = tokens[::-1] if backward else tokens
                count = min(len(current[row]) - 1, steps - len(inputs[row]))
                inputs[row] += current[row][:count]
                targets[row] += current[row][1 : count + 1]
                current[row] = current[row][count:]
        windows.append((inputs, targets))
