"""(1) Text to ids: lines, sentences, tokens, character ids."""
