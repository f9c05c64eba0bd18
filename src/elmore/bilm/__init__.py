"""(2) Ids -> the L + 1 layers of a bidirectional language model."""
