"""Oracle: each word encoded alone."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmore.bilm import word_table
from elmore.bilm.model import BiLM
from elmore.bilm.word_table import WordTable
from elmore.text.characters import encode_words


@given(st.lists(st.lists(st.text(max_size=60), max_size=12), max_size=6), st.integers(1, 20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_row_holds_what_its_word_gives_alone(
    bilm: BiLM, calls: list[list[str]], size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setitem(word_table._WORDS, "cpu", size)  # it starts over, or grows
        patch.setitem(word_table._ENCODED_AT_ONCE, "cpu", 5)
        table = WordTable(bilm, encode_words, torch.device("cpu"))
        for words in calls:
            rows = table(words)  # which may replace the vectors
            found = table.vectors[rows]
            expected = [bilm.encode(encode_words([word]))[0] for word in words]
            assert len(found) == len(expected)
            for a, b in zip(found, expected, strict=True):
                torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
