"""JSON from files and users."""

import json
import re
from typing import Any

from elmore.errors import InputError

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(text: str) -> Any:
    """Parse JSON.

    Raises:
        InputError: If the text is not JSON, or has half of a surrogate pair, which is no character.
    """
    try:
        value = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON ({error})") from error
    return value
