"""Warnings. Oracle: the line of this file that calls elmore."""

import inspect
import warnings

from torch.utils.data import DataLoader

import elmore


def test_warnings_name_the_line_that_calls_elmore() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        line = inspect.currentframe().f_lineno + 1
        elmore.encode_sentences([["word" * 20]])
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, line)]


def test_warnings_name_the_line_that_calls_elmore_through_pytorch() -> None:
    loader = DataLoader([["word" * 20]], collate_fn=elmore.encode_sentences)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        line = inspect.currentframe().f_lineno + 1
        next(iter(loader))
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, line)]
