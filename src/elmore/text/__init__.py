"""(1) Text to ids: lines, tokens, characters."""
