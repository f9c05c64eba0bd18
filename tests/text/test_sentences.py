"""Oracle: the definition. Batches themselves are tested with characters and vocabularies."""

from hypothesis import given
from hypothesis import strategies as st

from elmore.text.sentences import group_by_length


@given(st.lists(st.integers(1, 50)), st.integers(1, 200))
def test_groups_hold_every_sentence_once_and_fit_when_padded(
    lengths: list[int], max_tokens: int
) -> None:
    groups = list(group_by_length(lengths, max_tokens))
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    for group in groups:
        longest = max(lengths[row] for row in group)
        assert longest * len(group) <= max_tokens or len(group) == 1
    ends = [max(lengths[row] for row in group) for group in groups]
    assert ends == sorted(ends)
