"""JSON input. Oracle: Python's json module, and which text UTF-8 can hold."""

import json

import pytest

from elmore.errors import InputError
from elmore.tasks.json_input import parse_json


@pytest.mark.parametrize("text", ['{"a": "\\ud83d\\ude00 \\u00e9 \\ud7ff"}', '["\\\\ud800"]', "1"])
def test_json_is_parsed(text: str) -> None:
    assert parse_json(text) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("1" * 5_000, "not JSON"),
        ('{"a": "\\ud800"}', r"the unpaired surrogate \\ud800 is not a character"),
        ('{"\\uDFFF": 1}', r"the unpaired surrogate \\udfff is not a character"),
    ],
)
def test_other_text_is_rejected_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_json(text)
    assert "\n" not in str(caught.value)
