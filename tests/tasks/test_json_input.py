"""JSON input. Oracle: Python's json module, and which text UTF-8 can hold."""

import json

import pytest

from elmore.errors import InputError
from elmore.tasks.json_input import parse_json


@pytest.mark.parametrize("text", ['{"a": "\\ud83d\\ude00 \\u00e9 \\ud7ff"}', '["\\\\ud800"]', "1"])
def test_json_is_parsed(text: str) -> None:
    assert parse_json(text) == json.loads(text)


@pytest.mark.parametrize(
    "text", ["", "{", '{"a": "\\ud800"}', '{"\\uDFFF": 1}', "[" * 100_000, "1" * 5_000]
)
def test_other_text_is_rejected_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match="not JSON") as caught:
        parse_json(text)
    assert "\n" not in str(caught.value)
