"""(2) Ids to the L + 1 layers of a bidirectional language model."""
