"""JSON from files and users."""

import json
import re
from typing import Any

from elmore.errors import InputError

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(text: str) -> Any:
    """Parse JSON.

    Raises:
        InputError: If the text is not JSON, or contains an unpaired surrogate.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON ({error})") from error
    if _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            surrogate = f"\\u{ord(error.object[error.start]):x}"
            raise InputError(
                f"the unpaired surrogate {surrogate} is not a character; UTF-8 cannot encode it"
            ) from error
    return value
