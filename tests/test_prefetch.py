"""Oracle: the results of calling the function directly."""

import pytest

from elmore.prefetch import prefetch


def test_prefetch_keeps_order_and_raises_errors() -> None:
    made = []

    def make(item: int) -> int:
        made.append(item)
        return 1 // (5 - item)

    stream = prefetch(make, range(9))
    assert next(stream) == 0
    stream.close()
    assert made in ([0], [0, 1], [0, 1, 2])
    assert list(prefetch(str, range(9))) == list("012345678")
    with pytest.raises(ZeroDivisionError):
        list(prefetch(make, range(9)))
