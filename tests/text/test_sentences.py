"""Grouping sentences into padded batches. Oracle: the definition of a group."""

from hypothesis import given
from hypothesis import strategies as st

from elmore.text.sentences import group_by_length


@given(st.lists(st.integers(1, 50)), st.integers(1, 200))
def test_groups_contain_every_sentence_once_and_fit_when_padded(
    lengths: list[int], max_tokens: int
) -> None:
    groups = list(group_by_length(lengths, max_tokens))
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    longest = [max(lengths[index] for index in group) for group in groups]
    for group, length in zip(groups, longest, strict=True):
        assert length * len(group) <= max_tokens or len(group) == 1
    assert longest == sorted(longest)
