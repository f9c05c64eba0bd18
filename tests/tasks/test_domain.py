"""Fine-tuning of the biLM on a task's text. Oracle: arithmetic by hand."""

import pytest

from elmore.tasks.domain import batch_rows


@pytest.mark.parametrize(
    ("tokens", "rows"),
    [
        (40, 16),  # the default of `elmore finetune`
        (200_000, 16),
        (2_000_000, 100),  # a thousand steps of 100 rows of 20 tokens
        (50_000_000, 512),
    ],
)
def test_large_texts_get_large_batches(tokens: int, rows: int) -> None:
    assert batch_rows(["word " * 40] * (tokens // 40)) == rows
